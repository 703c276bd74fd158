"""Join all tables and lookups of a bucket and eliminate its variable, in one pass and without a sort.

The inputs are *tries in disguise*: every table is sorted by key, and all tables order their variables alike (by
elimination position, the eliminated variable in the least significant bits). So the rows that share a prefix are
neighbours, and the join can walk down from the most significant variable, narrowing one row range a table at each
step, as worst-case optimal join algorithms do (Veldhuizen, *Leapfrog Triejoin*, ICDT 2014; Abo Khamis, Ngo, Rudra,
*FAQ: Questions Asked Frequently*, PODS 2016, for the elimination on top). Output rows come out in ascending order.

Neighbouring variables in which the same tables take part form a *run* and are taken in one step. A run in which no
table takes part enumerates the values of its one variable. After each step the hard constraints whose last variable
lies in that run are looked up in bit sets, so that a prefix that violates one is never extended. What a lookup needs of
the runs above is gathered once, on arrival: an enumerating run then knows all permitted values, and constraints that
permit everything below (in SPOT5: of a photograph left out) are not looked at until the walk returns. At its end (a
*leaf*: one assignment of the separator) the remaining rows differ in the eliminated variable only; they are combined
with the functions of the bucket, looked up in dense arrays, and reduced to one value.

With a bound on what each prefix of a key costs at least (:mod:`oocbe.bucket_engine.row_pruning`), it goes as soon as no
completion can be below a threshold: what tables say of the variables so far, their least values for the rest, and the
least value among the rows of each table that agree with it. A row is judged once more by its own value when written.

Where rows carry what they consume of linear constraints (:mod:`oocbe.bucket_engine.consumption`), that is the lowest
field of every key, a leaf has several rows (:mod:`oocbe.kernels.cpu.buckets.consumption_leaf`), and bounds count a
*price* for what a row consumes. Flat arrays for all of it (:mod:`oocbe.kernels.cpu.buckets.join_arrays`) come from
:mod:`oocbe.bucket_engine.join_program`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.buckets.consumption_leaf import join_consumptions, write_rows
from oocbe.kernels.cpu.buckets.consumption_runs import DEEPEST, LISTS
from oocbe.kernels.cpu.buckets.join_arrays import LeafRows
from oocbe.kernels.cpu.buckets.trie_search import group_end, seek
from oocbe.kernels.cpu.buckets.walk_steps import bound_part, gather, grown, least_value
from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.values import log_sum_exp

U64 = np.uint64

SCANNED_ROWS = 8
"""Rows of a table whose least value is found by reading them; longer ranges keep the bound of the range around them."""

SHARED_STEP = 4095
"""Rows, less one, after which a walk adds to the count that all walks of a bucket share; ones in the low bits."""

LOOK_UP_STEP = (1 << 14) - 1
"""Steps, less one, after which a walk that makes no rows looks whether to give up; ones in the low bits."""


@jit
def walk(tables: Any, program: Any, start: Any, row_limit: Any, step_limit: Any, shared: Any) -> Any:
    """Walk the tries from given items down to a level.

    Returns the fields of :class:`oocbe.kernels.cpu.buckets.walk_steps.Walk`.

    Parameters
    ----------
    tables, program, start, shared : ``TableArrays``, ``JoinProgram``, ``WalkStart`` and ``SharedCounts`` of
        :mod:`oocbe.kernels.cpu.buckets.join_arrays`.
    row_limit : give up beyond this many rows, or partial walks. step_limit : give up beyond about this many steps, each
        of which takes up or leaves one field of a key: with a bound, many may lead to few rows.
    """
    keys, values, key_base, value_base = tables.keys, tables.values, tables.key_base, tables.value_base
    table_rows, table_least, priced, price_scale = tables.rows, tables.least, tables.priced, tables.price_scale
    runs, lookups, leaf, bounds = program.runs, program.lookups, program.leaf, program.bounds
    semiring, consumption = program.semiring, program.consumption
    run_word, run_shift, run_mask, run_size = runs.word, runs.shift, runs.mask, runs.size
    part_start, part_table, part_word, part_shift = runs.part_start, runs.part_table, runs.part_word, runs.part_shift
    level_start, segment_start, segment_middle = lookups.level_start, lookups.segment_start, lookups.segment_middle
    base, bits, own_bits = lookups.base, lookups.bits, lookups.own_bits
    free, free_base = lookups.free, lookups.free_base
    leaf_size, leaf_mask, leaf_masks, leaf_values = leaf.size, leaf.mask, leaf.masks, leaf.values
    combination, marginalisation = semiring.combination, semiring.marginalisation
    entries, slack, scale = bounds.entries, bounds.slack, bounds.scale
    item_keys, item_low, item_high, first, last = start.keys, start.low, start.high, start.first, start.last
    start_level, stop_level = start.level, start.stop_level
    made, stop = shared.made, shared.stop
    prunes = len(slack) > 0
    consumes = consumption.bits > 0
    amounts = np.empty((LISTS, 64 if consumes else 1), dtype=np.int64)
    worths = np.empty(amounts.shape, dtype=values.dtype)
    run_ends = np.zeros(DEEPEST + 1, dtype=np.int64)

    words = item_keys.shape[0]
    count_tables = len(key_base)
    levels = len(run_word)
    at_leaves = stop_level == levels
    mask_from, mask_to = level_start[levels], level_start[levels + 1]
    function_from, function_to = level_start[levels + 1], level_start[levels + 2]

    key = np.zeros(words, dtype=np.uint64)
    low = np.zeros((levels + 1, count_tables), dtype=np.int64)
    high = np.zeros((levels + 1, count_tables), dtype=np.int64)
    position = np.zeros((levels + 1, count_tables + 1), dtype=np.int64)
    pointer = np.zeros(count_tables, dtype=np.int64)
    index = np.zeros(max(1, level_start[levels + 2]), dtype=np.int64)
    active = np.zeros(max(1, level_start[levels + 2]), dtype=np.int64)
    active_to = np.zeros(levels + 1, dtype=np.int64)
    permitted_values = np.zeros(levels + 1, dtype=np.uint64)
    reached = np.zeros(levels + 1, dtype=entries.dtype)
    least = np.zeros((levels + 1, count_tables), dtype=entries.dtype)
    least_sum = np.zeros(levels + 1, dtype=entries.dtype)

    capacity = max(64, (last - first) * 2)
    out_keys = np.empty((words, capacity), dtype=np.uint64)
    out_values = np.empty(capacity if at_leaves else 0, dtype=values.dtype)
    out_low = np.empty((count_tables, 0 if at_leaves else capacity), dtype=np.int64)
    out_high = np.empty((count_tables, 0 if at_leaves else capacity), dtype=np.int64)
    count = np.int64(0)  # not a literal, which would be a second type for what it is given to
    pruned = steps = 0

    for item in range(first, last):
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
                    return out_keys, out_values, out_low, out_high, count, False, pruned
            if arriving:
                arriving = False
                if level == stop_level:
                    level -= 1
                    if count == capacity:
                        capacity *= 2
                        out_keys = grown(out_keys, count, capacity)
                        if at_leaves:
                            out_values = grown(out_values.reshape(1, -1), count, capacity)[0]
                        else:
                            out_low = grown(out_low, count, capacity)
                            out_high = grown(out_high, count, capacity)
                    if not at_leaves:
                        for t in range(count_tables):
                            out_low[t, count] = low[stop_level, t]
                            out_high[t, count] = high[stop_level, t]
                        for w in range(words):
                            out_keys[w, count] = key[w]
                        count += 1
                        if count > row_limit:
                            return out_keys, out_values, out_low, out_high, count, False, pruned
                        continue

                    for f in range(mask_from, function_to):
                        index[f] = gather(key, lookups, segment_start[f], segment_start[f + 1])
                    if consumes:
                        rows = LeafRows(low[stop_level], high[stop_level], index, base, mask_from, mask_to, function_to)
                        limits = (amounts, worths, run_ends, row_limit, stop)
                        from_leaf = join_consumptions(tables, leaf, semiring, consumption, rows, *limits)
                        filled, chosen, amounts, worths = from_leaf
                        if filled < 0:
                            return out_keys, out_values, out_low, out_high, count, False, pruned
                        if count + filled > capacity:
                            capacity = 2 * (count + filled)
                            out_keys = grown(out_keys, count, capacity)
                            out_values = grown(out_values.reshape(1, -1), count, capacity)[0]
                        before = count
                        room = slack[levels + 1] - reached[levels] if prunes else entries[0]
                        written = (amounts[chosen, :filled], worths[chosen, :filled])
                        holds = (prunes, room, scale, consumption)
                        count = write_rows(key, *written, *holds, out_keys, out_values, count)
                        pruned += before + filled - count
                        made[0] += (count & ~SHARED_STEP) - (before & ~SHARED_STEP)
                        if count > row_limit or made[0] > row_limit:
                            return out_keys, out_values, out_low, out_high, count, False, pruned
                        continue
                    block = -1
                    allowed = U64(0)
                    found = False
                    total = values[0]
                    candidates = leaf_size
                    first_row = 0
                    if count_tables > 0:
                        first_row = low[stop_level, 0]
                        candidates = high[stop_level, 0] - first_row
                        for t in range(1, count_tables):
                            pointer[t] = low[stop_level, t]
                    for candidate in range(candidates):
                        x: Any = np.int64(candidate)
                        if count_tables > 0:
                            x = np.int64(keys[key_base[0] + first_row + candidate] & leaf_mask)
                        if x >> 6 != block:
                            block = x >> 6
                            allowed = ~U64(0)
                            for f in range(mask_from, mask_to):
                                allowed &= leaf_masks[base[f] + index[f] * leaf.mask_words + block]
                        if (allowed >> U64(x & 63)) & U64(1) == U64(0):
                            continue
                        value = semiring.one
                        present = True
                        if count_tables > 0:
                            value = values[value_base[0] + first_row + candidate]
                            for t in range(1, count_tables):
                                p = pointer[t]
                                end = high[stop_level, t]
                                offset = key_base[t]
                                while p < end and np.int64(keys[offset + p] & leaf_mask) < x:
                                    p += 1
                                pointer[t] = p
                                if p == end or np.int64(keys[offset + p] & leaf_mask) != x:
                                    present = False
                                    break
                                if combination == 0:
                                    value += values[value_base[t] + p]
                                else:
                                    value *= values[value_base[t] + p]
                        if not present:
                            continue
                        for f in range(function_from, function_to):
                            looked_up = leaf_values[base[f] + index[f] * leaf_size + x]
                            if combination == 0:
                                value += looked_up
                            else:
                                value *= looked_up
                        if not found:
                            total = value
                            found = True
                        elif marginalisation == 0:
                            total = min(total, value)
                        elif marginalisation == 1:
                            total = max(total, value)
                        elif marginalisation == 2:
                            total += value
                        else:
                            # In the dtype of the values: a float here would make all totals floats, integers too.
                            total = values.dtype.type(log_sum_exp(total, value))
                    if found and prunes and reached[levels] + total * scale >= slack[levels + 1]:
                        found = False
                        pruned += 1
                    if found:
                        for w in range(words):
                            out_keys[w, count] = key[w]
                        out_values[count] = total
                        count += 1
                        if count & SHARED_STEP == 0:
                            made[0] += SHARED_STEP + 1
                        if count > row_limit or made[0] > row_limit:
                            return out_keys, out_values, out_low, out_high, count, False, pruned
                    continue

                for t in range(count_tables):
                    low[level + 1, t] = low[level, t]
                    high[level + 1, t] = high[level, t]
                    position[level, t] = low[level, t]
                    least[level + 1, t] = least[level, t]
                position[level, count_tables] = -1
                if part_start[level + 1] > part_start[level]:
                    # Gather what the constraints of this level need from above; keep those that may forbid something.
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

    return out_keys, out_values, out_low, out_high, count, True, pruned
