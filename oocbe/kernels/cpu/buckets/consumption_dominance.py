"""Mark rows dominated by another row through substitution, for rows with consumptions.

As :mod:`oocbe.kernels.cpu.buckets.dominance`, but the replacing row may consume less: any row with at most the same
consumption, including that of the substituted variable, dominates. The rows of one key form a Pareto front, so the last
of these is the best. With several constraints only the first one's consumption may be less; those of the others must be
equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit

U64 = np.uint64

LOOK_UP_STEP = (1 << 12) - 1
"""Mask of the row number: the stop flag is read every 4096 rows."""


@jit
def mark_dominated_consumption(
    keys: Any,
    values: Any,
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

    Parameters
    ----------
    keys : uint64 (words, rows), ascending, the packed consumption in the lowest bits. values : (rows,).
    field, pair_start, pair_target, pair_penalty : as for :func:`oocbe.kernels.cpu.buckets.dominance.mark_dominated`.
    pair_saving : int64 (pairs, constraints), consumption of the replaced value minus that of the new value.
    parts : (shift, mask), int64 (constraints,), field of each constraint in the packed consumption, the lowest first.
    sign : 1 if small values are better, -1 if large ones are.
    dominated : uint8 (rows,), only ever set to 1, so that several variables can be processed at once.
    stop : int64 (1,), read periodically; a nonzero value leaves the remaining rows unmarked.
    """
    word, shift, mask = field
    part_shift, part_mask = parts
    words, rows = keys.shape
    pointer = np.zeros(len(pair_target), dtype=np.int64)
    clear = ~(mask << shift)
    above_first = ~U64(part_mask[0])
    target = np.empty(words, dtype=np.uint64)
    for row in range(rows):
        if row & LOOK_UP_STEP == 0 and stop[0] != 0:
            break
        if dominated[row]:
            continue
        a = np.int64((keys[word, row] >> shift) & mask)
        for pair in range(pair_start[a], pair_start[a + 1]):
            amount = np.int64(0)
            is_possible = True
            for part in range(len(part_shift)):
                own = (np.int64(keys[0, row] >> U64(part_shift[part])) & part_mask[part]) + pair_saving[pair, part]
                is_possible &= own >= 0
                amount += own << part_shift[part]
            if not is_possible:
                continue
            b = pair_target[pair]
            amount_before = np.int64(0)
            for part in range(len(part_shift)):
                amount_before |= np.int64(keys[0, row]) & (part_mask[part] << part_shift[part])
            for w in range(words):
                target[w] = keys[w, row]
            target[word] = (target[word] & clear) | (U64(b) << shift)
            target[0] = (target[0] ^ U64(amount_before)) | U64(amount)
            low = pointer[pair]
            if low < rows and _is_at_most(keys, low, target, words):
                step = 1
                while low + step < rows and _is_at_most(keys, low + step, target, words):
                    low += step
                    step += step
                high = min(low + step, rows)
                low += 1
                while low < high:
                    middle = (low + high) >> 1
                    if _is_at_most(keys, middle, target, words):
                        low = middle + 1
                    else:
                        high = middle
                pointer[pair] = low
            if low == 0:
                continue
            low -= 1
            equal = (keys[0, low] ^ target[0]) & above_first == U64(0)
            for w in range(1, words):
                equal &= keys[w, low] == target[w]
            if equal:
                gain = sign * (values[row] - values[low]) - pair_penalty[pair]
                # Ties keep the smaller consumption, then the smaller value: no cycle of rows removes itself.
                if gain > 0 or (gain == 0 and (keys[0, low] < target[0] or b < a)):
                    dominated[row] = 1
                    break


@helper
def _is_at_most(keys: Any, row: Any, target: Any, words: Any) -> Any:
    """Whether the key of a row is at most a target key."""
    for w in range(words - 1, -1, -1):
        if keys[w, row] != target[w]:
            return keys[w, row] < target[w]
    return True
