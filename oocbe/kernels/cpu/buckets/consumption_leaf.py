"""The leaf of a walk whose rows carry a consumption (:mod:`oocbe.elimination.engine.consumption`).

At a leaf of the walk (:mod:`oocbe.kernels.cpu.buckets.bucket_join`) each table's remaining rows differ in the
eliminated variable and, below it, in the packed consumption. For each value of the variable, all combinations of one
row per table are formed: consumptions are added, combinations beyond the limit are dropped, and equal consumptions are
reduced to one value. If only better values and smaller consumption matter, the *staircase* (Pareto front) is kept: a
row is dropped if another row consumes at most as much and is at least as good. With several constraints, only rows that
differ in the first one's consumption are compared.

A table's rows of one value are sorted by consumption, so lists are combined by merging
(:mod:`oocbe.kernels.cpu.buckets.consumption_runs`). Most leaves have one or two rows, so the fixed cost of a leaf
dominates: :func:`join_consumptions` is inlined, without a call that would pass all arrays on the stack.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.buckets.consumption_runs import (
    GIVEN_UP,
    JOINED,
    NO_ROOM,
    SHORT_RUN,
    SPARE,
    STACK,
    merge_short,
    moved_to_stack,
    push,
    settle,
)
from oocbe.kernels.cpu.buckets.join_arrays import (
    ConsumptionArrays,
    Frontier,
    LeafArrays,
    LeafOutput,
    LeafPruning,
    LeafRule,
    LeafScratch,
    LookupArrays,
    SemiringCodes,
    TableArrays,
    WalkLists,
)
from oocbe.kernels.cpu.buckets.limb_leaf import combine_counts, merge_counts, write_counts
from oocbe.kernels.cpu.buckets.walk_steps import rows_of_leaf
from oocbe.kernels.cpu.jit import borrowing, inline

U64 = np.uint64

LEAF_FACTOR, LEAST_LEAF_ROWS = 4, 1 << 20
"""Maximum rows of a leaf: the first number times those of a message, or the second number if that is more. Limits, the
Pareto front and bounds may still remove many of them."""


@inline
def join_consumptions(
    tables: Any,
    leaf: Any,
    semiring: Any,
    consumption: Any,
    key: Any,
    here: Any,
    lists: Any,
    places: Any,
    product: Any,
    limbs: Any,
    row_limit: Any,
    stop: Any,
) -> Any:
    """All rows of one leaf: (their number, index of their list).

    Instead of a number, ``GIVEN_UP`` if a limit was exceeded or ``stop`` is set, or (``NO_ROOM``, rows) if the lists
    need this capacity and the leaf must be joined again.

    tables, leaf, semiring, consumption, here : ``TableArrays``, ``LeafArrays``, ``SemiringCodes``,
        ``ConsumptionArrays`` and ``LeafRows``, of :mod:`oocbe.kernels.cpu.buckets.join_arrays`.
    key : uint64 (words,), of the separator.
    lists : ``WalkLists``, overwritten: :data:`~oocbe.kernels.cpu.buckets.consumption_runs.LISTS` lists, and at most
        :data:`~oocbe.kernels.cpu.buckets.consumption_runs.DEEPEST` runs; ``run_ends[0]`` is 0.
    places : int64 (2, tables), overwritten. product, limbs : of counts, as for
        :mod:`oocbe.kernels.cpu.buckets.limb_leaf`; ``limbs`` is None for plain numbers.
    row_limit : of the message; a leaf may exceed it by :data:`LEAF_FACTOR`.
    stop : int64 (1,), read periodically; a nonzero value makes the leaf give up.
    """
    amounts, worths, ends = lists.amounts, lists.worths, lists.run_ends
    keys, values, key_base, value_base = tables.keys, tables.values, tables.key_base, tables.value_base
    low, high, index, base = here.low, here.high, here.indices, here.base
    leaf_mask, leaf_masks, leaf_values = leaf.mask, leaf.masks, leaf.values
    combination = semiring.combination
    guards, own = consumption.guards, consumption.own
    limit: Any = np.int64(consumption.limit)
    has_room = True
    for group in range(len(consumption.ahead_base)):
        field = (key[consumption.ahead_word[group]] >> consumption.ahead_shift[group]) & consumption.ahead_mask[group]
        taken = consumption.ahead[consumption.ahead_base[group] + np.int64(field)]
        has_room &= (limit - taken) & guards == guards
        if has_room:
            limit -= taken
    rule = LeafRule(
        limit, guards, consumption.group_shift, consumption.keeps_staircase, combination, semiring.marginalisation
    )
    count_tables = len(key_base)
    run_keys, run_values = keys, values
    if count_tables == 0:  # one row without consumption
        run_keys, run_values = consumption.unit_key, consumption.unit_value
    shift = U64(consumption.bits)
    amount_mask = (U64(1) << shift) - U64(1)
    most = max(np.int64(LEAST_LEAF_ROWS), LEAF_FACTOR * min(np.int64(row_limit), np.int64(1) << 59))
    # A variable initialised with a literal gets two types during inference, and functions called with it are compiled
    # for both: so these are integers.
    zero = np.int64(0)
    given_up, no_room, stack = zero + GIVEN_UP, zero + NO_ROOM, zero + STACK
    side: Any = stack
    depth = zero
    total, total_list, free_list = zero, zero + STACK, zero + SPARE  # of counts
    block = -1
    allowed = U64(0)
    pointer, until = places[0], places[1]
    for t in range(count_tables):
        pointer[t] = low[t]
    x: Any = np.int64(-1)
    while has_room:
        x += 1
        if count_tables > 0:
            if pointer[0] == high[0]:
                break
            x = np.int64((keys[key_base[0] + pointer[0]] >> shift) & leaf_mask)
        elif x == leaf.size:
            break
        present = True
        for t in range(count_tables):
            p, end, offset = pointer[t], high[t], key_base[t]
            while p < end and np.int64((keys[offset + p] >> shift) & leaf_mask) < x:
                p += 1
            q = p
            while q < end and np.int64((keys[offset + q] >> shift) & leaf_mask) == x:
                q += 1
            pointer[t] = p
            until[t] = q
            if p == q:
                present = False
        if present:
            if x >> 6 != block:
                block = x >> 6
                allowed = ~U64(0)
                for f in range(here.mask_from, here.mask_to):
                    allowed &= leaf_masks[base[f] + index[f] * leaf.mask_words + block]
            present = (allowed >> U64(x & 63)) & U64(1) != U64(0) and (limit - own[x]) & guards == guards
        if limbs is not None:
            if present:
                source_list, target = 3 - total_list - free_list, free_list
                amounts[source_list, 0] = own[x]
                worths[source_list, 0] = 1
                for i in range(1, limbs):
                    worths[source_list, i] = 0
                size = zero + 1
                counted = (limit, guards, amount_mask, most, product)
                for t in range(count_tables):
                    rows = until[t] - pointer[t]
                    size = combine_counts(lists, source_list, size, target, tables, t, pointer[t], rows, counted, stop)
                    if size < 0:
                        return size, amounts.shape[1] + 1
                    source_list, target = target, source_list
                total = merge_counts(lists, total_list, total, source_list, size, target, product)
                if total < 0:
                    return total, amounts.shape[1] + 1
                total_list, free_list = target, total_list
        elif present:
            worth = semiring.one
            for f in range(here.mask_to, here.function_to):
                looked_up = leaf_values[base[f] + index[f] * leaf.size + x]
                if combination == 0:
                    worth += looked_up
                else:
                    worth *= looked_up
            size = zero + 1
            amounts[JOINED, 0] = own[x]
            worths[JOINED, 0] = worth
            for t in range(max(1, count_tables)):
                first_key, first_value, rows = zero, zero, zero + 1
                if count_tables > 0:
                    first_key, first_value = key_base[t] + pointer[t], value_base[t] + pointer[t]
                    rows = until[t] - pointer[t]
                is_last = t + 1 >= count_tables
                if t == 0 and not is_last:
                    if rows > amounts.shape[1]:
                        return no_room, rows
                    add = (amounts[JOINED, 0], worths[JOINED, 0])
                    source: Any = (True, first_key, first_value, rows, amount_mask)
                    size = push(amounts, worths, JOINED, zero, run_keys, run_values, source, add, rule)
                    continue
                # The last table's runs stay on the stack, with those of earlier values.
                floor = zero
                if not is_last:
                    floor = depth
                    if depth > 0:
                        moved_to_stack(amounts, worths, side, ends[depth - 1], ends[depth])
                    side = stack
                longer = max(size, rows)
                for i in range(min(size, rows)):
                    begin = ends[depth]
                    if begin + longer > amounts.shape[1]:
                        return no_room, begin + longer
                    source = (size <= rows, first_key, first_value, longer, amount_mask)
                    if size <= rows:
                        add = (amounts[JOINED, i], worths[JOINED, i])
                    else:
                        amount = np.int64(run_keys[first_key + i] & amount_mask)
                        add = (amount, run_values[first_value + i])
                    if depth > floor and begin - ends[depth - 1] <= SHORT_RUN:
                        top = ends[depth - 1]
                        ends[depth] = merge_short(
                            amounts, worths, side, top, begin, run_keys, run_values, source, add, rule
                        )
                        side = SPARE - side
                    else:
                        if depth > floor:
                            moved_to_stack(amounts, worths, side, ends[depth - 1], begin)
                        side = stack
                        filled = push(amounts, worths, STACK, begin, run_keys, run_values, source, add, rule)
                        if filled > begin:
                            depth += 1
                            ends[depth] = filled
                    if depth - floor > 1 or ends[depth] > most or stop[0] != 0:
                        moved_to_stack(amounts, worths, side, ends[depth - 1], ends[depth])
                        side = stack
                        depth = settle(amounts, worths, ends, floor, depth, False, rule, most, stop)
                        if depth < 0:
                            return given_up, side
                if not is_last:
                    if depth - floor > 1:
                        depth = settle(amounts, worths, ends, floor, depth, True, rule, most, stop)
                        if depth < 0:
                            return given_up, side
                    size = zero
                    if depth > floor:
                        begin = ends[floor]
                        size = ends[depth] - begin
                        for place in range(size):
                            amounts[JOINED, place] = amounts[side, begin + place]
                            worths[JOINED, place] = worths[side, begin + place]
                        depth = floor
                    side = stack
        for t in range(count_tables):
            pointer[t] = until[t]
    if limbs is not None:
        return total, total_list
    if depth > 1:
        moved_to_stack(amounts, worths, side, ends[depth - 1], ends[depth])
        side = stack
        depth = settle(amounts, worths, ends, zero, depth, True, rule, most, stop)
        if depth < 0:
            return given_up, side
    return ends[depth], side


@inline
def write_rows(
    key: Any, amounts: Any, worths: Any, pruning: Any, reached: Any, consumption: Any, output: Any, count: Any
) -> Any:
    """Append a leaf's rows to the output; returns the new number of output rows.

    key : uint64 (words,), of the separator. amounts, worths : (rows,), packed consumptions, ascending, and values.
    pruning, reached : ``LeafPruning``, and the bound of the leaf. consumption : its prices are added.
    output, count : ``LeafOutput``, with sufficient capacity, and its number of rows.
    """
    shift, mask, price = consumption.shift, consumption.mask, consumption.price
    for row in range(len(amounts)):
        if pruning.prunes:
            worth = worths[row] * pruning.scale
            for part in range(len(price)):
                worth += price[part] * ((amounts[row] >> shift[part]) & mask[part])
            if worth >= pruning.slack - reached:
                continue
        for w in range(len(key)):
            output.keys[w, count] = key[w]
        output.keys[0, count] |= U64(amounts[row])
        output.values[count] = worths[row]
        count += 1
    return count


@borrowing
def join_consumption_leaves(
    tables: Any,
    lookups: Any,
    leaf: Any,
    semiring: Any,
    limbs: Any,
    consumption: Any,
    pruning: Any,
    row_limit: Any,
    stop: Any,
    leaves: Any,
    first: Any,
    filled: Any,
    lists: Any,
    scratch: Any,
    output: Any,
) -> Any:
    """Rows of leaves ``first`` to ``filled - 1``: (end code, next leaf, rows of output, capacity of lists needed).

    The end code is 0 if all leaves are joined, or ``NO_ROOM``, with rows of output that are to be taken first, or
    ``GIVEN_UP``. Other arguments as for :func:`oocbe.kernels.cpu.buckets.bucket_join.join_value_leaves` and
    :func:`join_consumptions`; the capacity of the output is at least that of the lists.

    limbs : of the semiring, as an argument: for None, Numba removes the code for limbs.
    """
    table_arrays, lookup, values = TableArrays(*tables), LookupArrays(*lookups), LeafArrays(*leaf)
    codes, carried, bound = SemiringCodes(*semiring), ConsumptionArrays(*consumption), LeafPruning(*pruning)
    here = Frontier(*leaves)
    room, work, rows = WalkLists(*lists), LeafScratch(*scratch), LeafOutput(*output)
    capacity, most = rows.keys.shape[1], room.amounts.shape[1]
    count = np.int64(0)
    for i in range(first, filled):
        if count + most > capacity:
            return np.int64(NO_ROOM), i, count, most
        key = here.keys[i]
        one = rows_of_leaf(lookup, here, i, work.indices)
        made, chosen = join_consumptions(
            table_arrays, values, codes, carried, key, one, room, work.places, work.product, limbs, row_limit, stop
        )
        if made < 0:
            return made, i, count, chosen
        if limbs is not None:
            count = write_counts(key, room, chosen, made, limbs, rows, count)
        else:
            amounts, worths = room.amounts[chosen, :made], room.worths[chosen, :made]
            count = write_rows(key, amounts, worths, bound, here.reached[i], carried, rows, count)
    return np.int64(0), filled, count, most
