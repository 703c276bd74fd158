"""Cells of complete tables read by *boxes*: a range of values of each variable, from memory or from disk.

A box is a set of *runs* of neighbouring cells, all of one length: the variables that change fastest and have their
whole domain in the box, and the range of the next one. Long runs are read one by one. Of short ones many lie in a
chunk, which is then decoded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.interface import steps_of
from oocbe.tables.stored_complete import StoredCompleteTable

Box = tuple[tuple[int, int], ...]
"""For each variable, the fastest first, its first value in the box and the one behind its last."""

HELD_WINDOW = 1 << 16
"""Cells in memory that are gathered at a time where runs are short: so long are the arrays of their places."""

SHORT_RUN = 64
"""Cells below which a run in memory is not copied by itself: that would cost a microsecond each."""


class CellSource(Protocol):
    """Values of a complete table, in the order of its cells.

    Attributes
    ----------
    cells : how many. dtype : of the values.
    window_cells : cells that are best read together. long_run : cells from which a run is best read by itself.
    """

    cells: int
    dtype: np.dtype[Any]
    window_cells: int
    long_run: int

    def window(self, start: int, stop: int) -> NDArray[Any]:
        """Cells of a range in memory; not to be written to."""

    def read_into(self, start: int, out: NDArray[Any]) -> None:
        """Cells ``start`` and following into the caller's array, contiguous."""


class HeldCells:
    """Values in main memory: (cells,)."""

    window_cells, long_run = HELD_WINDOW, SHORT_RUN

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values
        self.cells, self.dtype = len(values), values.dtype

    def window(self, start: int, stop: int) -> NDArray[Any]:
        """Cells of a range: a view of the values."""
        return self._values[start:stop]

    def read_into(self, start: int, out: NDArray[Any]) -> None:
        """Cells ``start`` and following, copied."""
        out[:] = self._values[start : start + len(out)]


class StoredCells:
    """Values on disk."""

    def __init__(self, table: StoredCompleteTable) -> None:
        self._table = table
        self.cells, self.dtype = table.cells, table.dtype
        self.window_cells, self.long_run = table.chunk_cells, max(1, table.chunk_cells // 2)

    def window(self, start: int, stop: int) -> NDArray[Any]:
        """Cells of a range, decoded from the chunks that have them."""
        out = np.empty(stop - start, dtype=self.dtype)
        self._table.read_into(start, out)
        return out

    def read_into(self, start: int, out: NDArray[Any]) -> None:
        """Cells ``start`` and following, decoded into the caller's array."""
        self._table.read_into(start, out)


def runs_of(sizes: Sequence[int], box: Box) -> tuple[NDArray[np.int64], int]:
    """Where the runs of a box begin, int64 (runs,), ascending, and the cells of each.

    sizes : domain sizes, the variable that changes fastest first.
    """
    steps = steps_of(sizes)
    length, axis = 1, 0
    while axis < len(sizes) and box[axis] == (0, sizes[axis]):
        length *= sizes[axis]
        axis += 1
    starts = np.zeros(1, dtype=np.int64)
    if axis < len(sizes):
        low, high = box[axis]
        length *= high - low
        starts += low * steps[axis]
    for later in range(axis + 1, len(sizes)):
        places = np.arange(*box[later], dtype=np.int64) * steps[later]
        starts = (starts[None, :] + places[:, None]).ravel()
    return starts, length


def box_cells(box: Box) -> int:
    """Cells of a box."""
    return math.prod(high - low for low, high in box)


def cells_touched(sizes: Sequence[int], box: Box, window: int) -> int:
    """Cells that reading a box decodes, at most, where whole windows of so many cells are decoded."""
    length, axis = 1, 0
    while axis < len(sizes) and box[axis] == (0, sizes[axis]):
        length *= sizes[axis]
        axis += 1
    length *= box[axis][1] - box[axis][0] if axis < len(sizes) else 1
    runs = box_cells(box) // max(1, length)
    return min(math.prod(sizes), runs * (length + 2 * window))


def read_box(source: CellSource, sizes: Sequence[int], box: Box) -> NDArray[Any]:
    """Values of a box in a new array (cells of the box,), in the order of the source.

    Raises
    ------
    CorruptDataError : the source is on disk and damaged.
    """
    starts, length = runs_of(sizes, box)
    out = np.empty(len(starts) * length, dtype=source.dtype)
    if length >= source.long_run or len(starts) == 1:
        for number, start in enumerate(starts.tolist()):
            source.read_into(start, out[number * length : (number + 1) * length])
        return out
    done, within, window = 0, np.arange(length, dtype=np.int64), source.window_cells
    while done < len(out):
        run, skipped = divmod(done, length)
        low = (int(starts[run]) + skipped) // window * window
        high = min(low + window, source.cells)
        last = int(np.searchsorted(starts, high))
        cells = (starts[run:last, None] + within).ravel()[skipped:]
        cells = cells[: np.searchsorted(cells, high)] - low
        out[done : done + len(cells)] = source.window(low, high)[cells]
        done += len(cells)
    return out
