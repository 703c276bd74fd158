"""Sources of rows: tables in memory, tables on disk, scratch files, and slices of these, all read by row numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.backend import in_main_memory
from oocbe.model.row_numbers import key_number
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from oocbe.tracing.recorder import phase

STRETCH_ROWS = 1 << 16
"""Rows of a stretch of a table in memory."""


class Source(Protocol):
    """Rows in a fixed order.

    Attributes
    ----------
    layout, dtype : of keys and values.
    rows : number of rows.
    is_sorted : whether keys ascend.
    """

    layout: Layout
    dtype: np.dtype[Any]
    rows: int
    is_sorted: bool

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Rows ``start`` and following into the caller's arrays: (words, rows) and (rows,), or None for keys alone."""

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows, each cheap to read by itself."""


@runtime_checkable
class Indexed(Source, Protocol):
    """A source that tells keys of its *stretches*, each of ``stretch_rows`` rows but the last one, without a pass."""

    stretch_rows: int

    def edge_keys(self, stretch: int) -> tuple[int, int]:
        """Keys of the first and the last row of a stretch, each as one number (word 0 least significant)."""

    def keys_of(self, stretch: int) -> NDArray[np.uint64]:
        """Keys of all rows of a stretch, uint64 (words, rows)."""


def row_bytes(layout: Layout, dtype: np.dtype[Any]) -> int:
    """Bytes of a row: key words and value."""
    return 8 * layout.words + dtype.itemsize


class TableSource:
    """A table in memory as a source."""

    def __init__(self, table: Table) -> None:
        # A device's rows are read from main memory as well: pieces go there and back by themselves.
        table = replace(table, keys=in_main_memory(table.keys), values=in_main_memory(table.values))
        self.layout, self.dtype, self.rows, self.is_sorted = (
            table.layout,
            table.values.dtype,
            table.rows,
            table.is_sorted,
        )
        self._table = table
        self.stretch_rows = STRETCH_ROWS

    def edge_keys(self, stretch: int) -> tuple[int, int]:
        """Keys of the first and the last row of a stretch, from the rows themselves."""
        keys = self.keys_of(stretch)
        return key_number(keys, 0), key_number(keys, keys.shape[1] - 1)

    def keys_of(self, stretch: int) -> NDArray[np.uint64]:
        """Keys of all rows of a stretch, uint64 (words, rows), as a view."""
        return self._table.keys[:, stretch * STRETCH_ROWS : (stretch + 1) * STRETCH_ROWS]

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Copy rows ``start`` and following into the caller's arrays."""
        rows = slice(start, start + keys.shape[1])
        keys[:] = self._table.keys[:, rows]
        if values is not None:
            values[:] = self._table.values[rows]

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows."""
        return even_ranges(self.rows, most)


class StoredSource:
    """A table on disk as a source."""

    def __init__(self, table: StoredTable) -> None:
        self.layout, self.dtype, self.rows, self.is_sorted = table.layout, table.dtype, table.rows, table.is_sorted
        self._table = table
        self.stretch_rows = table.chunk_rows

    def edge_keys(self, stretch: int) -> tuple[int, int]:
        """Keys of the first and the last row of a chunk, from the index; nothing is read."""
        return self._table.chunk_keys(stretch)

    def keys_of(self, stretch: int) -> NDArray[np.uint64]:
        """Keys of all rows of a chunk, uint64 (words, rows), read from disk."""
        start = stretch * self.stretch_rows
        keys = np.empty((self.layout.words, min(self.stretch_rows, self.rows - start)), dtype=np.uint64)
        self._table.read_into(start, keys, None, alone=True)
        return keys

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Read rows ``start`` and following from their chunks into the caller's arrays."""
        self._table.read_into(start, keys, values)

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows: whole chunks where they are small enough."""
        chunk = self._table.chunk_rows
        return even_ranges(self.rows, most // chunk * chunk if most >= chunk else most)


class PackedSource:
    """A packed table in memory as a source."""

    def __init__(self, table: PackedTable) -> None:
        self.layout, self.dtype, self.rows, self.is_sorted = table.layout, table.dtype, table.rows, table.is_sorted
        self._table = table

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Unpack rows ``start`` and following into the caller's arrays."""
        self._table.read_into(start, keys, values)

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows."""
        return even_ranges(self.rows, most)


class SliceSource:
    """Some segments of another source, laid end to end; those that follow one another in it are one.

    Parameters
    ----------
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
        """Gather rows ``start`` and following, segment by segment, into the caller's arrays."""
        done, wanted = 0, keys.shape[1]
        segment = int(np.searchsorted(self._places, start, side="right")) - 1
        while done < wanted:
            skipped = start + done - int(self._places[segment])
            count = min(int(self._counts[segment]) - skipped, wanted - done)
            if count:
                self._source.read_into(
                    int(self._starts[segment]) + skipped,
                    keys[:, done : done + count],
                    None if values is None else values[done : done + count],
                )
            done += count
            segment += 1

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows: whole segments where they are small enough."""
        start = 0
        while start < self.rows:
            fitting = int(self._places[np.searchsorted(self._places, start + most, side="right") - 1])
            stop = fitting if fitting > start else start + most
            yield start, stop
            start = stop


def even_ranges(rows: int, most: int) -> Iterator[tuple[int, int]]:
    """``range(rows)`` cut into ranges of ``most`` rows, the last one shorter."""
    return pairwise([*range(0, rows, most), rows])


def sliced(source: Source, start: int, stop: int) -> SliceSource:
    """Rows ``start`` to ``stop`` of a source."""
    return SliceSource(source, np.array([start], dtype=np.int64), np.array([stop - start], dtype=np.int64))


def source_of(table: Table | StoredTable | PackedTable) -> Source:
    """A table as a source."""
    if isinstance(table, PackedTable):
        return PackedSource(table)
    return TableSource(table) if isinstance(table, Table) else StoredSource(table)


class Buffers:
    """Arrays of one stream, made when they are first needed and used again for every piece of the stream.

    Fresh memory costs more than the rows that are put there: the system clears each page first.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def clear(self) -> None:
        """Give all arrays back."""
        self._arrays.clear()

    def take(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A contiguous array, not cleared; it holds what it held until its name is taken again."""
        count = int(np.prod(shape, dtype=np.int64))
        held = self._arrays.get(name)
        if held is None or held.nbytes < count * dtype.itemsize:
            self._arrays.pop(name, None)
            del held  # the old one goes before the new one comes
            held = self._arrays[name] = np.empty(count * dtype.itemsize, dtype=np.uint8)
        found: NDArray[Any] = held[: count * dtype.itemsize].view(dtype).reshape(shape)
        return found

    def load(self, name: str, source: Source, start: int = 0, stop: int | None = None) -> Table:
        """Rows ``start`` to ``stop`` of a source as a table in this stream's arrays; its semiring is of no account."""
        rows = (source.rows if stop is None else stop) - start
        keys = self.take(f"{name} keys", (source.layout.words, rows), np.dtype(np.uint64))
        values = self.take(f"{name} values", (rows,), source.dtype)
        if rows:
            with phase("read"):
                source.read_into(start, keys, values)
        return Table(source.layout, keys, values, is_sorted=source.is_sorted or rows < 2)
