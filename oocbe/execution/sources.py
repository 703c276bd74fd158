"""Reading of tables' rows: one protocol for rows in memory, on disk, packed, or in a slice of another source.

A :class:`Source` is read by row numbers. Sorted rows can also be read by keys, without a pass over them: rows in memory
(:class:`InMemorySource`) by bisection, rows on disk (:class:`StoredRows`) by bisection of the index of chunks and then
of one chunk's keys, and packed ones by :class:`oocbe.tables.packed.PackedKeys`. A key is one number, word 0 least
significant.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.pairs.sort import find_rows
from oocbe.model.row_numbers import even_ranges, first_not_below, key_number, stretches_of
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.tracing.recorder import phase
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedTable
from oocbe.tables.residence import to_host
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table


class Source(Protocol):
    """Rows in a fixed order. A packed table satisfies this protocol."""

    @property
    def layout(self) -> Layout:
        """Type of the keys."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def is_sorted(self) -> bool:
        """Whether keys ascend."""

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Rows ``start`` and following into the caller's arrays: (words, rows) and (rows,), or None for keys alone."""

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows, each cheap to read separately."""


def row_bytes(layout: Layout, dtype: np.dtype[Any]) -> int:
    """Bytes of a row: key words and value."""
    return 8 * layout.words + dtype.itemsize


class EvenStretches:
    """Rows that may be cut anywhere, in stretches of equal numbers of rows but the last; see ``KeyedRows``.

    rows : number of rows. stretch_rows : rows of a stretch, whose first and last key are used to cut the rows.
    """

    rows: int
    stretch_rows: int

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """Ranges of ``most`` rows; see :class:`Source`."""
        return even_ranges(self.rows, most)

    @property
    def stretch_count(self) -> int:
        """Stretches."""
        return -(-self.rows // self.stretch_rows)

    def stretch_start(self, stretch: int) -> int:
        """First row of a stretch; all rows for one behind the last."""
        return min(stretch * self.stretch_rows, self.rows)


class InMemorySource(EvenStretches):
    """A table in memory; rows on a device are copied to main memory.

    table : the table. row_bytes : of one row's key words and value. Others as for :class:`Source`.
    """

    def __init__(self, table: Table, stretch_rows: int | None = None) -> None:
        table = to_host(table)
        self.layout, self.dtype, self.rows, self.is_sorted = table.layout, table.dtype, table.rows, table.is_sorted
        self.row_bytes = table.row_bytes
        self.stretch_rows = tuning().stretch_rows if stretch_rows is None else stretch_rows
        self.table = table

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Copy rows from ``start`` on; see :class:`Source`."""
        rows = slice(start, start + keys.shape[1])
        keys[:] = self.table.keys[:, rows]
        if values is not None:
            values[:] = self.table.values[rows]

    def edge_keys(self, stretch: int) -> tuple[int, int]:
        """Keys of the first and the last row of a stretch."""
        keys = self.keys_of(stretch)
        return key_number(keys, 0), key_number(keys, keys.shape[1] - 1)

    def keys_of(self, stretch: int) -> NDArray[np.uint64]:
        """Keys of all rows of a stretch, uint64 (words, rows): part of the table's own."""
        return self.table.keys[:, stretch * self.stretch_rows : (stretch + 1) * self.stretch_rows]

    def key(self, row: int) -> int:
        """Key of a row."""
        return key_number(self.table.keys, row)

    def place(self, number: int, low: int, high: int) -> int:
        """First row of a range whose key is not below a number; ``high`` where there is none."""
        return first_not_below(self.table.keys, number, low, high)

    def read(self, low: int, high: int) -> Table:
        """Rows of a range; arrays of the table itself where they are contiguous."""
        keys = np.ascontiguousarray(self.table.keys[:, low:high])
        return Table(self.layout, keys, self.table.values[low:high], self.table.semiring, self.is_sorted)

    def keys_at(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Keys, uint64 (words, n), of rows in ascending order."""
        return np.ascontiguousarray(self.table.keys[:, rows])

    def look_up(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Row of each key, uint64 (words, n) in any order, or -1; and values of the rows found, in the keys' order."""
        found = np.empty(keys.shape[1], dtype=np.int64)
        find_rows(self.table.keys, keys, found)
        return found, self.table.values[found[found >= 0]]


class ChunkCache:
    """Thread-safe cache of the last decoded chunks: at least one, and up to ``limit`` bytes of keys and values."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[int, int], tuple[StoredTable, Table]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def chunk(self, table: StoredTable, number: int) -> Table:
        """Rows of a chunk; every byte is verified on reading."""
        name = (id(table), number)
        with self._lock:
            found = self._held.get(name)
            if found is not None:
                self._held.move_to_end(name)
                return found[1]
        rows = table.read(table.chunk_start(number), table.chunk_start(number + 1))
        with self._lock:
            if name not in self._held:
                self._held[name] = table, rows  # keeps the table alive, as its identity is the entry's key
                self._bytes += rows.nbytes
                while self._bytes > self._limit and len(self._held) > 1:
                    self._bytes -= self._held.popitem(last=False)[1][1].nbytes
        return rows


class StoredRows:
    """A table on disk.

    cache : of decoded chunks, for lookups by keys; None: its own cache for one chunk.
    table : the table. stretch_rows : rows of a chunk, at most. row_bytes : of one row's key words and value. Others as
        for :class:`Source`.
    """

    def __init__(self, table: StoredTable, cache: ChunkCache | None = None) -> None:
        self.layout, self.dtype, self.rows, self.is_sorted = table.layout, table.dtype, table.rows, table.is_sorted
        self.row_bytes = table.row_bytes
        self.stretch_rows = table.chunk_rows
        self.table = table
        self._cache = cache or ChunkCache(0)

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Decode rows from ``start`` on; see :class:`Source`."""
        self.table.read_into(start, keys, values)

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """Ranges of whole chunks where they are small enough; see :class:`Source`."""
        table = self.table
        if most < table.chunk_rows:
            yield from even_ranges(self.rows, most)
            return
        start = 0
        while start < self.rows:
            stop = table.chunk_start(table.chunk_at(start + most)) if start + most < self.rows else self.rows
            yield start, stop
            start = stop

    @property
    def stretch_count(self) -> int:
        """Chunks."""
        return self.table.chunk_count

    def stretch_start(self, stretch: int) -> int:
        """First row of a chunk; all rows for one behind the last."""
        return self.table.chunk_start(stretch)

    def edge_keys(self, stretch: int) -> tuple[int, int]:
        """Keys of the first and the last row of a chunk; nothing is read."""
        return self.table.chunk_keys(stretch)

    def keys_of(self, stretch: int) -> NDArray[np.uint64]:
        """Keys of all rows of a chunk, uint64 (words, rows); read, and not kept."""
        start = self.table.chunk_start(stretch)
        keys = np.empty((self.layout.words, self.table.chunk_start(stretch + 1) - start), dtype=np.uint64)
        self.table.read_into(start, keys, None, alone=True)
        return keys

    def key(self, row: int) -> int:
        """Key of a row; the first and the last one of a chunk are in the index."""
        chunk = self.table.chunk_at(row)
        first, last = self.table.chunk_keys(chunk)
        place = row - self.table.chunk_start(chunk)
        if place == 0:
            return first
        if row + 1 == self.table.chunk_start(chunk + 1):
            return last
        return key_number(self._cache.chunk(self.table, chunk).keys, place)

    def place(self, number: int, low: int, high: int) -> int:
        """First row of a range whose key is not below a number; ``high`` where there is none."""
        if low >= high:
            return high
        table = self.table
        chunk = table.first_chunk_not_below(number, table.chunk_at(low), table.chunk_at(high - 1) + 1)
        start = table.chunk_start(chunk)
        if start >= high or number <= table.chunk_keys(chunk)[0]:
            return min(max(low, start), high)
        keys = self._cache.chunk(table, chunk).keys
        found = start + first_not_below(keys, number, 0, keys.shape[1])
        return min(max(low, found), high)

    def read(self, low: int, high: int) -> Table:
        """Rows of a range in memory."""
        return self.table.read(low, high)

    def keys_at(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Keys, uint64 (words, n), of rows in ascending order."""
        table = self.table
        keys = np.empty((self.layout.words, len(rows)), dtype=np.uint64)
        start = 0
        while start < len(rows):
            chunk = table.chunk_at(int(rows[start]))
            stop = int(np.searchsorted(rows, table.chunk_start(chunk + 1)))
            places = rows[start:stop] - table.chunk_start(chunk)
            keys[:, start:stop] = self._cache.chunk(table, chunk).keys[:, places]
            start = stop
        return keys

    def look_up(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Row of each key, uint64 (words, n) in any order, or -1; and values of the rows found, in the keys' order.

        The chunks that may contain some of the keys are read in order.
        """
        order = np.lexsort(keys)
        ascending = np.ascontiguousarray(keys[:, order])
        places = np.full(len(order), -1, dtype=np.int64)
        values = np.empty(len(order), dtype=self.dtype)
        start, chunk = 0, 0
        while start < len(order):
            chunk = self.table.first_chunk_not_below(key_number(ascending, start), chunk, self.table.chunk_count)
            if chunk == self.table.chunk_count:
                break
            stop = first_not_below(ascending, self.table.chunk_keys(chunk)[1] + 1, start, len(order))
            rows = self._cache.chunk(self.table, chunk)
            found = np.empty(stop - start, dtype=np.int64)
            find_rows(rows.keys, np.ascontiguousarray(ascending[:, start:stop]), found)
            mine = order[start:stop]
            values[mine] = rows.values[found]  # ignored for keys that were not found
            places[mine] = np.where(found < 0, -1, found + self.table.chunk_start(chunk))
            start = stop
        return places, values[places >= 0]


SortedRows = InMemorySource | StoredRows
"""Rows that can be cut, looked up and read by ranges of keys."""


class SliceSource:
    """The concatenation of some segments of another source; adjacent segments are merged.

    starts, counts : int64 (segments,), first row and rows of each segment in the source, in the order wanted.
    """

    def __init__(self, source: Source, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        self.layout, self.dtype, self.is_sorted = source.layout, source.dtype, source.is_sorted
        self._source = source
        joins = starts[1:] == (starts + counts)[:-1]
        heads = np.flatnonzero(np.append(True, ~joins)[: len(starts)])
        starts, counts = starts[heads], np.add.reduceat(counts, heads) if len(heads) else counts
        self._starts, self._counts = starts, counts
        self._places = np.concatenate(([0], np.cumsum(counts)))
        self.rows = int(self._places[-1])

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Rows of the segments from ``start`` on; see :class:`Source`."""
        for segment, skipped, rows in stretches_of(self._places, start, keys.shape[1]):
            first = int(self._starts[segment]) + skipped
            self._source.read_into(first, keys[:, rows], None if values is None else values[rows])

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """Ranges of whole segments where they are small enough; see :class:`Source`."""
        start = 0
        while start < self.rows:
            fitting = int(self._places[np.searchsorted(self._places, start + most, side="right") - 1])
            stop = fitting if fitting > start else start + most
            yield start, stop
            start = stop


def sliced(source: Source, start: int, stop: int) -> SliceSource:
    """Rows ``start`` to ``stop`` of a source."""
    return SliceSource(source, np.array([start], dtype=np.int64), np.array([stop - start], dtype=np.int64))


def source_of(table: Table | StoredTable | PackedTable) -> Source:
    """A table as a source."""
    if isinstance(table, PackedTable):
        return table
    return InMemorySource(table) if isinstance(table, Table) else StoredRows(table)


class Buffers:
    """Arrays of a stream, reused for each piece, as the system clears new pages at more cost than writing rows."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def clear(self) -> None:
        """Release all arrays."""
        self._arrays.clear()

    def take(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A contiguous array, not cleared; it holds what it held until its name is taken again."""
        count = int(np.prod(shape, dtype=np.int64))
        held = self._arrays.get(name)
        if held is None or held.nbytes < count * dtype.itemsize:
            self._arrays.pop(name, None)
            del held  # the old one goes before the new one comes
            held = self._arrays[name] = np.empty(count * dtype.itemsize, dtype=np.uint8)
        return held[: count * dtype.itemsize].view(dtype).reshape(shape)

    def load(self, name: str, source: Source, start: int = 0, stop: int | None = None) -> Table:
        """Rows ``start`` to ``stop`` of a source as a table in this stream's arrays; its semiring is arbitrary."""
        rows = (source.rows if stop is None else stop) - start
        keys = self.take(f"{name} keys", (source.layout.words, rows), np.dtype(np.uint64))
        values = self.take(f"{name} values", (rows,), source.dtype)
        if rows:
            with phase("read"):
                source.read_into(start, keys, values)
        return Table(source.layout, keys, values, is_sorted=source.is_sorted or rows < 2)
