"""The leaf of a walk whose rows carry a consumption (:mod:`oocbe.operators.consumption`).

At a leaf of the walk (:mod:`oocbe.kernels.cpu.bucket_join`) each table's remaining rows differ in the eliminated
variable and, below it, in the packed consumption. For each value of the variable, one row is taken of every table in
every combination; consumptions are added, what exceeds the limit goes, and equal consumptions are reduced to one value.
Where better values and smaller consumption are all that counts, only the *staircase* is kept: a row stays if no row
that consumes at most as much is at least as good. With several constraints, rows are compared where they differ in the
first one only.

Rows of a table that belong together are sorted by consumption. So combining is merging: the list so far, once for each
row of one table, is merged with the other's rows shifted by that row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.walk_steps import grown

U64 = np.uint64

LISTS = 5
"""Lists of consumptions and values that are worked on at once: the result and one to merge it into, the combination of
the tables so far, and two for that with the next one."""


@jit
def _merge(
    amounts: Any,
    worths: Any,
    source: Any,
    count: Any,
    target: Any,
    run: Any,
    first: Any,
    rows: Any,
    add: Any,
    rule: Any,
) -> Any:
    """Merge a list with a table's rows, each shifted by an amount and combined with a value; length of the result.

    Parameters
    ----------
    amounts, worths : int64 and value dtype (lists, capacity). source, count : the list and its length.
    target : another list, overwritten, with room for the sum of both lengths.
    run : (keys, values, key_base, value_base, mask) of a table. first, rows : its rows.
    add : (amount, value) for all of these rows.
    rule : (limit, guards, group_shift, keeps_staircase, combination, marginalisation); the limit with all guard bits.
    """
    keys, values, key_base, value_base, mask = run
    amount_added, value_added = add
    limit, guards, group_shift, keeps_staircase, combination, marginalisation = rule
    i, j, filled = 0, first, 0
    end = first + rows
    group = np.int64(-1)
    best = worths[target, 0]
    while True:
        amount = np.int64(0)
        worth = value_added
        while j < end:
            amount = np.int64(keys[key_base + j] & mask) + amount_added
            if (limit - amount) & guards == guards:
                break
            j += 1
        if j < end:
            if combination == 0:
                worth = values[value_base + j] + value_added
            else:
                worth = values[value_base + j] * value_added
        takes_list = i < count
        if takes_list and j < end:
            if amounts[source, i] != amount:
                takes_list = amounts[source, i] < amount
            elif marginalisation == 1:
                takes_list = worths[source, i] >= worth
            else:
                takes_list = worths[source, i] <= worth
        if takes_list:
            amount = amounts[source, i]
            worth = worths[source, i]
            i += 1
        elif j < end:
            j += 1
        else:
            break
        if keeps_staircase:
            is_worse = worth >= best if marginalisation == 0 else worth <= best
            if is_worse and amount >> group_shift == group:
                continue
            group = amount >> group_shift
            best = worth
        elif filled > 0 and amounts[target, filled - 1] == amount:
            held = worths[target, filled - 1]
            if marginalisation == 0:
                held = min(held, worth)
            elif marginalisation == 1:
                held = max(held, worth)
            elif marginalisation == 2:
                held += worth
            else:
                held = worths.dtype.type(max(held, worth) + np.log1p(np.exp(-np.float64(abs(held - worth)))))
            worths[target, filled - 1] = held
            continue
        amounts[target, filled] = amount
        worths[target, filled] = worth
        filled += 1
    return filled


@jit
def join_consumptions(tables: Any, here: Any, leaf: Any, consumption: Any, amounts: Any, worths: Any) -> Any:
    """All rows of one leaf: the list that holds them, their number, and the lists (larger ones where they had to grow).

    Parameters
    ----------
    tables, leaf, consumption : as for :func:`oocbe.kernels.cpu.bucket_join.walk`.
    here : (low, high, index, base, mask_from, mask_to, function_to) — int64 (tables,), each table's rows at this leaf;
        the index of each mask and function; where the entries of each begin; where masks and functions are in both.
    amounts, worths : int64 and value dtype (:data:`LISTS`, capacity), overwritten.
    """
    keys, values, key_base, _, value_base, _, _, _ = tables
    low, high, index, base, mask_from, mask_to, function_to = here
    leaf_size, leaf_mask, mask_words, leaf_masks, leaf_values, combination, marginalisation, one = leaf
    bits, limit, guards, group_shift, keeps_staircase, own, unit_key, unit_value, _, _, _ = consumption
    rule = (limit, guards, group_shift, keeps_staircase, combination, marginalisation)
    count_tables = len(key_base)
    shift = U64(bits)
    amount_mask = (U64(1) << shift) - U64(1)
    # A variable that begins as a literal has two types while types are inferred, and functions that it is given to are
    # compiled for both: so these begin as integers.
    zero = np.int64(0)
    result, spare, joined, fresh, other = zero, zero + 1, zero + 2, zero + 3, zero + 4
    filled = zero
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
            amounts[joined, 0] = own[x]
            worths[joined, 0] = worth
            for t in range(max(1, count_tables)):
                is_last = t + 1 >= count_tables
                first, rows = np.int64(0), np.int64(1)
                run = (unit_key, unit_value, np.int64(0), np.int64(0), amount_mask)
                if count_tables > 0:
                    first, rows = pointer[t], until[t] - pointer[t]
                    run = (keys, values, key_base[t], value_base[t], amount_mask)
                made = filled if is_last else zero
                for i in range(size):
                    if made + rows > amounts.shape[1]:
                        longer = 2 * (made + rows)
                        amounts = grown(amounts, amounts.shape[1], longer)
                        worths = grown(worths, worths.shape[1], longer)
                    add = (amounts[joined, i], worths[joined, i])
                    if is_last:
                        made = _merge(amounts, worths, result, made, spare, run, first, rows, add, rule)
                        result, spare = spare, result
                    else:
                        made = _merge(amounts, worths, fresh, made, other, run, first, rows, add, rule)
                        fresh, other = other, fresh
                if is_last:
                    filled = made
                else:
                    joined, fresh = fresh, joined
                    size = made
        for t in range(count_tables):
            pointer[t] = until[t]
    return result, filled, amounts, worths


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
