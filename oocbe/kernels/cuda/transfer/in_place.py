"""Arrays in ordinary memory, pinned where they are: the device reads them there, and nothing is copied before.

The driver pins existing large pages at 18 to 50 GB/s (H100 hosts). An array is pinned as a whole or not at all: the
driver refuses every copy, by any library, that begins in pinned memory and ends outside it or in memory that was pinned
by another call. It stays pinned until its deletion, so that later operators on the same tables find it pinned.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Container, Iterable
from typing import Any

import numpy as np
from numba.core.runtime._nrt_python import _MemInfo
from numpy.typing import NDArray

from oocbe.kernels.cuda.transfer.columns import is_pinned
from oocbe.kernels.cuda.transfer.pinned import pin, unpin

LEAST_BYTES = 1 << 25
"""Minimum size of an array whose memory is pinned in place: the C library maps such arrays one by one, so that their
first and last pages have no other memory."""

LEAST_SHARE = 8
"""An array is pinned if one part in this many of it is needed: pinning is so many times as fast as copies into pinned
memory by a few threads."""

PAGE_BYTES = mmap.PAGESIZE
"""Memory is pinned in whole pages."""

_pinned: dict[int, bool] = {}
"""Arrays that an operator needed, by identity; whether they are pinned."""

os.register_at_fork(after_in_child=lambda: _pinned.clear())  # a child has copies that are not pinned

_lock = threading.Lock()


def worth_pinning(columns: Iterable[NDArray[Any]]) -> set[int]:
    """Identities of the arrays of which columns need enough that they are pinned for them."""
    needed: dict[int, tuple[int, int, int]] = {}
    for column in columns:
        low, owner = column.ctypes.data, _owner(column)
        first, last, _ = needed.get(id(owner), (low, low, 0))
        needed[id(owner)] = min(first, low), max(last, low + column.nbytes), owner.nbytes
    return {key for key, (low, high, nbytes) in needed.items() if (high - low) * LEAST_SHARE >= nbytes >= LEAST_BYTES}


def pinned_in_place(column: NDArray[Any], worth: Container[int]) -> bool:
    """Whether a column's memory is pinned; that of arrays in ``worth`` (:func:`worth_pinning`) is pinned now."""
    owner = _owner(column)
    with _lock:
        if id(owner) not in _pinned:
            if is_pinned(column):  # by its maker
                return True
            # Memory of any other object may have further arrays, which begin and end elsewhere, and outlive this one.
            base = getattr(owner.base, "obj", owner.base)
            is_own = base is None or isinstance(base, _MemInfo)
            is_own |= isinstance(base, mmap.mmap) and len(base) == owner.nbytes
            if id(owner) not in worth or not owner.flags.writeable or not is_own or isinstance(owner, np.memmap):
                return False
            begin = owner.ctypes.data // PAGE_BYTES * PAGE_BYTES
            end = -(-(owner.ctypes.data + owner.nbytes) // PAGE_BYTES) * PAGE_BYTES
            try:
                pin(begin, end - begin)
            except MemoryError:
                _pinned[id(owner)] = False
            else:
                _pinned[id(owner)] = True
            weakref.finalize(owner, _let_go, id(owner), begin).atexit = False
        return _pinned[id(owner)]


def _let_go(number: int, address: int) -> None:
    """Unpin the memory of an array that is being deleted."""
    if _pinned.pop(number, False):
        unpin(address)


def _owner(column: NDArray[Any]) -> NDArray[Any]:
    """The array whose memory a column is part of."""
    while isinstance(column.base, np.ndarray):
        column = column.base
    return column
