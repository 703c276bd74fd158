"""Stretches of a piece of memory, handed out as arrays; each is free again when the last array over it is gone."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 4096
"""Stretches begin at multiples of so many bytes, and have a multiple of it."""

Bytes = NDArray[np.uint8]


class Region:
    """Memory of one piece, of which stretches are taken; any thread may take, and arrays may die in any.

    Parameters
    ----------
    memory : (bytes,). give_up : called once :meth:`close` was called and no stretch is in use any more.
    """

    def __init__(self, memory: Bytes, give_up: Callable[[Bytes], None]) -> None:
        self.memory = memory
        self._give_up = give_up
        self._free = [(0, len(memory))]  # in order, never side by side
        self._lock = threading.RLock()
        # Arrays die at any moment, also inside these methods: what they give back waits here.
        self._returned: deque[tuple[int, int]] = deque()
        self._is_closed = False

    def take(self, nbytes: int) -> Bytes | None:
        """An array of so many bytes, not set to anything, from the smallest free stretch that has room; or None."""
        room = rounded(nbytes)
        with self._lock:
            self._collect()
            fitting = [(stop - start, place) for place, (start, stop) in enumerate(self._free) if stop - start >= room]
            if not fitting:
                return None
            _, place = min(fitting)
            start, stop = self._free[place]
            self._free[place : place + 1] = [(start + room, stop)] if start + room < stop else []
        return np.asarray(_Lease(self, start, nbytes, room))

    def largest(self) -> int:
        """Bytes of the largest free stretch."""
        with self._lock:
            self._collect()
            return max((stop - start for start, stop in self._free), default=0)

    def is_free(self) -> bool:
        """Whether no stretch is in use."""
        return self.largest() == len(self.memory)

    def close(self) -> None:
        """Give the memory up, now or as soon as the last array over it is gone."""
        self._is_closed = True
        self._give_back(0, 0)

    def _give_back(self, start: int, stop: int) -> None:
        self._returned.append((start, stop))
        if self._is_closed and self.is_free():
            with self._lock:
                give_up, self._give_up = self._give_up, _nothing
                give_up(self.memory)

    def _collect(self) -> None:
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


def rounded(nbytes: int) -> int:
    """Bytes of the stretch that has room for so many."""
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT


def shorten(array: Bytes, nbytes: int) -> None:
    """Give back all of a stretch but its first bytes; ``array`` is what :meth:`Region.take` gave."""
    lease: object = array.base
    assert isinstance(lease, _Lease)
    lease.shorten(nbytes)


class _Lease:
    """What all arrays over a stretch are based on: dies with the last of them."""

    def __init__(self, region: Region, start: int, nbytes: int, room: int) -> None:
        self._region, self._start, self._stop = region, start, start + room
        self.__array_interface__: dict[str, Any] = region.memory[start : start + nbytes].__array_interface__

    def shorten(self, nbytes: int) -> None:
        stop = min(self._stop, self._start + rounded(nbytes))
        self._region._give_back(stop, self._stop)
        self._stop = stop

    def __del__(self) -> None:
        self._region._give_back(self._start, self._stop)


def _nothing(_: Bytes) -> None:
    pass
