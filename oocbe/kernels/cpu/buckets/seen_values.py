"""Values of its variables that occur in a table's rows."""

from __future__ import annotations

from typing import Any

from oocbe.kernels.cpu.jit import jit


@jit
def see_values(keys: Any, word: Any, shift: Any, mask: Any, start: Any, step: int, seen: Any) -> None:
    """Set the flags of the values in every ``step``-th row; a variable's scan ends when all its flags are set.

    Parameters
    ----------
    keys : uint64 (words, rows). word : int64 (variables,); shift, mask : uint64 (variables,), each one's field.
    start : int64 (variables + 1,), first flag of each. seen : uint8 (flags,), updated.
    """
    rows = keys.shape[1]
    for v in range(len(word)):
        missing = 0
        for flag in range(start[v], start[v + 1]):
            missing += seen[flag] == 0
        row = 0
        while missing > 0 and row < rows:
            flag = start[v] + int((keys[word[v], row] >> shift[v]) & mask[v])
            if seen[flag] == 0:
                seen[flag] = 1
                missing -= 1
            row += step
