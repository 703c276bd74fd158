"""One constraint against the domains of its variables: rows of a table, rows that are forbidden, a linear inequality.

All domains lie in one array of flags, variable after variable. A scan drops rows with a removed value for good (simple
tabular reduction) and keeps the values that some row left has. A cell that stands for every value has the code that
follows the last value's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit

LOOK_STEP = (1 << 16) - 1
"""Rows, less one, after which a scan looks at the flag; ones in the low bits."""


@helper
def _keep_rows(
    codes: Any, rows: Any, count: Any, is_whole: Any, offsets: Any, sizes: Any, alive: Any, stop: Any
) -> Any:
    """Move rows that have a removed value behind the others; returns how many are left at the front of ``rows``.

    The first ``count`` stay the same rows in another order: who sets the count back has all of them again.
    """
    if is_whole:
        for place in range(count):
            rows[place] = place
    left = 0
    arity = len(offsets)
    for place in range(count):
        if place & LOOK_STEP == 0 and stop[0] != 0:
            break
        row = rows[place]
        is_left = True
        for c in range(arity):
            code = codes[row, c]
            if code < sizes[c] and alive[offsets[c] + code] == 0:
                is_left = False
                break
        if is_left:
            rows[place] = rows[left]
            rows[left] = row
            left += 1
    return left


@jit
def scan_table(
    codes: Any,
    rows: Any,
    count: Any,
    is_whole: Any,
    offsets: Any,
    sizes: Any,
    alive: Any,
    supported: Any,
    removed: Any,
    stop: Any,
) -> Any:
    """Keep the values that some row has; returns how many rows are left.

    codes : unsigned integers (rows of the table, arity), value indices; a variable's size stands for every value.
    rows : int32 or int64, its first ``count`` are the rows left, and are reordered. is_whole : whether all are left,
        and ``rows`` has not been filled yet.
    offsets, sizes : int64 (arity,), where each variable's flags begin, and how many there are.
    alive : uint8, flags of all values, changed. supported : uint8 of the same length, scratch.
    removed : int64 (arity,), overwritten; how many values each variable lost.
    stop : the flag that ends the scan early; nothing is removed then.
    """
    left = _keep_rows(codes, rows, count, is_whole, offsets, sizes, alive, stop)
    arity = len(offsets)
    for c in range(arity):
        removed[c] = 0
        supported[offsets[c] : offsets[c] + sizes[c]] = 0
    if stop[0] != 0:
        return left
    for c in range(arity):
        offset, size = offsets[c], sizes[c]
        missing = 0
        for value in range(size):
            missing += alive[offset + value]
        for place in range(left):
            code = codes[rows[place], c]
            if code == size:
                missing = 0
            elif supported[offset + code] == 0:
                supported[offset + code] = 1
                missing -= 1
            if missing <= 0:
                break
        if missing > 0:
            removed[c] = missing
            for value in range(size):
                alive[offset + value] &= supported[offset + value]
    return left


@jit
def count_forbidden(
    codes: Any, rows: Any, count: Any, is_whole: Any, offsets: Any, sizes: Any, alive: Any, counts: Any, stop: Any
) -> Any:
    """Count the remaining forbidden rows with each value; return the number of remaining rows.

    counts : int64, one a value of all domains; those of the scope are overwritten. Others as for :func:`scan_table`.
    """
    left = _keep_rows(codes, rows, count, is_whole, offsets, sizes, alive, stop)
    for c in range(len(offsets)):
        counts[offsets[c] : offsets[c] + sizes[c]] = 0
    if stop[0] != 0:
        return left
    for place in range(left):
        row = rows[place]
        for c in range(len(offsets)):
            counts[offsets[c] + codes[row, c]] += 1
    return left


@jit
def filter_linear(
    coefficients: Any, starts: Any, offsets: Any, capacity: Any, alive: Any, least: Any, removed: Any
) -> Any:
    """Remove values that take more than what the others leave; returns the room that the cheapest values leave.

    coefficients : int64, those of each variable's values, one variable after the other, from ``starts`` (arity + 1,)
    on; sums do not leave 64 bits. capacity : what all may take. least : int64 (arity,), scratch. Others as for
    :func:`scan_table`. A negative room is a contradiction; nothing is removed then.
    """
    room = capacity
    arity = len(offsets)
    for c in range(arity):
        best = np.iinfo(np.int64).max
        for value in range(starts[c + 1] - starts[c]):
            if alive[offsets[c] + value] != 0:
                best = min(best, coefficients[starts[c] + value])
        least[c] = best
        room -= best
        removed[c] = 0
    if room < 0:
        return room
    for c in range(arity):
        for value in range(starts[c + 1] - starts[c]):
            if alive[offsets[c] + value] != 0 and coefficients[starts[c] + value] - least[c] > room:
                alive[offsets[c] + value] = 0
                removed[c] += 1
    return room
