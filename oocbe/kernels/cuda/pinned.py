"""Pinned main memory, taken quickly and used again.

The driver takes fresh pinned memory at 2 GB/s, page by page on one thread. Here threads touch fresh memory first, in
large pages where the system has them, and the driver is handed pages that exist: 9 GB/s on 16 cores
(benchmarks/RESULTS.md).
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

import numpy as np

from oocbe.kernels.cpu.threads import thread_count
from oocbe.kernels.cuda.device import cupy
from oocbe.stretches import Bytes, Region, rounded

TOUCHED_AT_ONCE = 32 << 20
"""A thread touches so many bytes of fresh memory in one call."""

MOST_THREADS = 16


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
            region = self._make_region(rounded(nbytes))
            self._regions.append(region)
            found = region.take(nbytes)
        assert found is not None
        return found

    def held_bytes(self) -> int:
        """Bytes that are pinned now, free ones included."""
        with self._lock:
            return sum(len(region.memory) for region in self._regions)

    def _drop_free_regions(self) -> None:
        kept = []
        for region in self._regions:
            if region.is_free():
                region.close()
            else:
                kept.append(region)
        self._regions = kept


@cache
def pinned_memory() -> PinnedMemory:
    """The pinned memory of this process."""
    return PinnedMemory(pinned_region)


def pinned_region(nbytes: int) -> Region:
    """A fresh region of pinned memory.

    Raises
    ------
    MemoryError : the system has no such memory, or does not pin it.
    """
    runtime = cupy().cuda.runtime
    memory = touched(nbytes)
    try:
        runtime.hostRegister(memory.ctypes.data, nbytes, 0)
    except runtime.CUDARuntimeError as error:
        raise MemoryError(f"{nbytes:,} bytes of main memory could not be pinned: {error}") from error
    return Region(memory, _unregister)


def _unregister(memory: Bytes) -> None:
    # At the end of the process the driver may be gone already.
    with suppress(cupy().cuda.runtime.CUDARuntimeError):
        cupy().cuda.runtime.hostUnregister(memory.ctypes.data)


def touched(nbytes: int) -> Bytes:
    """Fresh memory (nbytes,) whose pages exist, in large pages where the system has them; all zero.

    Raises
    ------
    MemoryError : there is no such memory.
    """
    try:
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no {nbytes:,} bytes of main memory: {error.strerror}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(memory, np.uint8)
    parts = [array[low : low + TOUCHED_AT_ONCE : mmap.PAGESIZE] for low in range(0, nbytes, TOUCHED_AT_ONCE)]
    threads = min(MOST_THREADS, thread_count(), len(parts))
    if threads == 1:
        for part in parts:
            part.fill(0)
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="oocbe-touch") as pool:
            list(pool.map(lambda part: part.fill(0), parts))
    return array
