"""Memory regions, and stretches of them as arrays; a stretch is free again after deletion of its last array."""

from __future__ import annotations

import mmap
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 4096
"""Alignment of the starts and sizes of stretches, in bytes."""

Bytes = NDArray[np.uint8]


def fresh_memory(nbytes: int, flags: int = 0) -> Bytes:
    """Zeros (nbytes,), allocated by the system page by page on first access, in large pages if available.

    flags : of the mapping, in addition to those for private memory.

    Raises OSError: the allocation failed.
    """
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
    with suppress(OSError):  # not every system has large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


class Region:
    """One block of memory from which stretches are allocated; thread-safe, including the deletion of arrays.

    memory : (bytes,). give_up : called after :meth:`close`, as soon as no stretch is in use.
    """

    def __init__(self, memory: Bytes, give_up: Callable[[], None]) -> None:
        self.memory, self._give_up = memory, give_up
        self._free = [(0, len(memory))]  # in order, never side by side
        self._lock = threading.RLock()
        # Arrays may be deleted at any moment, also within these methods: their stretches are queued here.
        self._returned: deque[tuple[int, int]] = deque()
        self._is_collecting = self._is_closed = False

    def take(self, nbytes: int) -> Bytes | None:
        """An uninitialised array of ``nbytes`` from the smallest fitting stretch; None without, or once closed."""
        room = rounded(nbytes)
        with self._lock:
            self._collect()
            fitting = [(stop - start, place) for place, (start, stop) in enumerate(self._free) if stop - start >= room]
            if not fitting or self._is_closed:
                return None
            _, place = min(fitting)
            start, stop = self._free[place]
            self._free[place : place + 1] = [(start + room, stop)] if start + room < stop else []
        return np.asarray(_Lease(self, start, nbytes, room))

    def largest(self) -> int:
        """Bytes of the largest free stretch; 0 after :meth:`close`."""
        with self._lock:
            self._collect()
            return 0 if self._is_closed else max((stop - start for start, stop in self._free), default=0)

    def is_free(self) -> bool:
        """Whether no stretch is in use."""
        with self._lock:
            self._collect()
            return self._free == [(0, len(self.memory))]

    def close(self) -> None:
        """End allocation, and release the memory, now or with the deletion of the last array over it."""
        with self._lock:
            self._is_closed = True
            self._collect()

    def _give_back(self, start: int, stop: int) -> None:
        self._returned.append((start, stop))
        if self._is_closed:
            with self._lock:
                self._collect()

    def _collect(self) -> None:
        """Merge the returned stretches into the free list; the lock is held."""
        if self._is_collecting:  # called by a deletion within the loop, which will handle it
            return
        self._is_collecting = True
        try:
            while self._returned:
                merged: list[tuple[int, int]] = []
                for low, high in sorted([*self._free, self._returned.popleft()]):
                    if low == high:
                        continue
                    if merged and merged[-1][1] == low:
                        merged[-1] = (merged[-1][0], high)
                    else:
                        merged.append((low, high))
                self._free = merged
        finally:
            self._is_collecting = False
        if self._is_closed and self._free == [(0, len(self.memory))]:
            give_up, self._give_up = self._give_up, lambda: None
            give_up()


def rounded(nbytes: int) -> int:
    """Size of a stretch for ``nbytes`` bytes."""
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT


def shorten(array: Bytes, nbytes: int) -> None:
    """Return all of a stretch except its first bytes; ``array`` is from :meth:`Region.take`."""
    lease: object = array.base
    assert isinstance(lease, _Lease)
    lease.shorten(nbytes)


class _Lease:
    """Base object of all arrays over a stretch; deleted with the last of them."""

    def __init__(self, region: Region, start: int, nbytes: int, room: int) -> None:
        self._region, self._start, self._stop = region, start, start + room
        self.__array_interface__: dict[str, Any] = region.memory[start : start + nbytes].__array_interface__

    def shorten(self, nbytes: int) -> None:
        # In this order, an interrupt in between leaks the rest, but never returns it twice.
        stop, self._stop = self._stop, min(self._stop, self._start + rounded(nbytes))
        self._region._give_back(self._stop, stop)

    def __del__(self) -> None:
        self._region._give_back(self._start, self._stop)
