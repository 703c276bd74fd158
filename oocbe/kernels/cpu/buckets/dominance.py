"""Mark the rows of a sorted table that another row, of it or of another piece, dominates by substitution of one value.

For a variable and two of its values a, b, the row with b that corresponds to a row with a has the same key but for one
field. As both run through the table in ascending order, one pointer a pair of values that only moves forward finds
them all: a merge, without a hash and without random access (each step of a pointer doubles, then bisects).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit

U64 = np.uint64

LOOK_UP_STEP = (1 << 12) - 1
"""Rows, less one, after which marking looks whether to give up; ones in the low bits."""


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
    sign: Any,
    dominated: Any,
    stop: Any,
) -> Any:
    """Set ``dominated`` for rows that can be replaced by another one at no loss, substituting one variable.

    Parameters
    ----------
    keys : uint64 (words, rows), ascending. values : (rows,).
    other_keys, other_values : the rows that may take their place, ascending: the same ones, or another range of the
        message's rows, which is then marked range by range.
    field : (word, shift, mask) of the variable substituted, int64 and uint64s.
    pair_start : int64 (size + 1,); the substitutions of value a are pairs pair_start[a] .. pair_start[a + 1] - 1.
    pair_target : int64 (pairs,), the value b put in a's place.
    pair_penalty : value dtype (pairs,), the worst that b can lose against a in what is still to come.
    sign : 1 where small values are better, -1 where large ones are.
    dominated : uint8 (rows,), written with 1 only, so that several variables may be worked on at once.
    stop : int64 (1,), looked at now and then; set to another value than 0 it leaves the rest of the rows unmarked.
    """
    word, shift, mask = field
    words, rows = keys.shape
    others = other_keys.shape[1]
    pointer = np.zeros(len(pair_target), dtype=np.int64)
    clear = ~(mask << shift)
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
            low = pointer[pair]
            if low >= others:
                continue
            if _is_below(other_keys, low, target, words):
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
                if low >= others:
                    continue
            equal = True
            for w in range(words):
                if other_keys[w, low] != target[w]:
                    equal = False
                    break
            if equal:
                gain = sign * (values[row] - other_values[low]) - pair_penalty[pair]
                # On a tie the smaller value stays: a fixed preference, so that no cycle of rows removes itself.
                if gain > 0 or (gain == 0 and b < a):
                    dominated[row] = 1
                    break


@helper
def _is_below(keys: Any, row: Any, target: Any, words: Any) -> Any:
    """Whether the key of a row is smaller than a target key."""
    for w in range(words - 1, -1, -1):
        if keys[w, row] != target[w]:
            return keys[w, row] < target[w]
    return False


@jit
def compact_rows(keys: Any, values: Any, dropped: Any) -> Any:
    """New arrays with the rows that are not dropped, in order."""
    words, rows = keys.shape
    kept = 0
    for row in range(rows):
        if dropped[row] == 0:
            kept += 1
    new_keys = np.empty((words, kept), dtype=np.uint64)
    new_values = np.empty(kept, dtype=values.dtype)
    for w in range(words):
        place = 0
        for row in range(rows):
            if dropped[row] == 0:
                new_keys[w, place] = keys[w, row]
                place += 1
    place = 0
    for row in range(rows):
        if dropped[row] == 0:
            new_values[place] = values[row]
            place += 1
    return new_keys, new_values
