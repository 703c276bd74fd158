"""Mark rows of a sorted table that another row (of the same or another piece) dominates by substitution of one value.

For a variable and two of its values a, b, the row with b that corresponds to a row with a differs in one field of the
key. Both run through the table in ascending order, so one monotone pointer per pair of values finds all matches: a
merge without hashing or random access (pointers advance by doubling steps, then bisection).

If rows carry consumptions, the replacing row may consume less: any row with at most the same consumption, including
that of the substituted variable, dominates. The rows of one key form a Pareto front, so the last of these is the best.
With several constraints only the first one's consumption may be less; those of the others must be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit

U64 = np.uint64

LOOK_UP_STEP = (1 << 12) - 1
"""Mask of the row number: the stop flag is read every 4096 rows."""


@jit
def mark_dominated(
    keys: Any,
    values: Any,
    other_keys: Any,
    other_values: Any,
    field: Any,
    pair_start: Any,
    pair_target: Any,
    pair_penalty: Any,
    pair_saving: Any,
    parts: Any,
    sign: Any,
    dominated: Any,
    stop: Any,
) -> Any:
    """Set ``dominated`` for rows that can be replaced by another row at no loss, by substitution of one variable.

    keys : uint64 (words, rows), ascending, the packed consumption in the lowest bits. values : (rows,).
    other_keys, other_values : the possible replacements, ascending: the same rows, or another range of the message's
        rows, which is then marked range by range.
    field : (word, shift, mask) of the substituted variable, int64 and uint64s.
    pair_start : int64 (size + 1,); the substitutions of value a are pairs pair_start[a] .. pair_start[a + 1] - 1.
    pair_target : int64 (pairs,), the value b that replaces a.
    pair_penalty : value dtype (pairs,), worst-case loss of b against a in the remaining factors.
    pair_saving : int64 (pairs, constraints), consumption of the replaced value minus that of the new value; or None.
    parts : (shift, mask), int64 (constraints,), field of each constraint in the packed consumption, the lowest first;
        None without consumptions: Numba then removes the code for them.
    sign : 1 if small values are better, -1 if large ones are.
    dominated : uint8 (rows,), only ever set to 1, so that several variables can be processed at once.
    stop : int64 (1,), read periodically; a nonzero value leaves the remaining rows unmarked.
    """
    word, shift, mask = field
    words, rows = keys.shape
    others = other_keys.shape[1]
    pointer = np.zeros(len(pair_target), dtype=np.int64)
    clear = ~(mask << shift)
    if parts is not None:
        part_shift, part_mask = parts
        below_first = U64(part_mask[0])
    target = np.empty(words, dtype=np.uint64)
    for row in range(rows):
        if row & LOOK_UP_STEP == 0 and stop[0] != 0:
            break
        if dominated[row]:
            continue
        a = np.int64((keys[word, row] >> shift) & mask)
        for pair in range(pair_start[a], pair_start[a + 1]):
            b = pair_target[pair]
            for w in range(words):
                target[w] = keys[w, row]
            target[word] = (target[word] & clear) | (U64(b) << shift)
            if parts is not None:
                amount, amount_before = np.int64(0), np.int64(0)
                is_possible = True
                for part in range(len(part_shift)):
                    before = np.int64(keys[0, row] >> U64(part_shift[part])) & part_mask[part]
                    own = before + pair_saving[pair, part]
                    is_possible &= own >= 0
                    amount += own << part_shift[part]
                    amount_before |= before << part_shift[part]
                if not is_possible:
                    continue
                # The row before the first one from here on; no carry leaves the lowest field, whose guard bit is 0.
                target[0] = ((target[0] ^ U64(amount_before)) | U64(amount)) + U64(1)
            low = pointer[pair]
            if low < others and _is_below(other_keys, low, target, words):
                step = 1
                while low + step < others and _is_below(other_keys, low + step, target, words):
                    low += step
                    step += step
                high = min(low + step, others)
                low += 1
                while low < high:
                    middle = (low + high) >> 1
                    if _is_below(other_keys, middle, target, words):
                        low = middle + 1
                    else:
                        high = middle
                pointer[pair] = low
            if parts is not None:
                target[0] -= U64(1)
                low -= 1
            if low < 0 or low >= others:
                continue
            is_smaller = b < a
            if parts is not None:
                is_smaller |= other_keys[0, low] < target[0]
                target[0] ^= (target[0] ^ other_keys[0, low]) & below_first
            equal = True
            for w in range(words):
                if other_keys[w, low] != target[w]:
                    equal = False
                    break
            if equal:
                gain = sign * (values[row] - other_values[low]) - pair_penalty[pair]
                # Ties keep the smaller consumption, then the smaller value: no cycle of rows removes itself.
                if gain > 0 or (gain == 0 and is_smaller):
                    dominated[row] = 1
                    break


@helper
def _is_below(keys: Any, row: Any, target: Any, words: Any) -> Any:
    """Whether the key of a row is smaller than a target key."""
    for w in range(words - 1, -1, -1):
        if keys[w, row] != target[w]:
            return keys[w, row] < target[w]
    return False
