"""Copy a complete function into another axis order, or repeat it along absent axes: a tiled transposition.

The target is written run by run, each a stretch of contiguous cells. Runs are taken in the memory order of their
sources, so that a cache line read for one run is still cached when the next run needs an adjacent cell; tiles are small
enough for these lines to fit the second-level cache.

Rows of an incomplete table are converted to cells of a complete one and back. A cell's number is the mixed-radix number
of its assignment. Adjacent full fields of a key (domain sizes that are powers of two) whose variables are adjacent in
the complete table as well are converted as one field.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.native import array_at
from oocbe.kernels.cpu.threads import row_ranges, run_all, tiled_ranges
from oocbe.kernels.interface import CompleteFunction

LEAST_RUN = 64
"""Minimum cells of a run, if the table is large enough: small axes are merged until then."""

TILE_CELLS = 1 << 11
"""Cells of a run that are copied at a time; their cache lines, if all are different, take 128 KiB."""

CONTIGUOUS = 8
"""Minimum contiguous cells in the source for a run to be copied in stretches."""


def copy_function(function: CompleteFunction, sizes: Sequence[int]) -> NDArray[Any]:
    """The function's values over all axes, contiguous, the first axis fastest; of its dtype.

    sizes : of the axes, in the target order; ``function.strides`` has 0 for axes along which the function is repeated.
    """
    axes = [(n, s) for n, s in zip(sizes, function.strides, strict=True) if n > 1]
    out = np.empty(math.prod(sizes), dtype=function.values.dtype)
    run, inner = 1, 0
    while inner < len(axes) and run < LEAST_RUN:
        run *= axes[inner][0]
        inner += 1
    places = np.zeros(1, dtype=np.int64)
    along = axes[0][1] if inner == 1 else 0  # one axis: all tiles share the positions of the first one
    for n, s in [(min(TILE_CELLS, run), along)] if inner == 1 else axes[:inner]:
        places = (np.arange(n, dtype=np.int64)[:, None] * s + places[None, :]).ravel()
    steps, step = [], run
    for n, s in axes[inner:]:
        steps.append((s, n, step))
        step *= n
    outer = np.array(sorted(steps), dtype=np.int64).reshape(-1, 3)
    stretch = axes[0][0] if axes and axes[0][1] == 1 and axes[0][0] >= CONTIGUOUS else 1
    runs = len(out) // run
    source = (function.values.ctypes.data, len(function.values))
    arrays = (*source, places, along, outer, stretch, run, out)
    calls = [(*arrays, *piece) for piece in tiled_ranges(run, TILE_CELLS, runs)]
    run_all(_copy_runs, calls)
    return out


@jit
def _copy_runs(
    address: int,
    length: int,
    places: NDArray[np.int64],
    along: int,
    outer: NDArray[np.int64],
    stretch: int,
    run: int,
    out: NDArray[Any],
    begin: int,
    end: int,
    first: int,
    last: int,
) -> None:
    """Cells ``begin`` to ``end`` of the runs ``first`` to ``last``, tile by tile.

    places : int64, positions of a run's cells in the source; if ``along`` is nonzero, those of its first tile.
    along : stride of a run's cells if it has one axis; otherwise 0.
    outer : int64 (outer axes, 3), stride in the source, size, and stride in the target; the first one changes fastest.
    """
    source = array_at(address, 0, length, out)
    axes = len(outer)
    digits = np.zeros(axes, dtype=np.int64)
    for low in range(begin, end, TILE_CELLS):
        high = min(end, low + TILE_CELLS)
        where = places[: high - low] if along else places[low:high]
        rest, base, target = first, low * along, low
        for axis in range(axes):
            rest, digits[axis] = divmod(rest, outer[axis, 1])
            base += digits[axis] * outer[axis, 0]
            target += digits[axis] * outer[axis, 2]
        for _ in range(first, last):
            into = out[target : target + high - low]
            if stretch == 1:
                for i in range(len(into)):
                    into[i] = source[base + where[i]]
            else:
                i = 0
                while i < len(into):
                    many = min(stretch - (low + i) % stretch, len(into) - i)
                    begins = base + where[i]
                    piece, origin = into[i : i + many], source[begins : begins + many]
                    for j in range(many):
                        piece[j] = origin[j]
                    i += many
            for axis in range(axes):  # next run: increment with carry
                base += outer[axis, 0]
                target += outer[axis, 2]
                digits[axis] += 1
                if digits[axis] < outer[axis, 1]:
                    break
                base -= outer[axis, 0] * outer[axis, 1]
                target -= outer[axis, 2] * outer[axis, 1]
                digits[axis] = 0


LISTED_CELLS = 1 << 20
"""Cells whose rows one call lists; counts are computed first and determine the output position of every call."""


def cells_of_rows(
    keys: NDArray[np.uint64], fields: NDArray[np.int64], piece_rows: int | None = None
) -> NDArray[np.int64]:
    """Cell of each row, int64 (rows,); ``fields``: int64 (fields, 4), word, shift, bits, and stride in cells."""
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
