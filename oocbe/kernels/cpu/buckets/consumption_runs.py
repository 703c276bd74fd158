"""Runs of rows sorted by consumption, merged pairwise (:mod:`oocbe.kernels.cpu.buckets.consumption_leaf`).

A table's rows of one value are sorted by consumption, so the combination of two lists is a merge of *runs*: one list
shifted by a row of the other, for each row of the shorter one. Runs are kept on a stack, and two are merged as soon as
the upper one is at least half as long as the lower one, as in Timsort (Auger, Jugé, Nicaud, Pivoteau, *On the
Worst-Case Complexity of TimSort*, 2018). So lists of m and n rows take at most m n log m steps, and far fewer if only
the staircase is kept or few consumptions differ. While the top run is short, rows are merged into it directly. Merges
read the stop flag periodically.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import inline, without_allocation
from oocbe.kernels.cpu.values import log_sum_exp

LISTS = 3
"""Number of working lists of consumptions and values."""

STACK, SPARE, JOINED = 0, 1, 2
"""The list of runs; the list to merge into; the combination of the tables so far. The top run may also be in the spare
list, at its place on the stack."""

DEEPEST = 128
"""Maximum number of runs on the stack: below the top two, each has over twice the next one's length, in two stacks."""

SHORT_RUN = 64
"""Maximum length of a top run into which rows are merged directly."""

LOOK_UP_STEP = (1 << 16) - 1
"""Mask of the step number: a merge reads the stop flag every 65,536 steps."""

GIVEN_UP, NO_ROOM = -1, -2
"""Codes in place of a number of rows or runs: too many rows, or stopped; list capacity exceeded."""


@inline
def _appended(
    amounts: Any, worths: Any, target: Any, begin: Any, filled: Any, amount: Any, worth: Any, rule: Any
) -> Any:
    """Append a row to a sorted list from ``begin``, unless the last row dominates or absorbs it; returns the new end.

    Rows arrive by consumption, the better first on ties: so the last row is the best of its group so far.
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


@inline
def shifted(amounts: Any, worths: Any, keys: Any, values: Any, source: Any, row: Any, add: Any, rule: Any) -> Any:
    """Combination of a row of one list with a row of the other: (whether it is within the limit, consumption, value).

    keys, values : of all tables.
    source : (from_table, first_key, first_value, rows, mask): whether rows are a table's, otherwise of the combination
        of the tables so far; start of the table's rows; their number; consumption bits of a key.
    add : (amount, value) of the other list's row.
    rule : (limit, guards, group_shift, keeps_staircase, combination, marginalisation); the limit with all guard bits.
    """
    from_table, first_key, first_value, _, mask = source
    limit, guards, _, _, combination, _ = rule
    amount, worth = add
    if from_table:
        amount += np.int64(keys[first_key + row] & mask)
        other = values[first_value + row]
    else:
        amount += amounts[JOINED, row]
        other = worths[JOINED, row]
    if combination == 0:
        worth += other
    else:
        worth *= other
    return (limit - amount) & guards == guards, amount, worth


@without_allocation
def push(
    amounts: Any, worths: Any, target: Any, begin: Any, keys: Any, values: Any, source: Any, add: Any, rule: Any
) -> Any:
    """Write a list, shifted by a row of the other one, behind ``begin`` in another list; returns the new end.

    amounts, worths : int64 and value dtype (lists, capacity), with sufficient capacity. target, begin : destination.
    keys, values, source, add, rule : as for :func:`shifted`.
    """
    filled = begin
    for row in range(source[3]):
        fits, amount, worth = shifted(amounts, worths, keys, values, source, row, add, rule)
        if fits:
            filled = _appended(amounts, worths, target, begin, filled, amount, worth, rule)
    return filled


@without_allocation
def merge_short(
    amounts: Any,
    worths: Any,
    side: Any,
    low: Any,
    middle: Any,
    keys: Any,
    values: Any,
    source: Any,
    add: Any,
    rule: Any,
) -> Any:
    """Merge a list, shifted by a row of the other one, with the top run, which begins at ``low``; returns the new end.

    The run is in list ``side`` (stack or spare); the result is written to the other one, which saves a copy.
    """
    _, _, group_shift, keeps_staircase, _, marginalisation = rule
    target = SPARE - side
    rows = source[3]
    i, j, filled = low, low - low, low
    group = np.int64(-1)
    best = add[1]
    while True:
        amount, worth = add
        while j < rows:
            fits, amount, worth = shifted(amounts, worths, keys, values, source, j, add, rule)
            if fits:
                break
            j += 1
        takes_run = i < middle
        if takes_run and j < rows:
            if amounts[side, i] != amount:
                takes_run = amounts[side, i] < amount
            elif marginalisation == 1:
                takes_run = worths[side, i] >= worth
            else:
                takes_run = worths[side, i] <= worth
        if takes_run:
            amount, worth = amounts[side, i], worths[side, i]
            i += 1
        elif j < rows:
            j += 1
        else:
            break
        if keeps_staircase:
            is_worse = worth >= best if marginalisation == 0 else worth <= best
            if is_worse and amount >> group_shift == group:
                continue
            group = amount >> group_shift
            best = worth
            amounts[target, filled] = amount
            worths[target, filled] = worth
            filled += 1
        else:
            filled = _appended(amounts, worths, target, low, filled, amount, worth, rule)
    return filled


@without_allocation
def moved_to_stack(amounts: Any, worths: Any, side: Any, begin: Any, end: Any) -> None:
    """Copy the top run to the stack if it is in the spare list."""
    if side == SPARE:
        for row in range(begin, end):
            amounts[STACK, row] = amounts[SPARE, row]
            worths[STACK, row] = worths[SPARE, row]


@without_allocation
def _merge(amounts: Any, worths: Any, low: Any, middle: Any, high: Any, rule: Any, stop: Any) -> Any:
    """Merge two runs, which end at ``middle`` and ``high``, in place; returns the end, :data:`GIVEN_UP` at ``stop``."""
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
    moved_to_stack(amounts, worths, SPARE, low, filled)
    return filled


@without_allocation
def settle(
    amounts: Any, worths: Any, ends: Any, floor: Any, depth: Any, merges_all: Any, rule: Any, most: Any, stop: Any
) -> Any:
    """Merge the runs on the stack above ``floor`` while the upper one is at least half as long as the lower one.

    ends : int64 (runs + 1,), start of each run of the stack, and end of the last one. depth : number of runs.
    merges_all : merge all runs above the floor into one. most : maximum number of rows on the stack.
    Returns the new depth; :data:`GIVEN_UP` if there are too many rows, or ``stop`` is set.
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
