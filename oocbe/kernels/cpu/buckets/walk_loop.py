"""The loop of a bucket's join; :mod:`oocbe.kernels.cpu.buckets.bucket_join` describes the algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.buckets.consumption_runs import GIVEN_UP, NO_ROOM
from oocbe.kernels.cpu.buckets.join_arrays import (
    BoundArrays,
    Frontier,
    LookupArrays,
    RunArrays,
    SharedCounts,
    TrieArrays,
    WalkState,
)
from oocbe.kernels.cpu.buckets.walk_steps import bound_part, gather, group_end, least_value, seek
from oocbe.kernels.cpu.jit import borrowing

U64 = np.uint64

SCANNED_ROWS = 8
"""Maximum number of rows that are read to find a range's minimum; longer ranges keep the bound of the enclosing one."""

LOOK_UP_STEP = (1 << 14) - 1
"""Mask of the step number: a walk reads the stop flag every 16,384 steps."""

COMPLETE = 0
"""Code of a walk that reached the last item; otherwise ``GIVEN_UP`` or ``NO_ROOM``."""


@borrowing
def walk_on(
    tries: Any,
    runs: Any,
    lookups: Any,
    bounds: Any,
    items: Any,
    levels: Any,
    last: Any,
    step_limit: Any,
    row_limit: Any,
    shared: Any,
    state: Any,
    output: Any,
    progress: Any,
) -> Any:
    """Continue a walk until it ends or its output is full: (end code, items of output, progress).

    Values of rows are not read, except as prices, and leaves are output, not joined: so a compilation for each dtype of
    bounds serves all messages. All arguments but numbers are named tuples as plain tuples, because Numba takes three
    times as long to type named ones at a call.

    tries, runs, lookups, bounds, shared, state : of :mod:`oocbe.kernels.cpu.buckets.join_arrays`.
    items : (keys, low, high), the start of each walk: fields of ``Frontier``. last : one past the last item.
    levels : (first, last), of the items, and where the walk ends.
    row_limit, step_limit : of all walks together, compared with the shared counts now and then.
    output : ``Frontier``, overwritten.
    progress : (item, level, steps), of the previous call; initially the first item, the level before its own, and 0.
    """
    tables, program_runs, program_lookups = TrieArrays(*tries), RunArrays(*runs), LookupArrays(*lookups)
    bound, counts, now, into = BoundArrays(*bounds), SharedCounts(*shared), WalkState(*state), Frontier(*output)
    keys, key_base, table_rows, row_base = tables.keys, tables.key_base, tables.rows, tables.row_base
    priced, narrow, price_scale = tables.priced, tables.narrow, tables.price_scale
    run_word, run_shift, run_mask, run_size, part_start, part_table, part_word, part_shift = program_runs
    level_start, segment_start = program_lookups.level_start, program_lookups.segment_start
    segment_middle = program_lookups.segment_middle
    segments = (
        program_lookups.segment_word,
        program_lookups.segment_shift,
        program_lookups.segment_mask,
        program_lookups.segment_place,
    )
    base, bits, own_bits = program_lookups.base, program_lookups.bits, program_lookups.own_bits
    free, free_base = program_lookups.free, program_lookups.free_base
    entries, slack = bound.entries, bound.slack
    item_keys, item_low, item_high = items
    start_level, stop_level = levels
    made, stop = counts.made, counts.stop
    key, low, high, position, index = now.key, now.low, now.high, now.position, now.indices
    active, active_to, permitted_values = now.active, now.active_to, now.permitted_values
    reached, least, least_sum = now.reached, now.least, now.least_sum
    prunes = len(slack) > 0
    is_narrow = len(narrow) > 0
    capacity, words = into.keys.shape
    count_tables = len(key_base)
    first, level, steps = progress
    count = np.int64(0)
    given_up, no_room, complete = count + GIVEN_UP, count + NO_ROOM, count + COMPLETE

    for item in range(first, last):
        if level < start_level:
            for w in range(words):
                key[w] = item_keys[item, w]
            for t in range(count_tables):
                low[start_level, t] = item_low[item, t]
                high[start_level, t] = item_high[item, t]
            if prunes:
                reached[start_level] = entries[0]
                for above in range(start_level):
                    reached[start_level] += bound_part(key, bound, above)
                least_sum[start_level] = entries[0]
                for t in range(count_tables):
                    least[start_level, t] = tables.least[t]
                    least_sum[start_level] += tables.least[t]
            level = start_level
        arriving = True
        while level >= start_level:
            steps += 1
            if steps & LOOK_UP_STEP == 0:
                made[1] += LOOK_UP_STEP + 1
                if made[1] > step_limit or made[0] > row_limit or stop[0] != 0:
                    return given_up, count, (item, level, steps)
            if arriving:
                arriving = False
                if level == stop_level:
                    if count == capacity:
                        return no_room, count, (item, level, steps)
                    for t in range(count_tables):
                        into.low[count, t] = low[level, t]
                        into.high[count, t] = high[level, t]
                    for w in range(words):
                        into.keys[count, w] = key[w]
                    if prunes:
                        into.reached[count] = reached[level]
                    count += 1
                    level -= 1
                    continue

                for t in range(count_tables):
                    low[level + 1, t] = low[level, t]
                    high[level + 1, t] = high[level, t]
                    position[level, t] = low[level, t]
                    least[level + 1, t] = least[level, t]
                position[level, count_tables] = -1
                if part_start[level + 1] > part_start[level]:
                    # Compute index parts from above for this level's constraints; keep those that may forbid something.
                    filled = level_start[level]
                    for f in range(level_start[level], level_start[level + 1]):
                        above = gather(key, segments, segment_middle[f], segment_start[f + 1])
                        i = free_base[f] + (above >> own_bits[f])
                        if (free[i >> 6] >> U64(i & 63)) & U64(1) == U64(0):
                            index[filled] = above
                            active[filled] = f
                            filled += 1
                    active_to[level] = filled
                else:
                    for f in range(level_start[level], level_start[level + 1]):
                        index[f] = gather(key, segments, segment_start[f], segment_start[f + 1])

            part_from = part_start[level]
            parts = part_start[level + 1] - part_from
            mask = run_mask[level]
            field = U64(0)
            if parts == 0:
                x = position[level, count_tables] + 1
                size = run_size[level]
                while x < size:
                    if x & 63 == 0:
                        mask_stride = (size + 63) >> 6
                        values_left = ~U64(0)
                        for f in range(level_start[level], level_start[level + 1]):
                            values_left &= bits[base[f] + index[f] * mask_stride + (x >> 6)]
                        permitted_values[level] = values_left
                    if (permitted_values[level] >> U64(x & 63)) & U64(1):
                        break
                    x += 1
                position[level, count_tables] = x
                if x >= size:
                    level -= 1
                    continue
                field = U64(x)
            elif parts == 1:
                t = part_table[part_from]
                p = position[level, t]
                end = high[level, t]
                if p >= end:
                    level -= 1
                    continue
                offset = key_base[t] + part_word[part_from] * table_rows[t]
                shift = part_shift[part_from]
                field = (keys[offset + p] >> shift) & mask
                q = group_end(keys, offset, p, end, shift, mask, field)
                low[level + 1, t] = p
                high[level + 1, t] = q
                position[level, t] = q
            else:
                agreeing = 0
                exhausted = False
                part = part_from
                while agreeing < parts:
                    t = part_table[part]
                    p = position[level, t]
                    end = high[level, t]
                    if p < end:
                        offset = key_base[t] + part_word[part] * table_rows[t]
                        shift = part_shift[part]
                        here = (keys[offset + p] >> shift) & mask
                        if here < field:
                            p = seek(keys, offset, p, end, shift, mask, field)
                            position[level, t] = p
                            if p < end:
                                here = (keys[offset + p] >> shift) & mask
                        if p < end:
                            if agreeing == 0 or here > field:
                                field = here
                                agreeing = 1
                            else:
                                agreeing += 1
                    if p >= end:
                        exhausted = True
                        break
                    part += 1
                    if part == part_from + parts:
                        part = part_from
                if exhausted:
                    level -= 1
                    continue
                for part in range(part_from, part_from + parts):
                    t = part_table[part]
                    p = position[level, t]
                    offset = key_base[t] + part_word[part] * table_rows[t]
                    q = group_end(keys, offset, p, high[level, t], part_shift[part], mask, field)
                    low[level + 1, t] = p
                    high[level + 1, t] = q
                    position[level, t] = q

            w = run_word[level]
            shift = run_shift[level]
            key[w] = (key[w] & ~(mask << shift)) | (field << shift)
            permitted = True
            if parts > 0:
                for a in range(level_start[level], active_to[level]):
                    f = active[a]
                    i = index[a] | gather(key, segments, segment_start[f], segment_middle[f])
                    if (bits[base[f] + (i >> 6)] >> U64(i & 63)) & U64(1) == U64(0):
                        permitted = False
                        break
            if permitted and prunes:
                reached[level + 1] = reached[level] + bound_part(key, bound, level)
                least_sum[level + 1] = least_sum[level]
                for part in range(part_from, part_from + parts):
                    t = part_table[part]
                    if high[level + 1, t] - low[level + 1, t] <= SCANNED_ROWS:
                        begin, end = row_base[t] + low[level + 1, t], row_base[t] + high[level + 1, t]
                        if is_narrow:
                            smallest = entries[0] + least_value(narrow, begin, end)
                        else:
                            smallest = least_value(priced, begin, end)
                        least_sum[level + 1] += smallest - least[level, t]
                        least[level + 1, t] = smallest
                if reached[level + 1] + least_sum[level + 1] * price_scale >= slack[level + 1]:
                    permitted = False
            if permitted:
                level += 1
                arriving = True

    return complete, count, (last, level, steps)
