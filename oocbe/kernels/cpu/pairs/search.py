"""Find rows of a sorted table."""

from __future__ import annotations

from typing import Any

from oocbe.kernels.cpu.jit import jit


@jit
def find_rows(keys: Any, wanted: Any, found: Any) -> Any:
    """Rows of ``wanted`` uint64 (words, n) in sorted ``keys`` (words, rows), into ``found`` int64 (n,); -1: none."""
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
