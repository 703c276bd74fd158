"""Pinned main memory, taken quickly and used again.

The driver takes fresh pinned memory at 2 GB/s, page by page on one thread. Here threads touch fresh memory first, in
large pages where the system has them, and the driver is handed pages that exist: 9 GB/s on 16 cores
(benchmarks/RESULTS.md).
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

TOUCHED_AT_ONCE = 32 << 20
"""Fresh memory that a thread touches in one call, in bytes."""

MOST_THREADS = 16
"""Maximum number of threads that touch fresh memory."""

SPARE = 8
"""A region exceeds the requested size by one part in so many: the next piece may be a little larger."""

NOT_PINNED = (2, 304, 712, 801)
"""The runtime's codes for no memory, a call of the system that failed, memory pinned already, and not supported."""


class PinnedMemory:
    """Hands out stretches of pinned memory; a stretch is free again when the last array over it is gone.

    Regions stay pinned until memory is asked for that none of them has room for: then those that are free as a whole
    go back to the system before a new one is taken.

    Parameters
    ----------
    make_region : a fresh region of so many bytes.
    """

    def __init__(self, make_region: Callable[[int], Region]) -> None:
        self._make_region = make_region
        self._regions: list[Region] = []
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Bytes:
        """An array of so many bytes, not set to anything.

        Raises
        ------
        MemoryError : the system has no such memory, or does not pin it.
        """
        with self._lock:
            for region in self._regions:
                found = region.take(nbytes)
                if found is not None:
                    return found
            self._drop_free_regions()
            # A little more: the next piece may be a little larger.
            region = self._make_region(rounded(nbytes + nbytes // SPARE))
            self._regions.append(region)
            found = region.take(nbytes)
        assert found is not None
        return found

    def held_bytes(self) -> int:
        """Bytes that are pinned now, free ones included."""
        with self._lock:
            return sum(len(region.memory) for region in self._regions)

    def keep_within(self, nbytes: int) -> None:
        """Give regions that are free as a whole back to the system, where more than so many bytes are pinned."""
        if self.held_bytes() > nbytes:
            with self._lock:
                self._drop_free_regions()

    def _drop_free_regions(self) -> None:
        for region in list(self._regions):
            if region.is_free():
                self._regions.remove(region)
                region.close()


def pinned_region(nbytes: int) -> Region:
    """A fresh region of pinned memory.

    Raises
    ------
    MemoryError : the system has no such memory, or does not pin it.
    """
    runtime = cupy().cuda.runtime
    memory = touched(nbytes)
    address = memory.ctypes.data
    try:
        runtime.hostRegister(address, nbytes, 0)
    except runtime.CUDARuntimeError as error:
        if error.status not in NOT_PINNED:  # the next call, whichever it is, reports the error of an earlier kernel
            raise
        raise MemoryError(f"{nbytes:,} bytes of main memory could not be pinned: {error}") from error
    return Region(memory, partial(_unregister, address))


def _unregister(address: int) -> None:
    # At process exit the driver and modules may be unloaded already; the system frees all memory.
    if not sys.is_finalizing():
        cupy().cuda.runtime.hostUnregister(address)


def touched(nbytes: int) -> Bytes:
    """Fresh memory (nbytes,) whose pages exist, in large pages where the system has them; all zero.

    Raises
    ------
    MemoryError : there is no such memory.
    """
    try:
        array = fresh_memory(nbytes)
    except OSError as error:
        raise MemoryError(f"no {nbytes:,} bytes of main memory: {error.strerror}") from error
    parts = [array[low : low + TOUCHED_AT_ONCE : mmap.PAGESIZE] for low in range(0, nbytes, TOUCHED_AT_ONCE)]
    threads = min(MOST_THREADS, thread_count(), len(parts))
    if threads == 1:
        for part in parts:
            part.fill(0)
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="oocbe-touch") as pool:
            list(pool.map(lambda part: part.fill(0), parts))
    return array


_POOL = PinnedMemory(pinned_region)
"""The pinned memory of this process."""


def pinned_memory() -> PinnedMemory:
    """The pinned memory of this process."""
    return _POOL
