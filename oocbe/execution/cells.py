"""Cells of complete tables read by *boxes*: a range of values of each variable, from main memory or from disk.

A box is a set of *runs* of contiguous cells of equal length: a run covers the fastest variables whose whole domain is
in the box, and the range of the next one. From disk, long runs are read one by one; a chunk with many short runs is
decoded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.complete.complete_copy import copy_function
from oocbe.kernels.interface import CompleteFunction, steps_of
from oocbe.tables.complete import CompleteTable
from oocbe.tables.stored_complete import AnyComplete

Box = tuple[tuple[int, int], ...]
"""For each variable, the fastest first, a half-open range (first value, last value + 1)."""


def runs_of(sizes: Sequence[int], box: Box) -> tuple[NDArray[np.int64], int]:
    """First cells of a box's runs, int64 (runs,), ascending, and the cells of each run.

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
    """Maximum number of decoded cells for reading a box, if whole windows of ``window`` cells are decoded."""
    length, axis = 1, 0
    while axis < len(sizes) and box[axis] == (0, sizes[axis]):
        length *= sizes[axis]
        axis += 1
    length *= box[axis][1] - box[axis][0] if axis < len(sizes) else 1
    runs = box_cells(box) // max(1, length)
    return min(math.prod(sizes), runs * (length + 2 * window))


def read_box(source: AnyComplete, sizes: Sequence[int], box: Box) -> NDArray[Any]:
    """Values of a box (cells of the box,), in the order of the source; read-only.

    A view for a single run in main memory, otherwise a copy.

    Raises
    ------
    CorruptDataError : the source is on disk and damaged.
    """
    starts, length = runs_of(sizes, box)
    if isinstance(source, CompleteTable):
        first = int(starts[0])
        if len(starts) == 1:
            return source.values[first : first + length]
        function = CompleteFunction(source.values[first:], steps_of(sizes))
        return copy_function(function, [high - low for low, high in box])
    out = np.empty(len(starts) * length, dtype=source.dtype)
    window = source.chunk_cells
    if length >= max(1, window // 2) or len(starts) == 1:
        for number, start in enumerate(starts.tolist()):
            source.read_into(start, out[number * length : (number + 1) * length])
        return out
    done, within = 0, np.arange(length, dtype=np.int64)
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
