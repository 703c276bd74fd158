"""Columns in ordinary memory, pinned where they are: the device reads them there, and nothing is copied before.

The driver pins existing large pages at 18 to 50 GB/s (H100 hosts), while earlier pieces travel. Memory stays pinned
until its array is deleted, so that later operators on the same tables find it pinned.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from typing import Any

import numpy as np
from numba.core.runtime._nrt_python import _MemInfo
from numpy.typing import NDArray

from oocbe.kernels.cuda.transfer.columns import CELL_BYTES, TO_DEVICE, Columns, cells_of, copy, is_pinned
from oocbe.kernels.cuda.transfer.pinned import pin, unpin

LEAST_BYTES = 1 << 22
"""Minimum size of an array whose memory is pinned in place: smaller ones share pages with others."""

_cells: dict[int, set[int]] = {}
"""Of each array with memory pinned here, by its identity: addresses of the pinned cells."""

os.register_at_fork(after_in_child=_cells.clear)  # a child has copies that are not pinned

_lock = threading.Lock()


def pinned_in_place(columns: Columns) -> bool:
    """Pin the memory of columns; False: the system does not pin all of it, or a file may be behind it."""
    return all(map(_pinned, columns))


def goes_in_parts(array: NDArray[Any]) -> bool:
    """Pin an array's memory; whether any of it is pinned, also earlier, so that its copies go in parts."""
    return pinned_in_place([array]) or id(_owner(array)) in _cells


def copy_parts(target: Any, column: NDArray[Any], stream: Any) -> None:
    """Queue copies of a contiguous column to the device, in parts that are each pinned as a whole or not at all."""
    for part in cells_of(items := column.reshape(-1).view(np.uint8), _pages(_owner(column))):
        copy(target.data.ptr + part.start, items[part].ctypes.data, part.stop - part.start, TO_DEVICE, stream)


def _pinned(column: NDArray[Any]) -> bool:
    owner = _owner(column)
    with _lock:
        if id(owner) not in _cells:
            if is_pinned(column):  # by its maker
                return True
            # Memory of any other object may have further arrays, which begin and end elsewhere, and outlive this one.
            is_own = owner.base is None or isinstance(getattr(owner.base, "obj", owner.base), (mmap.mmap, _MemInfo))
            if owner.nbytes < LEAST_BYTES or not owner.flags.writeable or not is_own or isinstance(owner, np.memmap):
                return False
            _cells[id(owner)] = set()
            weakref.finalize(owner, _let_go, id(owner)).atexit = False
        cells, (first, last) = _cells[id(owner)], _pages(owner)
        begin = column.ctypes.data
        for cell in range(begin - begin % CELL_BYTES, begin + column.nbytes, CELL_BYTES):
            low, high = max(first, cell), min(last, cell + CELL_BYTES)
            if low < high and low not in cells:
                try:
                    pin(low, high - low)
                except MemoryError:
                    return False
                cells.add(low)
    return True


def _let_go(number: int) -> None:
    """Unpin the memory of an array that is being deleted."""
    for address in _cells.pop(number, ()):
        unpin(address)


def _owner(column: NDArray[Any]) -> NDArray[Any]:
    """The array whose memory a column is part of."""
    while isinstance(column.base, np.ndarray):
        column = column.base
    return column


def _pages(owner: NDArray[Any]) -> tuple[int, int]:
    """Bounds of the pages that are an array's alone."""
    begin, page = owner.ctypes.data, mmap.PAGESIZE
    return -(-begin // page) * page, (begin + owner.nbytes) // page * page
