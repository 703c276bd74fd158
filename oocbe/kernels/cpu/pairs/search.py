"""Find one row of a sorted table."""

from __future__ import annotations

from typing import Any

from oocbe.kernels.cpu.jit import jit


@jit
def find_row(keys: Any, key: Any) -> Any:
    """Row of ``key`` uint64 (words,) in sorted ``keys`` uint64 (words, rows); -1 where it is not there."""
    words, rows = keys.shape
    low, high = 0, rows
    while low < high:
        middle = (low + high) >> 1
        below = False
        for w in range(words - 1, -1, -1):
            if keys[w, middle] != key[w]:
                below = keys[w, middle] < key[w]
                break
        if below:
            low = middle + 1
        else:
            high = middle
    if low == rows:
        return -1
    for w in range(words):
        if keys[w, low] != key[w]:
            return -1
    return low


@jit
def find_rows(keys: Any, wanted: Any, found: Any) -> Any:
    """Rows of the keys ``wanted`` uint64 (words, n) as :func:`find_row` finds them, into ``found`` int64 (n,)."""
    words, rows = keys.shape
    for i in range(wanted.shape[1]):
        low, high = 0, rows
        while low < high:
            middle = (low + high) >> 1
            below = False
            for w in range(words - 1, -1, -1):
                if keys[w, middle] != wanted[w, i]:
                    below = keys[w, middle] < wanted[w, i]
                    break
            if below:
                low = middle + 1
            else:
                high = middle
        found[i] = low
        if low == rows:
            found[i] = -1
            continue
        for w in range(words):
            if keys[w, low] != wanted[w, i]:
                found[i] = -1
                break
