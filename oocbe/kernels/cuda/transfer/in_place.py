"""Arrays in ordinary memory, pinned where they are: the device reads them there, and nothing is copied before.

The driver pins existing large pages at 18 to 50 GB/s (H100 hosts). An array is pinned as a whole or not at all: the
driver refuses every copy, by any library, that begins in pinned memory and ends outside it or in memory that was pinned
by another call. It stays pinned until its deletion, so that later operators on the same tables find it pinned.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Container, Iterable
from contextlib import suppress
from typing import Any

import numpy as np
from numba.core.runtime._nrt_python import _MemInfo
from numpy._core.multiarray import get_handler_name
from numpy.typing import NDArray

from oocbe.kernels.cuda.transfer.columns import is_pinned
from oocbe.kernels.cuda.transfer.pinned import pin, unpin

LEAST_BYTES = 1 << 22
"""Minimum size of an array whose memory is pinned in place: copies of smaller ones take less than a millisecond."""

MAPPED_BYTES = 1 << 25
"""Size from which the C library maps each array by itself, so that its first and last pages have no other memory."""

LEAST_SHARE = 8
"""An array is pinned if one part in this many of it is needed: pinning is so many times as fast as copies into pinned
memory by a few threads."""

PAGE_BYTES = mmap.PAGESIZE
"""Memory is pinned in whole pages."""

HEADER_BYTES = 16
"""Bytes of the C library's own before a block of memory."""

_usable_bytes = ctypes.CDLL(None).malloc_usable_size
_usable_bytes.restype = ctypes.c_size_t

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
            is_plain = owner.flags.writeable and not isinstance(owner, np.memmap)
            if id(owner) not in worth or not is_plain or not _has_own_pages(owner):
                return False
            begin = owner.ctypes.data // PAGE_BYTES * PAGE_BYTES
            end = -(-(owner.ctypes.data + owner.nbytes) // PAGE_BYTES) * PAGE_BYTES
            _pinned[id(owner)] = False
            with suppress(MemoryError):
                pin(begin, end - begin)
                _pinned[id(owner)] = True
            weakref.finalize(owner, _let_go, id(owner), begin).atexit = False
        return _pinned[id(owner)]


def _has_own_pages(owner: NDArray[Any]) -> bool:
    """Whether no other memory is in an array's pages, and no other array over its memory is known to outlive it."""
    base = getattr(owner.base, "obj", owner.base)
    if isinstance(base, mmap.mmap):
        return len(base) == owner.nbytes
    if base is not None and not isinstance(base, _MemInfo):
        return False
    if owner.nbytes >= MAPPED_BYTES:
        return True
    if not owner.flags.owndata or get_handler_name(owner) != "default_allocator":
        return False
    # The C library's block of memory: whole pages, with a header before the array.
    begin = owner.ctypes.data
    end = begin + _usable_bytes(ctypes.c_void_p(begin))
    return bool((begin - HEADER_BYTES) % PAGE_BYTES == end % PAGE_BYTES == 0)


def _let_go(number: int, address: int) -> None:
    """Unpin the memory of an array that is being deleted."""
    if _pinned.pop(number, False):
        unpin(address)


def _owner(column: NDArray[Any]) -> NDArray[Any]:
    """The array whose memory a column is part of."""
    while isinstance(column.base, np.ndarray):
        column = column.base
    return column
