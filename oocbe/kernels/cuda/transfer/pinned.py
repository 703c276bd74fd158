"""Pinned host memory, allocated quickly and reused.

The driver pins fresh memory at 2 GB/s, page by page on one thread. Here threads first touch fresh memory, in large
pages if the system has them, and the driver pins existing pages: 9 GB/s on 16 cores (benchmarks/RESULTS.md).

Memory for results is pinned from its beginning on, ahead of the device. The system allocates fresh pages, and the
driver pins them, at 40 to 50 GB/s each on 16 cores, and neither slows the bus down if it is done in large steps. So a
thread pins all that a column is expected to take in one step, and another one has the pages of the next column
allocated meanwhile. A column that outgrows the expectation gets further steps; in the end they are pinned again as one.

Arrays in ordinary memory are pinned where they are, and the device reads them there. The driver pins existing large
pages at 18 to 50 GB/s (H100 hosts). An array is pinned as a whole or not at all: the driver refuses every copy, by any
library, that begins in pinned memory and ends outside it or in memory that was pinned by another call. It stays pinned
until its deletion, so that later operators on the same tables find it pinned.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

import numpy as np
from numba.core.runtime._nrt_python import _MemInfo
from numpy._core.multiarray import get_handler_name
from numpy.typing import NDArray

from oocbe.kernels.cpu.threads import thread_count
from oocbe.kernels.cuda.device import cupy
from oocbe.runtime.stretches import Bytes, Region, fresh_memory, rounded
from oocbe.runtime.waiting import wait_for

TO_DEVICE, TO_HOST = 1, 2
"""The runtime's codes of copy directions."""

PINNED = 1
"""The runtime's code of a pointer to pinned memory."""

ALIGNMENT = 512
"""Alignment of columns in a slot, in bytes, as for separate arrays."""

Columns = Sequence[NDArray[Any]]


class Unread(Protocol):
    """A column that is not in memory yet: its size, and calls that read it into memory."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of its items."""

    @property
    def nbytes(self) -> int:
        """Bytes of all items."""

    def reads_into(self, target: NDArray[Any]) -> Sequence[tuple[int, Callable[[], None]]]:
        """Calls that fill parts of an array with the column's items, on any threads; with the bytes of each."""


Column = NDArray[Any] | Unread


def is_pinned(array: Column) -> bool:
    """Whether an array's memory is pinned, so that the device accesses it directly."""
    if not isinstance(array, np.ndarray):
        return False
    begin, attributes = array.ctypes.data, cupy().cuda.runtime.pointerGetAttributes
    return all(attributes(address).type == PINNED for address in (begin, begin + max(0, array.nbytes - 1)))


def bytes_of(columns: Sequence[Column]) -> int:
    """Bytes of some columns."""
    return sum(column.nbytes for column in columns)


def room_of(column: Column) -> int:
    """Bytes of a column including padding for the next one."""
    return -(-column.nbytes // ALIGNMENT) * ALIGNMENT


def carved(memory: Any, like: Sequence[Column]) -> list[Any]:
    """Parts of a stretch of memory with the shapes and dtypes of some columns."""
    parts, place = [], 0
    for column in like:
        parts.append(memory[place : place + column.nbytes].view(column.dtype))
        place += room_of(column)
    return parts


def copy(target: int, source: int, nbytes: int, direction: int, stream: Any) -> None:
    """Queue a copy between two addresses; the host's is pinned."""
    if nbytes:
        cupy().cuda.runtime.memcpyAsync(target, source, nbytes, direction, stream.ptr)


TOUCHED_AT_ONCE = 16 << 20
"""Fresh memory touched in one call of a thread, in bytes."""

MOST_THREADS = 16
"""Maximum number of threads that touch fresh memory."""

SPARE = 8
"""A region exceeds the requested size by one part in this many: the next piece may be slightly larger."""

PORTABLE = 1
"""The runtime's flag of memory that is pinned for all devices."""

NOT_PINNED = (1, 2, 304, 712, 801)
"""The runtime's codes for: a file's memory, out of memory, failed system call, memory already pinned, not supported."""


class PinnedMemory:
    """Allocator of stretches of pinned memory; a stretch is free after the last array over it is deleted.

    Regions stay pinned until a request does not fit any of them: then entirely free regions are returned to the system
    before a new one is allocated.

    make_region : returns a fresh region of a size in bytes.
    """

    def __init__(self, make_region: Callable[[int], Region]) -> None:
        self._make_region = make_region
        self._regions: list[Region] = []
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Bytes:
        """An uninitialised array of ``nbytes`` bytes; MemoryError: none is left, or can be pinned."""
        with self._lock:
            for region in self._regions:
                found = region.take(nbytes)
                if found is not None:
                    return found
            self._drop_free_regions()
            # Slightly more: the next piece may be slightly larger.
            region = self._make_region(rounded(nbytes + nbytes // SPARE))
            self._regions.append(region)
            found = region.take(nbytes)
        assert found is not None
        return found

    def held_bytes(self) -> int:
        """Pinned memory in bytes, including free stretches."""
        with self._lock:
            return sum(len(region.memory) for region in self._regions)

    def keep_within(self, nbytes: int) -> None:
        """Return entirely free regions to the system if more than ``nbytes`` bytes are pinned."""
        if self.held_bytes() > nbytes:
            with self._lock:
                self._drop_free_regions()

    def _drop_free_regions(self) -> None:
        for region in list(self._regions):
            if region.is_free():
                self._regions.remove(region)
                region.close()


def pinned_region(nbytes: int) -> Region:
    """A fresh region of pinned memory. Raises MemoryError: the system has no memory left, or does not pin it."""
    memory = touched(nbytes)
    pin(memory.ctypes.data, nbytes)
    return Region(memory, partial(unpin, memory.ctypes.data))


def pin(address: int, nbytes: int) -> None:
    """Pin existing pages for all devices; MemoryError if the system does not."""
    runtime = cupy().cuda.runtime
    try:
        runtime.hostRegister(address, nbytes, PORTABLE)
    except runtime.CUDARuntimeError as error:
        if error.status not in NOT_PINNED:  # any call may report the error of an earlier kernel
            raise
        raise MemoryError(f"{nbytes:,} bytes of main memory could not be pinned: {error}") from error


def unpin(address: int) -> None:
    """Undo :func:`pin` of memory at an address."""
    # At process exit the driver and modules may be unloaded already; the system frees all memory.
    if not sys.is_finalizing():
        cupy().cuda.runtime.hostUnregister(address)


def touched(nbytes: int) -> Bytes:
    """Fresh zeroed memory (nbytes,) with pages, large ones if the system has them; MemoryError: none is left."""
    try:
        array = fresh_memory(nbytes)
    except OSError as error:
        raise MemoryError(f"no {nbytes:,} bytes of main memory: {error.strerror}") from error
    touch(array)
    return array


def touch(array: Bytes) -> None:
    """Have the system allocate the pages of fresh memory, from several threads."""
    nbytes = len(array)
    parts = [array[low : low + TOUCHED_AT_ONCE : mmap.PAGESIZE] for low in range(0, nbytes, TOUCHED_AT_ONCE)]
    threads = min(MOST_THREADS, thread_count(), len(parts))
    if threads <= 1:
        for part in parts:
            part.fill(0)
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="oocbe-touch") as pool:
            list(pool.map(lambda part: part.fill(0), parts))


_POOL = PinnedMemory(pinned_region)
"""The pinned memory of this process."""


def pinned_memory() -> PinnedMemory:
    """The pinned memory of this process."""
    return _POOL


THREADS = 3
"""Threads that pin."""


class GrowingMemory:
    """A reservation of address space, whose first bytes are pinned.

    nbytes : of the reservation, whole pages; pages are allocated on first use.
    bounds : offsets of the steps that were pinned, and their end; at most one step after :meth:`unify`.
    used : bytes of the last result, set by its owner.
    """

    def __init__(self, nbytes: int) -> None:
        self._memory = fresh_memory(nbytes, getattr(mmap, "MAP_NORESERVE", 0))
        self.bounds = [0]
        self.used = 0

    def __len__(self) -> int:
        return len(self._memory)

    @property
    def pinned(self) -> int:
        """Pinned bytes."""
        return self.bounds[-1]

    def touch(self, low: int, high: int) -> None:
        """Have pages allocated."""
        touch(self._memory[low:high])

    def pin(self, high: int) -> None:
        """Pin the pages up to an offset; MemoryError."""
        pin(self._memory.ctypes.data + self.pinned, high - self.pinned)
        self.bounds.append(high)

    def unpin(self) -> None:
        """Undo all steps."""
        for low in self.bounds[:-1]:
            unpin(self._memory.ctypes.data + low)
        self.bounds = [0]

    def unify(self) -> None:
        """Pin all in one step, or nothing if the result has more: the driver refuses copies across a step's end."""
        high = self.pinned
        if self.used > high or len(self.bounds) > 2:
            self.unpin()
            if self.used <= high:
                with suppress(MemoryError):
                    self.pin(high)

    def lend(self, when_free: Callable[[], None]) -> Bytes:
        """All of it as an array; ``when_free`` is called after the deletion of the last array over it."""
        region = Region(self._memory, when_free)
        found = region.take(len(self._memory))
        assert found is not None
        region.close()
        return found


class Pinning:
    """Threads that pin the memories of a result's columns up to wanted sizes; :meth:`close` ends them."""

    def __init__(self, memories: Sequence[GrowingMemory]) -> None:
        self._memories = memories
        self._wanted = [memory.pinned for memory in memories]
        self._claimed = list(self._wanted)
        self._changed = threading.Condition()
        self._is_ended = False
        self._device = cupy().cuda.Device()
        self._threads: list[threading.Thread] = []

    def want(self, sizes: Sequence[int]) -> None:
        """Pin so many bytes of each memory, or more."""
        with self._changed:
            for number, (size, memory) in enumerate(zip(sizes, self._memories, strict=True)):
                self._wanted[number] = max(self._wanted[number], min(rounded(size), len(memory)))
            if not self._threads and self._wanted != self._claimed:
                for number in range(THREADS):
                    run = copy_context().run
                    name = f"oocbe-pin-{number}"
                    self._threads.append(threading.Thread(target=run, args=(self._run,), name=name, daemon=True))
                    self._threads[-1].start()
            self._changed.notify_all()

    def wait(self, sizes: Sequence[int]) -> None:
        """Wait until so many bytes of each memory are pinned, if they are wanted and the system pins them."""
        wanted = [min(size, most) for size, most in zip(sizes, self._wanted, strict=True)]

        def attempt(seconds: float) -> None:
            with self._changed:
                if not self._changed.wait_for(lambda: self._is_ended or self._has(wanted), seconds):
                    raise TimeoutError

        wait_for(attempt, TimeoutError)

    def close(self) -> None:
        """End the threads, wait for them, and pin each memory in one step. All copies have ended."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        for memory in self._memories:
            memory.unify()

    def _has(self, sizes: Sequence[int]) -> bool:
        return all(memory.pinned >= size for memory, size in zip(self._memories, sizes, strict=True))

    def _run(self) -> None:
        try:
            with self._device:
                while (step := self._next_step()) is not None:
                    memory, low, high = step
                    memory.touch(low, high)
                    if not self._is_turn(memory, low):
                        return
                    memory.pin(high)
                    with self._changed:
                        self._changed.notify_all()
        except Exception:  # results go through other memory, and a kernel's error shows there
            with self._changed:
                self._is_ended = True
                self._changed.notify_all()

    def _is_turn(self, memory: GrowingMemory, low: int) -> bool:
        """Wait until a memory is pinned up to an offset; False: it will not be."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ended or memory.pinned == low)
            return not self._is_ended

    def _next_step(self) -> tuple[GrowingMemory, int, int] | None:
        """A step of the memory of which the smallest share is pinned; waits for one. None: there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ended or self._wanted != self._claimed)
            if self._is_ended:
                return None
            behind = [n for n, wanted in enumerate(self._wanted) if self._claimed[n] < wanted]
            number = min(behind, key=lambda n: self._claimed[n] / self._wanted[n])
            low = self._claimed[number]
            memory = self._memories[number]
            high = self._claimed[number] = self._wanted[number]
            return memory, low, high


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
