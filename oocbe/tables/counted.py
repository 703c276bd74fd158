"""A stored table that reports each read: number of rows, and their writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.tables.stored import StoredTable

Hears = Callable[[int, str | None], None]
"""Callback for rows read and their writer (None: unknown); called from any thread."""


class CountedTable(StoredTable):
    """A view of a stored table that reports each read of its rows.

    A read of keys counts, each time. Reads ahead do not count.

    Parameters
    ----------
    table : the original, unchanged. hears : callback for each read.
    """

    def __init__(self, table: StoredTable, hears: Hears) -> None:
        self.__dict__.update(table.__dict__)
        self._table, self._hears = table, hears

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None, alone: bool = False) -> None:
        """Rows ``start`` and following into the caller's arrays; see :class:`StoredTable`."""
        self._table.read_into(start, keys, values, alone)
        stop = start + keys.shape[1]
        if start == stop:
            return
        for chunk in range(self.chunk_at(start), self.chunk_at(stop - 1) + 1):
            rows = min(stop, self.chunk_start(chunk + 1)) - max(start, self.chunk_start(chunk))
            self._hears(rows, self._index.writer(chunk))

    def packed_chunk(self, column: int, chunk: int) -> NDArray[np.uint64]:
        """A chunk of a column, packed; see :class:`StoredTable`."""
        found = self._table.packed_chunk(column, chunk)
        self._hear_of_chunk(column, chunk)
        return found

    def packed_chunk_into(self, column: int, chunk: int, target: NDArray[np.uint64]) -> None:
        """The same into memory of the chunk's size; see :class:`StoredTable`."""
        self._table.packed_chunk_into(column, chunk, target)
        self._hear_of_chunk(column, chunk)

    def _hear_of_chunk(self, column: int, chunk: int) -> None:
        if column == 0:  # each chunk is counted once, not once per column
            self._hears(self.chunk_start(chunk + 1) - self.chunk_start(chunk), self._index.writer(chunk))
