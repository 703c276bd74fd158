"""The leaf of a walk whose rows carry a consumption (:mod:`oocbe.bucket_engine.consumption`).

At a leaf of the walk (:mod:`oocbe.kernels.cpu.buckets.bucket_join`) each table's remaining rows differ in the
eliminated variable and, below it, in the packed consumption. For each value of the variable, one row is taken of every
table in every combination; consumptions are added, what exceeds the limit goes, and equal consumptions are reduced to
one value. Where better values and smaller consumption are all that counts, only the *staircase* is kept: a row stays if
no row that consumes at most as much is at least as good. With several constraints, rows are compared where they differ
in the first one only.

Rows of a table that belong together are sorted by consumption. So combining two lists is merging: a *run*, one list
shifted by a row of the other, for each row of the shorter one. Runs lie on a stack, and two of them are merged as soon
as the upper one is no shorter than half of the lower one, as in Timsort (Auger, Jugé, Nicaud, Pivoteau, *On the
Worst-Case Complexity of TimSort*, 2018). So m rows and n take m n log m steps at most, and where only the staircase
stays, or few consumptions differ, far fewer. Combining looks now and then whether to give up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.buckets.walk_steps import grown
from oocbe.kernels.cpu.jit import inline, jit
from oocbe.kernels.cpu.values import log_sum_exp

U64 = np.uint64

LISTS = 3
"""Lists of consumptions and values that are worked on at once: the stack of runs, one to merge two of them into, and
the combination of the tables so far."""

STACK, SPARE, JOINED = 0, 1, 2

DEEPEST = 128
"""Runs on the stack, at most: below the uppermost two, each is more than twice as long as the next, in two stacks."""

LOOK_UP_STEP = (1 << 16) - 1
"""Steps, less one, after which a merge looks whether to give up; ones in the low bits."""

LEAF_FACTOR, LEAST_LEAF_ROWS = 4, 1 << 20
"""A leaf may have so many times the rows that a message may have before it gives up, or so many if that is more: much
of it may still go, by limits, by the staircase, and by bounds."""

GIVEN_UP = -1


@inline
def _appended(
    amounts: Any, worths: Any, target: Any, begin: Any, filled: Any, amount: Any, worth: Any, rule: Any
) -> Any:
    """Add a row to a sorted list that begins at ``begin``, unless the last one outdoes it or takes it in; the new end.

    Rows come by consumption, of equal ones the better first: so the last row is the best of its group so far.
    """
    _, _, group_shift, keeps_staircase, _, marginalisation = rule
    last = filled - 1
    if filled > begin:
        if keeps_staircase:
            held = worths[target, last]
            is_worse = worth >= held if marginalisation == 0 else worth <= held
            if is_worse and amounts[target, last] >> group_shift == amount >> group_shift:
                return filled
        elif amounts[target, last] == amount:
            held = worths[target, last]
            if marginalisation == 0:
                held = min(held, worth)
            elif marginalisation == 1:
                held = max(held, worth)
            elif marginalisation == 2:
                held += worth
            else:
                held = worths.dtype.type(log_sum_exp(held, worth))
            worths[target, last] = held
            return filled
    amounts[target, filled] = amount
    worths[target, filled] = worth
    return filled + 1


@jit
def _push_rows(amounts: Any, worths: Any, begin: Any, run: Any, first: Any, rows: Any, add: Any, rule: Any) -> Any:
    """Put a table's rows, shifted by an amount and combined with a value, on the stack; the stack's new end.

    Parameters
    ----------
    amounts, worths : int64 and value dtype (lists, capacity), with room for the rows. begin : the stack's end.
    run : (keys, values, key_base, value_base, mask) of the table. first, rows : its rows. add : (amount, value).
    rule : (limit, guards, group_shift, keeps_staircase, combination, marginalisation); the limit with all guard bits.
    """
    keys, values, key_base, value_base, mask = run
    amount_added, value_added = add
    limit, guards, _, _, combination, _ = rule
    filled = begin
    for row in range(first, first + rows):
        amount = np.int64(keys[key_base + row] & mask) + amount_added
        if (limit - amount) & guards != guards:
            continue
        if combination == 0:
            worth = values[value_base + row] + value_added
        else:
            worth = values[value_base + row] * value_added
        filled = _appended(amounts, worths, STACK, begin, filled, amount, worth, rule)
    return filled


@jit
def _push_joined(amounts: Any, worths: Any, begin: Any, size: Any, add: Any, rule: Any) -> Any:
    """The combination of the tables so far, shifted likewise, put on the stack; the stack's new end."""
    amount_added, value_added = add
    limit, guards, _, _, combination, _ = rule
    filled = begin
    for row in range(size):
        amount = amounts[JOINED, row] + amount_added
        if (limit - amount) & guards != guards:
            continue
        worth = worths[JOINED, row] + value_added if combination == 0 else worths[JOINED, row] * value_added
        filled = _appended(amounts, worths, STACK, begin, filled, amount, worth, rule)
    return filled


@jit
def _merge(amounts: Any, worths: Any, low: Any, middle: Any, high: Any, rule: Any, stop: Any) -> Any:
    """Merge two neighbouring runs of the stack, which end at ``middle`` and ``high``, where they are; the new end.

    :data:`GIVEN_UP` where ``stop``, int64 (1,), is set to another value than 0.
    """
    marginalisation = rule[5]
    i, j, filled = low, middle, low
    while i < middle or j < high:
        if (i + j) & LOOK_UP_STEP == 0 and stop[0] != 0:
            return np.int64(GIVEN_UP)
        takes_lower = i < middle
        if takes_lower and j < high:
            if amounts[STACK, i] != amounts[STACK, j]:
                takes_lower = amounts[STACK, i] < amounts[STACK, j]
            elif marginalisation == 1:
                takes_lower = worths[STACK, i] >= worths[STACK, j]
            else:
                takes_lower = worths[STACK, i] <= worths[STACK, j]
        if takes_lower:
            amount, worth = amounts[STACK, i], worths[STACK, i]
            i += 1
        else:
            amount, worth = amounts[STACK, j], worths[STACK, j]
            j += 1
        filled = _appended(amounts, worths, SPARE, low, filled, amount, worth, rule)
    amounts[STACK, low:filled] = amounts[SPARE, low:filled]
    worths[STACK, low:filled] = worths[SPARE, low:filled]
    return filled


@jit
def _settle(
    amounts: Any, worths: Any, ends: Any, floor: Any, depth: Any, merges_all: Any, rule: Any, most: Any, stop: Any
) -> Any:
    """Merge the runs on the stack above ``floor`` while the upper one is no shorter than half of the one below it.

    Parameters
    ----------
    ends : int64 (runs + 1,), where each run of the stack begins, and where the last one ends. depth : runs there are.
    merges_all : merges all above the floor into one.
    most : rows that the stack may have.

    Returns
    -------
    The new depth; :data:`GIVEN_UP` where there are too many rows, or ``stop`` is set.
    """
    while depth - floor >= 2:
        low, middle, high = ends[depth - 2], ends[depth - 1], ends[depth]
        if not merges_all and 2 * (high - middle) < middle - low:
            break
        end = _merge(amounts, worths, low, middle, high, rule, stop)
        if end < 0:
            return np.int64(GIVEN_UP)
        depth -= 1
        ends[depth] = end
    if ends[depth] > most or stop[0] != 0:
        return np.int64(GIVEN_UP)
    return depth


@jit
def join_consumptions(
    tables: Any,
    here: Any,
    leaf: Any,
    consumption: Any,
    amounts: Any,
    worths: Any,
    ends: Any,
    row_limit: Any,
    stop: Any,
) -> Any:
    """All rows of one leaf: their number, and the lists (larger ones where they had to grow), of which the first has
    them.

    The number is negative where a limit was passed or ``stop`` set, and the leaf given up.

    Parameters
    ----------
    tables, leaf, consumption : as for :func:`oocbe.kernels.cpu.buckets.bucket_join.walk`.
    here : (low, high, index, base, mask_from, mask_to, function_to) — int64 (tables,), each table's rows at this leaf;
        the index of each mask and function; where the entries of each begin; where masks and functions are in both.
    amounts, worths : int64 and value dtype (:data:`LISTS`, capacity), overwritten.
    ends : int64 (:data:`DEEPEST` + 1,), where the runs on the stack end, 0 at the front; overwritten behind that. Made
        once by the caller, as there are millions of leaves.
    row_limit : of the message; a leaf may pass it by as much as :data:`LEAF_FACTOR` says.
    stop : int64 (1,), looked at now and then; another value than 0 makes the leaf give up.
    """
    keys, values, key_base, _, value_base, _, _, _ = tables
    low, high, index, base, mask_from, mask_to, function_to = here
    leaf_size, leaf_mask, mask_words, leaf_masks, leaf_values, combination, marginalisation, one = leaf
    bits, limit, guards, group_shift, keeps_staircase, own, unit_key, unit_value, _, _, _ = consumption
    rule = (limit, guards, group_shift, keeps_staircase, combination, marginalisation)
    count_tables = len(key_base)
    shift = U64(bits)
    amount_mask = (U64(1) << shift) - U64(1)
    most = max(np.int64(LEAST_LEAF_ROWS), LEAF_FACTOR * min(np.int64(row_limit), np.int64(1) << 59))
    # A variable that begins as a literal has two types while types are inferred, and functions that it is given to are
    # compiled for both: so these begin as integers.
    zero = np.int64(0)
    given_up = zero + GIVEN_UP
    depth = zero
    block = -1
    allowed = U64(0)
    pointer = low.copy()
    until = low.copy()
    x: Any = np.int64(-1)
    while True:
        x += 1
        if count_tables > 0:
            if pointer[0] == high[0]:
                break
            x = np.int64((keys[key_base[0] + pointer[0]] >> shift) & leaf_mask)
        elif x == leaf_size:
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
                for f in range(mask_from, mask_to):
                    allowed &= leaf_masks[base[f] + index[f] * mask_words + block]
            present = (allowed >> U64(x & 63)) & U64(1) != U64(0) and (limit - own[x]) & guards == guards
        if present:
            worth = one
            for f in range(mask_to, function_to):
                looked_up = leaf_values[base[f] + index[f] * leaf_size + x]
                if combination == 0:
                    worth += looked_up
                else:
                    worth *= looked_up
            size = zero + 1
            amounts[JOINED, 0] = own[x]
            worths[JOINED, 0] = worth
            for t in range(max(1, count_tables)):
                first, rows = zero, zero + 1
                run = (unit_key, unit_value, zero, zero, amount_mask)
                if count_tables > 0:
                    first, rows = pointer[t], until[t] - pointer[t]
                    run = (keys, values, key_base[t], value_base[t], amount_mask)
                # The last table's runs stay on the stack, with those of the values before.
                is_last = t + 1 >= count_tables
                floor = zero if is_last else depth
                longer = max(size, rows)
                for i in range(min(size, rows)):
                    begin = ends[depth]
                    if begin + longer > amounts.shape[1]:
                        capacity = 2 * (begin + longer)
                        amounts = grown(amounts, amounts.shape[1], capacity)
                        worths = grown(worths, worths.shape[1], capacity)
                    if size <= rows:
                        add = (amounts[JOINED, i], worths[JOINED, i])
                        filled = _push_rows(amounts, worths, begin, run, first, rows, add, rule)
                    else:
                        row = first + i
                        add = (np.int64(run[0][run[2] + row] & amount_mask), run[1][run[3] + row])
                        filled = _push_joined(amounts, worths, begin, size, add, rule)
                    if filled > begin:
                        depth += 1
                        ends[depth] = filled
                        depth = _settle(amounts, worths, ends, floor, depth, False, rule, most, stop)
                        if depth < 0:
                            return given_up, amounts, worths
                if not is_last:
                    depth = _settle(amounts, worths, ends, floor, depth, True, rule, most, stop)
                    if depth < 0:
                        return given_up, amounts, worths
                    size = zero
                    if depth > floor:
                        begin, filled = ends[floor], ends[depth]
                        size = filled - begin
                        amounts[JOINED, :size] = amounts[STACK, begin:filled]
                        worths[JOINED, :size] = worths[STACK, begin:filled]
                        depth = floor
        for t in range(count_tables):
            pointer[t] = until[t]
    depth = _settle(amounts, worths, ends, zero, depth, True, rule, most, stop)
    if depth < 0:
        return given_up, amounts, worths
    return ends[depth], amounts, worths


@jit
def write_rows(
    key: Any,
    amounts: Any,
    worths: Any,
    prunes: Any,
    room: Any,
    prices: Any,
    out_keys: Any,
    out_values: Any,
    count: Any,
) -> Any:
    """Append a leaf's rows to the output; returns the new number of rows there.

    Parameters
    ----------
    key : uint64 (words,), of the separator. amounts, worths : (rows,), packed consumptions, ascending, and values.
    prunes : whether rows are held against ``room``, which what they are worth must stay below.
    prices : (scale, shift, mask, price), what values and each constraint's consumption are multiplied by, and where
        that is in the packed consumption.
    out_keys, out_values, count : the output, with room for the rows, and how many it has.
    """
    scale, shift, mask, price = prices
    for row in range(len(amounts)):
        if prunes:
            worth = worths[row] * scale
            for part in range(len(price)):
                worth += price[part] * ((amounts[row] >> shift[part]) & mask[part])
            if worth >= room:
                continue
        for w in range(len(key)):
            out_keys[w, count] = key[w]
        out_keys[0, count] |= U64(amounts[row])
        out_values[count] = worths[row]
        count += 1
    return count
