"""Results of pieces on their way back from the device: as rows end to end, or packed there, to memory or to disk.

Packed rows are unpacked on the device as they arrive, and results are packed there as they leave. Whole packed chunks
(:mod:`oocbe.tables.codec`) are transferred: where a piece begins or ends inside a chunk, the neighbouring piece has
that chunk too, and each unpacks the rows that are its own. Results become chunks many at once, so that the host waits
once for all.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.result_memory import ColumnPool, PooledColumns, kept_columns
from oocbe.errors import ResourceError
from oocbe.kernels.arrays import host_array
from oocbe.kernels.cpu.packing.bit_pack import best_rotation
from oocbe.model.semiring import Semiring
from oocbe.model.settings.machine import default_memory_limit, resident_memory
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.stretches import fresh_memory
from oocbe.tables.codec import SAMPLE_ROWS, SAMPLES
from oocbe.tables.layout import Layout
from oocbe.tables.packed import ChunkFiles, PackedColumn, PackedTable
from oocbe.tables.table import Table, format_bytes

if TYPE_CHECKING:
    from oocbe.kernels.cuda.transfer.conveyor import Conveyor
    from oocbe.tables.writer import StoredTableWriter


def packed_words(table: PackedTable, start: int, stop: int) -> list[NDArray[np.uint64] | ChunkFiles]:
    """Words of each column that rows ``start`` to ``stop`` need on the device."""
    first, last = table.covering(start, stop)
    return [column.chunks(first, last) for column in table.columns]


class DeviceChunk(NamedTuple):
    """Rows ``start`` to ``stop`` of a packed table: uint64 ``columns`` on the device, of :func:`packed_words`."""

    table: PackedTable
    start: int
    stop: int
    columns: Sequence[Any]


def unpacked(pieces: Sequence[DeviceChunk]) -> list[tuple[Any, Any]]:
    """Rows of packed tables on the device: keys uint64 (words, rows) and values (rows,) of each."""
    from oocbe.kernels.cuda.device import cupy
    from oocbe.kernels.cuda.packing.bit_pack import Wanted, unpack

    found: list[tuple[Any, Any]] = []
    parts: list[Wanted] = []
    for table, start, stop, columns in pieces:
        keys = cupy().empty((table.layout.words, stop - start), dtype=np.uint64)
        values = cupy().empty(stop - start, dtype=table.dtype)
        found.append((keys, values))
        first, last = table.covering(start, stop)
        rows = table.row_starts[first : last + 1].tolist()
        for column, words, out in zip(table.columns, columns, [*keys, values], strict=True):
            places = column.starts[first : last + 1].tolist()
            begin = places[0]
            for (low, high), (source, end) in zip(pairwise(rows), pairwise(places), strict=True):
                target = out[max(start, low) - start : min(stop, high) - start]
                parts.append(Wanted(words[source - begin : end - begin], high - low, target, max(0, start - low)))
    unpack(parts)
    return found


@dataclass(frozen=True)
class PackedChunk:
    """Rows on the device, packed.

    columns : each key word's, and the values' packed chunk, uint64 (words,), neighbours in the device's memory.
    rows : number of rows.
    edge_keys : keys of the first and the last row, each as one number (word 0 least significant).
    extent : least and greatest value, where values are integers.
    """

    columns: list[Any]
    rows: int
    edge_keys: tuple[int, int]
    extent: tuple[int, int] | None


def rotation_of(column: Any) -> int:
    """The rotation under which a column on the device packs best, by its first rows; 0 but for keys."""
    if column.dtype.kind != "u":
        return 0
    return int(best_rotation(host_array(column[: tuning().rotation_sample_rows]), SAMPLE_ROWS, SAMPLES))


def packed_chunks(parts: Sequence[tuple[Any, Any]], rotations: Sequence[int]) -> list[PackedChunk]:
    """Pack rows that become one chunk each; waits once for what all of them need.

    parts : keys uint64 (words, rows) and values (rows,) on the device, at least one row each.
    rotations : of each column, to the right.
    Raises ResourceError: the device's memory ran out.
    """
    from oocbe.kernels.cuda.packing.bit_pack import Column, Measured
    from oocbe.kernels.cuda.transfer.memory import with_retry

    if not parts:
        return []
    width = len(rotations)
    columns = [
        Column(items, rotation)
        for keys, values in parts
        for items, rotation in zip([*keys, values], rotations, strict=True)
    ]
    measured = with_retry(Measured)(columns)
    summaries = measured.summaries()
    chunks = with_retry(measured.packed)()
    found = []
    for number, (_, values) in enumerate(parts):
        own = slice(number * width, (number + 1) * width)
        *keys, last = summaries[own]
        edges = _key([key.first for key in keys]), _key([key.last for key in keys])
        found.append(PackedChunk(chunks[own], len(values), edges, last.extent))
    return found


def _key(words: Sequence[int]) -> int:
    """Key words as one number."""
    return sum(word << 64 * place for place, word in enumerate(words))


class PackedResult:
    """Collects results of pieces as packed chunks, one chunk a piece, in memory that is pinned or taken as they arrive.

    layout : of the result. dtype : of its values. is_sorted : whether the results, end to end, are sorted.
    """

    def __init__(self, layout: Layout, dtype: np.dtype[Any], is_sorted: bool) -> None:
        self._layout, self._dtype, self._is_sorted = layout, dtype, is_sorted
        self._kept: ColumnPool | None = None
        self._pooled: PooledColumns | None = None
        self._columns: list[NDArray[np.uint64]] = []
        self._starts = [[0] for _ in range(layout.words + 1)]
        self._row_starts = [0]
        self._edges: list[tuple[int, int]] = []
        self._extents: list[int] = []
        self._rotations: list[int] | None = None

    def take(self, conveyor: Conveyor, keys: Any, values: Any, share: float = 1.0) -> None:
        """Pack a result, keys uint64 (words, rows) and values (rows,) on the device, and start it on its way.

        share : of the inputs' rows whose results these and the earlier ones are.

        Raises ResourceError: the packed rows do not fit main memory.
        """
        if len(values) == 0:
            return
        if self._rotations is None:
            self._rotations = [0 if self._is_sorted else rotation_of(column) for column in [*keys, values]]
        (chunk,) = packed_chunks([(keys, values)], self._rotations)
        if not self._columns:
            # The first chunk shows how much of the memory each column will take.
            sizes = [len(words) for words in chunk.columns]
            dtypes = [np.dtype(np.uint64)] * len(sizes)
            self._kept = kept_columns(dtypes, sizes)
            if not self._kept:
                self._pooled = PooledColumns.expecting([int(size / share) for size in sizes], dtypes)
            memory = self._kept or self._pooled
            self._columns = memory.columns if memory else self._fresh_columns()
        stops = [starts[-1] + len(words) for starts, words in zip(self._starts, chunk.columns, strict=True)]
        if self._kept and not self._has_room(stops):
            self._leave_kept(conveyor)
        if not self._has_room(stops):
            raise ResourceError(
                f"a packed result of more than {self._row_starts[-1]:,} rows does not fit main memory "
                f"(limit {format_bytes(default_memory_limit())}); name an output table on disk"
            )
        if self._pooled:
            begins = [starts[-1] for starts in self._starts]
            self._pooled.bring_back(conveyor, chunk.columns, begins, [int(stop / share) for stop in stops])
        for words, column, starts, stop in zip(chunk.columns, self._columns, self._starts, stops, strict=True):
            if not self._pooled:
                conveyor.bring_back([words], [column[starts[-1] : stop]])
            starts.append(stop)
        self._row_starts.append(self._row_starts[-1] + len(values))
        self._edges.append(chunk.edge_keys)
        self._extents += chunk.extent or ()

    def finish(self, conveyor: Conveyor) -> None:
        """Nothing is left to send."""

    def close(self) -> None:
        """No more results come, or there was an error."""
        if self._pooled:
            self._pooled.close()

    def table(self, semiring: Semiring, dtype: np.dtype[Any]) -> PackedTable:
        """All results, when they have arrived; their values have the dtype that was known before them."""
        assert dtype == self._dtype
        if self._kept:
            self._kept.shorten([starts[-1] for starts in self._starts])
        columns = [
            PackedColumn(words[: starts[-1]], np.array(starts, dtype=np.int64))
            for words, starts in zip(self._columns or self._fresh_columns(), self._starts, strict=True)
        ]
        rows = np.array(self._row_starts, dtype=np.int64)
        extent = (min(self._extents), max(self._extents)) if self._extents else None
        is_sorted = self._is_sorted or int(rows[-1]) < 2
        return PackedTable(self._layout, semiring, self._dtype, is_sorted, rows, columns, self._edges, extent)

    def _has_room(self, stops: Sequence[int]) -> bool:
        if self._kept:
            return all(stop <= len(column) for stop, column in zip(stops, self._columns, strict=True))
        return sum(stops) <= len(self._columns[0])

    def _leave_kept(self, conveyor: Conveyor) -> None:
        """Move what has come so far to fresh memory, where there is room for more."""
        conveyor.wait_for_targets()
        kept, self._kept, self._columns = self._columns, None, self._fresh_columns()
        counts = [starts[-1] for starts in self._starts]
        if self._has_room(counts):
            for target, source, count in zip(self._columns, kept, counts, strict=True):
                target[:count] = source[:count]

    def _fresh_columns(self) -> list[NDArray[np.uint64]]:
        """Room in each column for all that main memory holds, taken page by page."""
        capacity = max(0, default_memory_limit() - resident_memory()) // 8
        return [reserved(capacity, np.dtype(np.uint64)) for _ in self._starts]


class PlainResult:
    """Collects results of pieces as rows, in memory that is taken as they arrive; as :class:`PackedResult`."""

    def __init__(self, layout: Layout, dtype: np.dtype[Any], is_sorted: bool) -> None:
        self._layout, self._is_sorted = layout, is_sorted
        self._dtypes = [np.dtype(np.uint64)] * layout.words + [dtype]
        self._kept = kept_columns(self._dtypes)
        self._pooled: PooledColumns | None = None
        self._columns = self._kept.columns if self._kept else []
        self._rows = 0

    def _fresh_columns(self) -> list[NDArray[Any]]:
        room = max(0, default_memory_limit() - resident_memory())
        capacity = room // sum(dtype.itemsize for dtype in self._dtypes)
        return [reserved(capacity, dtype) for dtype in self._dtypes]

    def _begin(self, expected: int) -> None:
        """Take memory for the first rows, of approximately so many."""
        self._pooled = PooledColumns.expecting([expected] * len(self._dtypes), self._dtypes)
        self._columns = self._pooled.columns if self._pooled else self._fresh_columns()

    def take(self, conveyor: Conveyor, keys: Any, values: Any, share: float = 1.0) -> None:
        """Start a result, keys uint64 (words, rows) and values (rows,) on the device, on its way.

        share : as for :class:`PackedResult`.

        Raises ResourceError: the rows do not fit main memory.
        """
        start, self._rows = self._rows, self._rows + len(values)
        expected = int(self._rows / share)
        if not self._columns and len(values):
            self._begin(expected)
        if self._kept and self._rows > len(self._columns[0]):
            self._leave_kept(conveyor, start)
        if not self._columns:
            return
        if self._rows > len(self._columns[0]):
            raise ResourceError(
                f"a result of more than {len(self._columns[0]):,} rows does not fit main memory "
                f"(limit {format_bytes(default_memory_limit())}); name an output table on disk"
            )
        if self._pooled:
            self._pooled.bring_back(conveyor, [*keys, values], *([n] * len(self._columns) for n in (start, expected)))
            return
        conveyor.bring_back([*keys, values], [column[start : self._rows] for column in self._columns])

    def finish(self, conveyor: Conveyor) -> None:
        """Nothing is left to send."""

    def close(self) -> None:
        """As :meth:`PackedResult.close`."""
        if self._pooled:
            self._pooled.close()

    def _leave_kept(self, conveyor: Conveyor, rows: int) -> None:
        """Move the rows that have come so far to fresh memory, where there is room for more."""
        conveyor.wait_for_targets()
        columns = self._fresh_columns()
        if rows <= len(columns[0]):
            for target, source in zip(columns, self._columns, strict=True):
                target[:rows] = source[:rows]
        self._kept, self._columns = None, columns

    def table(self, semiring: Semiring, dtype: np.dtype[Any]) -> Table:
        """All results, when they have arrived, with values of a dtype that holds them."""
        if self._kept:
            self._kept.shorten([self._rows] * len(self._columns))
        *words, values = (column[: self._rows] for column in self._columns or self._fresh_columns())
        keys = words[0][np.newaxis] if len(words) == 1 else np.stack(words)
        return Table(self._layout, keys, values.astype(dtype, copy=False), semiring, self._is_sorted or len(values) < 2)


class StoredResult:
    """Cuts results, sorted end to end, into the chunks of an open writer's table; what fills none waits."""

    def __init__(self, writer: StoredTableWriter) -> None:
        self._writer = writer
        self._waiting: list[tuple[Any, Any]] = []

    def take(self, conveyor: Conveyor, keys: Any, values: Any, share: float = 1.0) -> None:
        """Pack a result, keys uint64 (words, rows) and values (rows,) on the device, and start it on its way.

        share : as for :class:`PackedResult`.

        Raises DiskError: the disk or the disk budget is used up (also later, while the conveyor is waited for).
        """
        if len(values) == 0:
            return
        self._waiting.append((keys, values))
        rows = sum(len(v) for _, v in self._waiting)
        size = self._writer.chunk_rows
        if rows < size:
            self._share(conveyor)
            return
        keys, values = self._rows()
        whole = rows // size * size
        # A copy: a slice would keep all of the result in the device's memory.
        self._waiting = [(keys[:, whole:].copy(), values[whole:].copy())] if whole < rows else []
        self._share(conveyor)
        parts = [([w[low : low + size] for w in keys], values[low : low + size]) for low in range(0, whole, size)]
        self._send(conveyor, parts)

    def finish(self, conveyor: Conveyor) -> None:
        """Send the remaining rows; errors as for :meth:`take`."""
        if self._waiting:
            keys, values = self._rows()
            self._waiting = []
            self._send(conveyor, [(list(keys), values)])

    def close(self) -> None:
        """As :meth:`PackedResult.close`."""

    def _rows(self) -> tuple[Any, Any]:
        """All rows that wait, on the current device."""
        from oocbe.kernels.cuda.device import cupy

        parts = [(cupy().asarray(keys), cupy().asarray(values)) for keys, values in self._waiting]
        if len(parts) == 1:
            return parts[0]
        return cupy().concatenate([k for k, _ in parts], axis=1), cupy().concatenate([v for _, v in parts])

    def _share(self, conveyor: Conveyor) -> None:
        """Move the waiting rows, less than a chunk, to main memory if another GPU may have the next result."""
        if conveyor.is_shared:
            self._waiting = [(host_array(keys), host_array(values)) for keys, values in self._waiting]

    def _send(self, conveyor: Conveyor, parts: list[tuple[list[Any], Any]]) -> None:
        columns, consumers = [], []
        for chunk in packed_chunks(parts, [0] * (self._writer.layout.words + 1)):
            place = self._writer.begin_packed(chunk.rows, chunk.edge_keys, chunk.extent)
            columns += chunk.columns
            consumers += [partial(self._writer.write_packed, place, number) for number in range(len(chunk.columns))]
        conveyor.deliver(columns, consumers)


def reserved(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array (count,) whose memory is taken page by page, in large pages where the system has them."""
    memory = fresh_memory(max(1, count * dtype.itemsize), getattr(mmap, "MAP_NORESERVE", 0))
    return memory[: count * dtype.itemsize].view(dtype)
