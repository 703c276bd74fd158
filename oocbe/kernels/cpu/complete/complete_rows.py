"""Conversion of rows of an incomplete table to cells of a complete one and back.

A cell's number is the mixed-radix number of its assignment. Adjacent full fields of a key (domain sizes that are powers
of two) whose variables are adjacent in the complete table as well are converted as one field.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.threads import row_ranges, run_all

LISTED_CELLS = 1 << 20
"""Cells whose rows one call lists; counts are computed first and determine the output position of every call."""


def cells_of_rows(
    keys: NDArray[np.uint64], fields: NDArray[np.int64], piece_rows: int | None = None
) -> NDArray[np.int64]:
    """Cell of each row: int64 (rows,).

    keys : uint64 (words, rows).
    fields : int64 (fields, 4), word, shift, bits, and stride of the field in cells.
    """
    out = np.empty(keys.shape[1], dtype=np.int64)
    run_all(_cells, [(keys, fields, out, *piece) for piece in row_ranges(len(out), piece_rows)])
    return out


@jit
def _cells(keys: NDArray[np.uint64], fields: NDArray[np.int64], out: NDArray[np.int64], first: int, last: int) -> None:
    out[first:last] = 0
    for f in range(len(fields)):
        word, shift, step = keys[fields[f, 0]], np.uint64(fields[f, 1]), fields[f, 3]
        mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - fields[f, 2])
        for row in range(first, last):
            out[row] += np.int64((word[row] >> shift) & mask) * step


def rows_of_cells(
    values: NDArray[Any],
    feasible: NDArray[np.bool_],
    sizes: NDArray[np.int64],
    places: NDArray[np.int64],
    words: int,
    first: int = 0,
) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Keys uint64 (words, rows) and values (rows,) of the feasible cells, in the order of the cells.

    values, feasible : (cells,), of cells from ``first`` on.
    sizes : int64 (variables,), domain sizes, the fastest variable first.
    places : int64 (variables, 2), word and shift of each variable's field.
    """
    ranges = row_ranges(len(values), LISTED_CELLS)
    counts = [int(np.count_nonzero(feasible[low:high])) for low, high in ranges]
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    keys, kept = np.empty((words, int(starts[-1])), dtype=np.uint64), np.empty(int(starts[-1]), dtype=values.dtype)
    arrays = (values, feasible, sizes, places, first, keys, kept)
    run_all(_list_rows, [(*arrays, *piece, starts[i]) for i, piece in enumerate(ranges)])
    return keys, kept


@jit
def _list_rows(
    values: NDArray[Any],
    feasible: NDArray[np.bool_],
    sizes: NDArray[np.int64],
    places: NDArray[np.int64],
    offset: int,
    keys: NDArray[np.uint64],
    kept: NDArray[Any],
    first: int,
    last: int,
    row: int,
) -> None:
    digits, key = np.zeros(len(sizes), dtype=np.int64), np.zeros(len(keys), dtype=np.uint64)
    rest = first + offset
    for axis in range(len(sizes)):
        rest, digits[axis] = divmod(rest, sizes[axis])
        key[places[axis, 0]] |= np.uint64(digits[axis]) << np.uint64(places[axis, 1])
    for cell in range(first, last):
        if feasible[cell]:
            for word in range(len(key)):
                keys[word, row] = key[word]
            kept[row] = values[cell]
            row += 1
        for axis in range(len(sizes)):  # next assignment: increment with carry
            word, shift = places[axis, 0], np.uint64(places[axis, 1])
            if digits[axis] + 1 < sizes[axis]:
                digits[axis] += 1
                key[word] += np.uint64(1) << shift
                break
            key[word] -= np.uint64(digits[axis]) << shift
            digits[axis] = 0
