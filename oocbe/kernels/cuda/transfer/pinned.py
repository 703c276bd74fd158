"""Pinned host memory, allocated quickly and reused.

The driver pins fresh memory at 2 GB/s, page by page on one thread. Here threads first touch fresh memory, in large
pages if the system has them, and the driver pins existing pages: 9 GB/s on 16 cores (benchmarks/RESULTS.md).
"""

from __future__ import annotations

import mmap
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from oocbe.kernels.cpu.threads import thread_count
from oocbe.kernels.cuda.device import cupy
from oocbe.runtime.stretches import Bytes, Region, fresh_memory, rounded

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
