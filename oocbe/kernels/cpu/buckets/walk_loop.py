"""The loop of a bucket's join; :mod:`oocbe.kernels.cpu.buckets.bucket_join` describes the algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.buckets.consumption_leaf import join_consumptions, write_rows
from oocbe.kernels.cpu.buckets.consumption_runs import GIVEN_UP, NO_ROOM
from oocbe.kernels.cpu.buckets.join_arrays import LeafRows
from oocbe.kernels.cpu.buckets.limb_leaf import join_limbs, write_counts
from oocbe.kernels.cpu.buckets.trie_search import group_end, seek
from oocbe.kernels.cpu.buckets.value_leaf import join_values
from oocbe.kernels.cpu.buckets.walk_steps import bound_part, gather, least_value, values_a_row
from oocbe.kernels.cpu.jit import without_allocation

U64 = np.uint64

SCANNED_ROWS = 8
"""Maximum number of rows that are read to find a range's minimum; longer ranges keep the bound of the enclosing one."""

SHARED_STEP = 4095
"""Mask of the row number: a walk adds to the shared counts every 4096 rows."""

LOOK_UP_STEP = (1 << 14) - 1
"""Mask of the step number: a walk reads the stop flag every 16,384 steps."""

COMPLETE = 0
"""Code of a walk that reached the last item; otherwise ``GIVEN_UP`` or ``NO_ROOM``."""


@without_allocation
def walk_on(
    tables: Any,
    program: Any,
    consumption: Any,
    start: Any,
    row_limit: Any,
    step_limit: Any,
    shared: Any,
    state: Any,
    lists: Any,
    output: Any,
    progress: Any,
    limbs: Any,
) -> Any:
    """Continue a walk until it ends or its capacity is exhausted: (end code, rows needed by a leaf, progress).

    Parameters
    ----------
    tables, program, consumption, start, row_limit, step_limit, shared : as named tuples, of
        :func:`oocbe.kernels.cpu.buckets.bucket_join.walk`.
    state, lists, output : ``WalkState``, ``WalkLists`` and ``WalkOutput`` of
        :mod:`oocbe.kernels.cpu.buckets.join_arrays`.
    progress : (item, level, steps, rows, pruned), of the previous call; initially the level before the item's.
    limbs : of the program's semiring, as an argument: for None, Numba removes the code for limbs.
    """
    key_base, value_base, table_rows, keys = tables.key_base, tables.value_base, tables.rows, tables.keys
    table_least, priced, price_scale = tables.least, tables.priced, tables.price_scale
    runs, lookups, leaf, bounds = program.runs, program.lookups, program.leaf, program.bounds
    semiring = program.semiring
    run_word, run_shift, run_mask, run_size = runs.word, runs.shift, runs.mask, runs.size
    part_start, part_table, part_word, part_shift = runs.part_start, runs.part_table, runs.part_word, runs.part_shift
    level_start, segment_start, segment_middle = lookups.level_start, lookups.segment_start, lookups.segment_middle
    base, bits, own_bits = lookups.base, lookups.bits, lookups.own_bits
    free, free_base = lookups.free, lookups.free_base
    entries, slack, scale = bounds.entries, bounds.slack, bounds.scale
    item_keys, item_low, item_high = start.keys, start.low, start.high
    start_level, stop_level = start.level, start.stop_level
    made, stop = shared.made, shared.stop
    key, low, high, position, places, index = (
        state.key,
        state.low,
        state.high,
        state.position,
        state.places,
        state.indices,
    )
    active, active_to, permitted_values = state.active, state.active_to, state.permitted_values
    reached, least, least_sum, product = state.reached, state.least, state.least_sum, state.product
    out_keys, out_values, out_low, out_high = output
    prunes = len(slack) > 0
    items = values_a_row(limbs)

    words, capacity = out_keys.shape
    count_tables = len(key_base)
    levels = len(run_word)
    at_leaves = stop_level == levels
    mask_from, mask_to, function_to = level_start[levels], level_start[levels + 1], level_start[levels + 2]
    most_rows = lists.amounts.shape[1]
    first, level, steps, count, pruned = progress
    zero = np.int64(0)
    given_up, no_room, complete = zero + GIVEN_UP, zero + NO_ROOM, zero + COMPLETE

    for item in range(first, start.last):
        if level < start_level:
            for w in range(words):
                key[w] = item_keys[w, item]
            for t in range(count_tables):
                low[start_level, t] = item_low[t, item]
                high[start_level, t] = item_high[t, item]
            if prunes:
                reached[start_level] = entries[0]
                for above in range(start_level):
                    reached[start_level] += bound_part(key, bounds, above)
                least_sum[start_level] = entries[0]
                for t in range(count_tables):
                    least[start_level, t] = table_least[t]
                    least_sum[start_level] += table_least[t]
            level = start_level
        arriving = True
        while level >= start_level:
            steps += 1
            if steps & LOOK_UP_STEP == 0:
                made[1] += LOOK_UP_STEP + 1
                if made[1] > step_limit or made[0] > row_limit or stop[0] != 0:
                    return given_up, zero, (item, level, steps, count, pruned)
            if arriving:
                arriving = False
                if level == stop_level:
                    if count + most_rows > capacity:
                        return no_room, zero, (item, stop_level, steps, count, pruned)
                    level -= 1
                    if not at_leaves:
                        for t in range(count_tables):
                            out_low[t, count] = low[stop_level, t]
                            out_high[t, count] = high[stop_level, t]
                        for w in range(words):
                            out_keys[w, count] = key[w]
                        count += 1
                        if count > row_limit:
                            return given_up, zero, (item, level, steps, count, pruned)
                        continue

                    for f in range(mask_from, function_to):
                        index[f] = gather(key, lookups, segment_start[f], segment_start[f + 1])
                    rows = LeafRows(low[stop_level], high[stop_level], index, base, mask_from, mask_to, function_to)
                    if consumption is not None:
                        filled, chosen = join_consumptions(
                            tables, program, consumption, key, rows, lists, places, product, limbs, row_limit, stop
                        )
                        if filled < 0:  # given up, or capacity exceeded
                            return filled, chosen, (item, stop_level, steps, count, pruned)
                        before = count
                        if limbs is not None:
                            count = write_counts(key, lists, chosen, filled, limbs, output, count)
                        else:
                            room = slack[levels + 1] - reached[levels] if prunes else entries[0]
                            sums, worths = lists.amounts[chosen, :filled], lists.worths[chosen, :filled]
                            count = write_rows(
                                key, sums, worths, prunes, room, scale, consumption, out_keys, out_values, count
                            )
                        pruned += before + filled - count
                        made[0] += (count & ~SHARED_STEP) - (before & ~SHARED_STEP)
                        if count > row_limit or made[0] > row_limit:
                            return given_up, zero, (item, level, steps, count, pruned)
                        continue
                    if limbs is not None:
                        found = join_limbs(tables, leaf, rows, places, product, out_values, count * items)
                        total = out_values[count * items]
                    else:
                        found, total = join_values(tables, leaf, semiring, rows, places)
                    if found and prunes and reached[levels] + total * scale >= slack[levels + 1]:
                        found = False
                        pruned += 1
                    if found:
                        for w in range(words):
                            out_keys[w, count] = key[w]
                        out_values[count * items] = total
                        count += 1
                        if count & SHARED_STEP == 0:
                            made[0] += SHARED_STEP + 1
                        if count > row_limit or made[0] > row_limit:
                            return given_up, zero, (item, level, steps, count, pruned)
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
                        above = gather(key, lookups, segment_middle[f], segment_start[f + 1])
                        i = free_base[f] + (above >> own_bits[f])
                        if (free[i >> 6] >> U64(i & 63)) & U64(1) == U64(0):
                            index[filled] = above
                            active[filled] = f
                            filled += 1
                    active_to[level] = filled
                else:
                    for f in range(level_start[level], level_start[level + 1]):
                        index[f] = gather(key, lookups, segment_start[f], segment_start[f + 1])

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
                    i = index[a] | gather(key, lookups, segment_start[f], segment_middle[f])
                    if (bits[base[f] + (i >> 6)] >> U64(i & 63)) & U64(1) == U64(0):
                        permitted = False
                        break
            if permitted and prunes:
                reached[level + 1] = reached[level] + bound_part(key, bounds, level)
                least_sum[level + 1] = least_sum[level]
                for part in range(part_from, part_from + parts):
                    t = part_table[part]
                    if high[level + 1, t] - low[level + 1, t] <= SCANNED_ROWS:
                        begin = value_base[t]
                        smallest = least_value(priced, begin + low[level + 1, t], begin + high[level + 1, t])
                        least_sum[level + 1] += smallest - least[level, t]
                        least[level + 1, t] = smallest
                if reached[level + 1] + least_sum[level + 1] * price_scale >= slack[level + 1]:
                    permitted = False
                    pruned += 1
            if permitted:
                level += 1
                arriving = True

    return complete, zero, (start.last, level, steps, count, pruned)
