"""Messages of a sweep over a stored tree: in memory while they fit, else in an unnamed file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.nameless_file import NamelessFile
from oocbe.tables.scratch import default_parent


class MessageStore:
    """Messages by number of the sending or receiving clique: float64 (rows of the separator, cases).

    Parameters
    ----------
    memory : limit of messages in memory, in bytes.
    """

    def __init__(self, memory: int) -> None:
        self._left = memory
        self._held: dict[int, NDArray[np.float64]] = {}
        self._places: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._file: NamelessFile | None = None
        self._end = 0

    def put(self, number: int, message: NDArray[np.float64]) -> None:
        """Store a copy of a message, in place of an earlier one, of the same shape, with its number.

        Raises
        ------
        DiskError : the disk is full, or fails.
        """
        if number not in self._held and number not in self._places and message.nbytes <= self._left:
            self._left -= message.nbytes
            self._held[number] = np.empty_like(message)
        if number in self._held:
            self._held[number][:] = message
            return
        data = np.ascontiguousarray(message).data.cast("B")
        if self._file is None:
            self._file = NamelessFile(DiskBudget(default_parent()), "messages of a junction tree")
        if number in self._places:
            self._file.write(data, self._places[number][0], 0)
            return
        self._file.write(data, self._end, len(data))
        self._places[number] = (self._end, message.shape)
        self._end += len(data)

    def get(self, number: int) -> NDArray[np.float64]:
        """A message, which the caller then owns."""
        if number in self._held:
            return self._held[number].copy()
        found = np.empty(self._places[number][1])
        self.read(number, found)
        return found

    def read(self, number: int, into: NDArray[np.float64]) -> None:
        """Copy a message into a C-contiguous array of its shape."""
        if number in self._held:
            into[:] = self._held[number]
        elif into.size:
            assert self._file is not None
            self._file.read(into.data.cast("B"), self._places[number][0])

    def close(self) -> None:
        """Release memory and file."""
        self._held.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
