"""Sorted rows read by key range: where keys lie is found by bisection, and only the rows asked for are read.

A table on disk is bisected in its index of chunks first, then in the keys of one chunk. Chunks that were decoded last
stay in a cache of limited size, which all tables of a bucket share: neighbouring pieces begin and end in the same ones.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.backend import in_main_memory
from oocbe.kernels.cpu.pairs.search import find_rows
from oocbe.model.row_numbers import key_number
from oocbe.streaming.sources import row_bytes
from oocbe.tables.layout import WORD_BITS, Layout
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table


class SortedRows(Protocol):
    """Rows with ascending keys; a key is one number, word 0 least significant.

    Attributes
    ----------
    layout, dtype : of keys and values.
    rows : number of rows. row_bytes : of one row's key words and value.
    is_held : whether all rows are in memory.
    """

    layout: Layout
    dtype: np.dtype[Any]
    rows: int
    row_bytes: int
    is_held: bool

    def key(self, row: int) -> int:
        """Key of a row."""

    def place(self, number: int, low: int, high: int) -> int:
        """First row of a range whose key is not below a number; ``high`` where there is none."""

    def read(self, low: int, high: int) -> Table:
        """Rows of a range in memory."""

    def keys_at(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Keys, uint64 (words, n), of rows in ascending order."""

    def look_up(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Row of each key, uint64 (words, n) in any order, or -1; and values of the rows found, in the keys' order."""


class HeldRows:
    """A sorted table in memory (rows of a device's are brought back)."""

    is_held = True

    def __init__(self, table: Table) -> None:
        self._table = replace(table, keys=in_main_memory(table.keys), values=in_main_memory(table.values))
        self.layout, self.dtype, self.rows = table.layout, table.values.dtype, table.rows
        self.row_bytes = row_bytes(self.layout, self.dtype)

    def key(self, row: int) -> int:
        """Key of a row in memory."""
        return key_number(self._table.keys, row)

    def place(self, number: int, low: int, high: int) -> int:
        """First row of a range whose key is not below a number, by bisection; ``high`` where there is none."""
        return first_not_below(self._table.keys, number, low, high)

    def read(self, low: int, high: int) -> Table:
        """Rows of a range: arrays of the table itself where they are contiguous."""
        keys = np.ascontiguousarray(self._table.keys[:, low:high])
        return replace(self._table, keys=keys, values=self._table.values[low:high])

    def keys_at(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Keys, uint64 (words, n), of rows in ascending order, copied."""
        return np.ascontiguousarray(self._table.keys[:, rows])

    def look_up(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Row of each key, or -1, and values of the rows found, by a search in all rows."""
        found = np.empty(keys.shape[1], dtype=np.int64)
        find_rows(self._table.keys, keys, found)
        return found, self._table.values[found[found >= 0]]


class ChunkCache:
    """Decoded chunks of stored tables, the most recent ones within a limit; at least one. For several threads.

    Parameters
    ----------
    limit : bytes of keys and values.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[int, int], tuple[StoredTable, Table]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def chunk(self, table: StoredTable, number: int) -> Table:
        """Rows of a chunk, every byte checked when it is read."""
        name = (id(table), number)
        with self._lock:
            found = self._held.get(name)
            if found is not None:
                self._held.move_to_end(name)
                return found[1]
        rows = table.read(number * table.chunk_rows, (number + 1) * table.chunk_rows)
        with self._lock:
            if name not in self._held:
                self._held[name] = table, rows  # the table, too: its identity names the entry
                self._bytes += rows.nbytes
                while self._bytes > self._limit and len(self._held) > 1:
                    self._bytes -= self._held.popitem(last=False)[1][1].nbytes
        return rows


class StoredRows:
    """A sorted table on disk."""

    is_held = False

    def __init__(self, table: StoredTable, cache: ChunkCache) -> None:
        self.layout, self.dtype, self.rows = table.layout, table.dtype, table.rows
        self.row_bytes = row_bytes(self.layout, self.dtype)
        self._table = table
        self._cache = cache

    def key(self, row: int) -> int:
        """Key of a row; the first and the last key of a chunk are in the index."""
        chunk, place = divmod(row, self._table.chunk_rows)
        first, last = self._table.chunk_keys(chunk)
        if place == 0:
            return first
        if row + 1 == self.rows or place + 1 == self._table.chunk_rows:
            return last
        return key_number(self._cache.chunk(self._table, chunk).keys, place)

    def place(self, number: int, low: int, high: int) -> int:
        """First row of a range whose key is not below a number, by the index and one chunk; ``high`` where none is."""
        if low >= high:
            return high
        size = self._table.chunk_rows
        chunk = self._table.first_chunk_not_below(number, low // size, (high - 1) // size + 1)
        if chunk * size >= high or number <= self._table.chunk_keys(chunk)[0]:
            return min(max(low, chunk * size), high)
        keys = self._cache.chunk(self._table, chunk).keys
        found = chunk * size + first_not_below(keys, number, 0, keys.shape[1])
        return min(max(low, found), high)

    def read(self, low: int, high: int) -> Table:
        """Rows of a range, read from their chunks."""
        return self._table.read(low, high)

    def keys_at(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Keys, uint64 (words, n), of rows in ascending order, chunk by chunk."""
        size = self._table.chunk_rows
        keys = np.empty((self.layout.words, len(rows)), dtype=np.uint64)
        start = 0
        while start < len(rows):
            chunk = int(rows[start]) // size
            stop = int(np.searchsorted(rows, (chunk + 1) * size))
            keys[:, start:stop] = self._cache.chunk(self._table, chunk).keys[:, rows[start:stop] - chunk * size]
            start = stop
        return keys

    def look_up(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Row of each key, or -1, and values of the rows found: chunk by chunk, of those that may have some."""
        order = np.lexsort(keys)
        ascending = np.ascontiguousarray(keys[:, order])
        places = np.full(len(order), -1, dtype=np.int64)
        values = np.empty(len(order), dtype=self.dtype)
        start, chunk = 0, 0
        while start < len(order):
            chunk = self._table.first_chunk_not_below(key_number(ascending, start), chunk, self._table.chunk_count)
            if chunk == self._table.chunk_count:
                break
            stop = first_not_below(ascending, self._table.chunk_keys(chunk)[1] + 1, start, len(order))
            rows = self._cache.chunk(self._table, chunk)
            found = np.empty(stop - start, dtype=np.int64)
            find_rows(rows.keys, np.ascontiguousarray(ascending[:, start:stop]), found)
            mine = order[start:stop]
            values[mine] = rows.values[found]  # of no account where nothing was found
            places[mine] = np.where(found < 0, -1, found + chunk * self._table.chunk_rows)
            start = stop
        return places, values[places >= 0]


def first_not_below(keys: NDArray[np.uint64], number: int, low: int, high: int) -> int:
    """First row of a range of ascending keys, uint64 (words, rows), that is not below a number; else ``high``."""
    if number >> WORD_BITS * len(keys):
        return high
    if len(keys) == 1:
        return low + int(np.searchsorted(keys[0, low:high], np.uint64(number)))
    while low < high:
        middle = (low + high) // 2
        if key_number(keys, middle) < number:
            low = middle + 1
        else:
            high = middle
    return low
