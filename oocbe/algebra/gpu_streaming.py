"""Steps of operators through the device, of tables that its memory does not hold, or that are packed or on disk.

Tables that lead with the same variables are cut by those (:mod:`oocbe.algebra.sorted_cuts`); otherwise rows would have
to be sorted as a whole, which is for the steps out of core. Whether they can be cut is decided before any row moves:
:meth:`DevicePlan.of` makes a plan, or None. While the kernels work on one piece, the next one is on its way in and the
results of the one before are on their way back (Bistaffa, Bombieri and Farinelli 2016, figures 9 to 11;
:mod:`oocbe.kernels.cuda.transfer.conveyor`). A piece's rows have their place in the result as soon as they are counted.
The result's memory is reserved when it begins and taken page by page as rows arrive. Packed tables
(:mod:`oocbe.tables.packed`) travel packed, and so does their result. From disk to disk packed chunks go from files to
pinned memory to the device and are unpacked there, and so are the result's packed there: the processor checks sums and
moves bytes, no more.

Whole packed chunks (:mod:`oocbe.tables.packed_codec`) are transferred: where a piece begins or ends inside a chunk, the
neighbouring piece has that chunk too, and each unpacks the rows that are its own. Results become chunks many at once,
so that the host waits once for all.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.inputs import taken_from
from oocbe.algebra.result_memory import ColumnPool, PooledColumns, kept_columns
from oocbe.algebra.sorted_cuts import RowRanges, SortedCuts, leads_with
from oocbe.errors import DiskError, ResourceError
from oocbe.kernels.cpu.packing.bit_pack import best_rotation
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.gpus import Turns, by_gpus, gpus, on_gpus
from oocbe.kernels.cuda.transfer.memory import device_room, failed_allocations, peak_of, with_retry
from oocbe.kernels.interface import Backend, host_array
from oocbe.model.results.numerals import format_bytes
from oocbe.model.semiring import Semiring
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.pieces import run_piece
from oocbe.runtime.process_memory import resident_memory
from oocbe.runtime.stretches import fresh_memory
from oocbe.tables.layout import Layout
from oocbe.tables.packed import ChunkFiles, PackedColumn, PackedTable
from oocbe.tables.packed_codec import SAMPLE_ROWS, SAMPLES
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from oocbe.tables.writer import StoredTableWriter

if TYPE_CHECKING:
    from oocbe.algebra.inputs import TableLike
    from oocbe.algebra.out_of_core.context import ExecutionContext, Step
    from oocbe.kernels.cuda.transfer.conveyor import Conveyor


def packed_words(table: PackedTable, start: int, stop: int) -> list[NDArray[np.uint64] | ChunkFiles]:
    """Words of each column that rows ``start`` to ``stop`` need on the device."""
    first, last = table.covering(start, stop)
    return [column.chunks(first, last) for column in table.columns]


class DeviceChunk(NamedTuple):
    """Rows ``start`` to ``stop`` of a packed table: uint64 ``columns`` on the device, of :func:`packed_words` for a
    range that includes these rows and begins in chunk ``first``."""

    table: PackedTable
    start: int
    stop: int
    columns: Sequence[Any]
    first: int


def unpacked(pieces: Sequence[DeviceChunk]) -> list[tuple[Any, Any]]:
    """Rows of packed tables on the device: keys uint64 (words, rows) and values (rows,) of each."""
    from oocbe.kernels.cuda.packing.bit_pack import Wanted, unpack

    found: list[tuple[Any, Any]] = []
    parts: list[Wanted] = []
    for table, start, stop, columns, first in pieces:
        keys = cupy().empty((table.layout.words, stop - start), dtype=np.uint64)
        values = cupy().empty(stop - start, dtype=table.dtype)
        found.append((keys, values))
        last = table.covering(start, stop)[1]
        rows = table.row_starts[first : last + 1]
        for column, words, out in zip(table.columns, columns, [*keys, values], strict=True):
            places = column.starts[first : last + 1]
            parts.append(Wanted(words, places - places[0], rows - rows[0], out, start - int(rows[0])))
    unpack(parts)
    return found


DeviceRows = tuple[Any, Any]
"""Keys uint64 (words, rows) and values (rows,) on the device."""


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
    from oocbe.kernels.cuda.packing.bit_pack import DeviceColumn, Measured

    if not parts:
        return []
    width = len(rotations)
    columns = [
        DeviceColumn(items, rotation)
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

    def prepared(self, keys: Any, values: Any) -> list[PackedChunk]:
        """A result, keys uint64 (words, rows) and values (rows,) on the device, as it leaves it: packed.

        The first result decides on the rotations of all.

        Raises ResourceError: the device's memory ran out.
        """
        if len(values) == 0:
            return []
        if self._rotations is None:
            self._rotations = [0 if self._is_sorted else rotation_of(column) for column in [*keys, values]]
        return packed_chunks([(keys, values)], self._rotations)

    def take(self, conveyor: Conveyor, chunks: list[PackedChunk], share: float = 1.0) -> None:
        """Start a prepared result on its way.

        share : of the inputs' rows whose results these and the earlier ones are.

        Raises ResourceError: the packed rows do not fit main memory.
        """
        if not chunks:
            return
        (chunk,) = chunks
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
        self._row_starts.append(self._row_starts[-1] + chunk.rows)
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
        self._kept: ColumnPool | None = None
        self._pooled: PooledColumns | None = None
        self._columns: list[NDArray[Any]] = []
        self._rows = 0

    def _fresh_columns(self) -> list[NDArray[Any]]:
        room = max(0, default_memory_limit() - resident_memory())
        capacity = room // sum(dtype.itemsize for dtype in self._dtypes)
        return [reserved(capacity, dtype) for dtype in self._dtypes]

    def _begin(self, expected: int) -> None:
        """Take memory for the first rows, of approximately so many."""
        self._kept = kept_columns(self._dtypes)
        if not self._kept:
            self._pooled = PooledColumns.expecting([expected] * len(self._dtypes), self._dtypes)
        memory = self._kept or self._pooled
        self._columns = memory.columns if memory else self._fresh_columns()

    def prepared(self, keys: Any, values: Any) -> DeviceRows:
        """A result, keys uint64 (words, rows) and values (rows,) on the device, as it leaves it."""
        return keys, values

    def take(self, conveyor: Conveyor, rows: DeviceRows, share: float = 1.0) -> None:
        """Start a prepared result on its way; share as for :class:`PackedResult`. ResourceError beyond main memory."""
        keys, values = rows
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

    def prepared(self, keys: Any, values: Any) -> DeviceRows:
        """As :meth:`PlainResult.prepared`."""
        return keys, values

    def take(self, conveyor: Conveyor, result: DeviceRows, share: float = 1.0) -> None:
        """Pack a prepared result, and start it on its way; share as for :class:`PackedResult`.

        Raises DiskError: the disk or the disk budget is used up (also later, while the conveyor is waited for).
        """
        if len(result[1]) == 0:
            return
        self._waiting.append(result)
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


MOST_BYTES = 1 << 29
"""Rows of a piece take no more: a handful of pieces are in pinned memory at a time."""

MEASURED = 16
"""Tables so many times as long as a sample have the size of their pieces measured by one."""

MOST_PARTS = 16
"""Most parts of a piece before any is tried, after a smaller one had no room. A group with far more results than others
has none in a small piece either, and pieces of that size would take their launches' time."""

FRAGMENTED, FRAGMENTED_PACKED = 1.1, 1.2
"""Memory of the pool beside what is in use: blocks of earlier pieces of slightly other sizes; of packed tables also
those of unpacked rows, which the result fills in part. At 1.1 a piece of each run failed, and later ones were cut."""

Streamable = Table | PackedTable


@dataclass(frozen=True)
class DevicePlan:
    """The way of a step through the device: tables in main memory or packed, how they are cut, and the kernels."""

    tables: tuple[Streamable, ...]
    cuts: SortedCuts
    step: Step
    kernels: Backend

    @classmethod
    def of(cls, step: Step, tables: Sequence[Streamable], kernels: Backend) -> DevicePlan | None:
        """The plan of a step of these tables; None: they are not sorted by the variables that cut them, or empty."""
        names, unit = step.common, step.unit
        if not names or not all(table.rows and leads_with(table, names) for table in tables):
            return None
        cuts = SortedCuts(tables, names, unit if leads_with(tables[0], unit) else names)
        return cls(tuple(tables), cuts, step, kernels)

    @classmethod
    def from_disk(cls, step: Step, tables: Sequence[TableLike], kernels: Backend) -> DevicePlan | None:
        """The plan of tables on disk or packed, of known extents and dtype; None for others, or kernels in memory."""
        if kernels.name != "cuda" or not step.goes_through_device:
            return None
        found = (PackedTable.on_disk(table) if isinstance(table, StoredTable) else table for table in tables)
        packed = [table for table in found if isinstance(table, PackedTable)]
        return cls.of(step, packed, kernels) if len(packed) == len(tables) else None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the result's values, of packed tables; of others, the least one: each piece shows its own."""
        return self.step.dtype_of([known_extent(table) for table in self.tables])

    def to_memory(self, piece_rows: int | None = None) -> Streamable:
        """The result in main memory, the results of the pieces end to end; packed where all tables are.

        piece_rows : most rows of a piece's tables together; None: as many as fit.

        Raises ResourceError: device memory ran out for a piece that cannot be cut, or the result exceeds main memory.
        """
        step = self.step
        whole = self.cuts.whole()
        kind = PackedResult if all(isinstance(table, PackedTable) for table in self.tables) else PlainResult
        row_bytes = None
        if piece_rows is None and whole.rows > MEASURED * tuning().least_device_piece_rows:
            sample = PiecesThroughDevice(self, self.dtype, kind(step.layout, self.dtype, step.is_sorted))
            row_bytes = sample.row_bytes()
        pieces = self.cuts.fitting(whole, piece_rows or rows_a_piece(self.tables, row_bytes=row_bytes))
        device_bytes = 0
        if row_bytes and isfinite(row_bytes) and pieces:
            needed = edge_bytes(self.tables) + row_bytes * max(cut.rows for cut in pieces)
            device_bytes = int(max(0, min(device_room(), needed)))

        def attempt(numbers: Sequence[int]) -> Streamable:
            dtype = self.dtype
            while True:
                result = kind(step.layout, dtype, step.is_sorted)
                try:
                    found = PiecesThroughDevice(self, dtype, result).over(pieces, numbers, device_bytes=device_bytes)
                except _WiderError as wider:
                    dtype = wider.dtype
                    del result  # the next one takes its memory
                else:
                    return result.table(step.semiring, found)

        return by_gpus(self._gpus(pieces), attempt)

    def to_disk(
        self,
        output: str | Path,
        context: ExecutionContext,
        create: Callable[..., StoredTableWriter] | None = None,
        rows: RowRanges | None = None,
    ) -> StoredTable | None:
        """The result of packed tables, written; None: the device has no room for a group, and nothing is left of it.

        create : makes the result's writer; None: that of a stored table, from the context.
        rows : of the tables, in the plan's order; None: all.
        Raises DiskError: the disk is full.
        """
        layout, limit = self.step.layout, context.space.budget.limit
        host_bytes, piece_rows = int(limit * tuning().pinned_share), context.space.piece_rows
        if piece_rows is None:
            row_bytes = sum(table.nbytes for table in self.tables) / sum(table.rows for table in self.tables)
            pinned_rows = int(host_bytes / tuning().pinned_pieces / row_bytes)
            piece_rows = max(1, min(rows_a_piece(self.tables, tuning().disk_piece_bytes), pinned_rows))
        whole = self.cuts.whole() if rows is None else rows
        create = create or partial(StoredTable.create, overwrite=context.settings.overwrite)
        chunk_rows = context.chunk_rows(layout, self.dtype)
        try:
            pieces = self.cuts.fitting(whole, piece_rows, int(limit * tuning().cut_search_share))

            def attempt(numbers: Sequence[int]) -> None:
                with create(output, layout, self.dtype, self.step.semiring, chunk_rows=chunk_rows) as writer:
                    PiecesThroughDevice(self, self.dtype, StoredResult(writer)).over(pieces, numbers, host_bytes)

            by_gpus(self._gpus(pieces), attempt)
        except DiskError:
            raise
        except ResourceError:
            return None
        return StoredTable.open(output)

    def _gpus(self, pieces: Sequence[RowRanges]) -> list[int]:
        """Numbers of the GPUs that share the pieces."""
        nbytes = sum(table.nbytes for table in self.tables)
        return gpus(nbytes / tuning().streamed_bytes_a_second)[: max(1, len(pieces))]


class _WiderError(Exception):
    """A piece has values that the result's dtype may not hold."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        super().__init__(dtype)
        self.dtype = dtype


class _ResultError(Exception):
    """The result has no room, on any GPU."""

    def __init__(self, error: ResourceError) -> None:
        super().__init__(error)
        self.error = error


def rows_a_piece(tables: Sequence[Streamable], most_bytes: int = MOST_BYTES, row_bytes: float | None = None) -> int:
    """Rows of a piece's tables together that the device's memory has room for, and that take ``most_bytes``.

    row_bytes : device memory for each row; None: an estimate for results as long as the tables.
    """
    own_bytes = max(8 * table.layout.words + table.dtype.itemsize for table in tables)
    if row_bytes is None:
        are_packed = all(isinstance(table, PackedTable) for table in tables)
        row_bytes = tuning().device_packed_row_bytes if are_packed else tuning().device_row_bytes
    rows = int((device_room() - edge_bytes(tables)) / row_bytes)
    return max(tuning().least_device_piece_rows, min(rows, most_bytes // own_bytes))


def edge_bytes(tables: Sequence[Streamable]) -> int:
    """Bytes of two pieces' inputs on the device beside their own rows: chunks of packed tables at both ends."""
    chunks = [(table, len(table.row_starts) - 1) for table in tables if isinstance(table, PackedTable)]
    return sum(2 * 2 * table.nbytes // count for table, count in chunks if count)


class PiecesThroughDevice:
    """One pass of a plan over all pieces, in order, into a result with values of one dtype."""

    def __init__(
        self, plan: DevicePlan, dtype: np.dtype[Any], result: PackedResult | PlainResult | StoredResult
    ) -> None:
        self._tables, self._cuts, self._plan = plan.tables, plan.cuts, plan
        self._step = replace(plan.step, dtype=dtype)  # type: ignore[type-var]
        self._result = result
        self._extents = [known_extent(table).tolist() for table in plan.tables]
        self._first = self._last = 0
        self._most_rows: float = inf
        self._turns = Turns()

    def over(
        self, pieces: Sequence[RowRanges], numbers: Sequence[int], host_bytes: int | None = None, device_bytes: int = 0
    ) -> np.dtype[Any]:
        """Bring all pieces through; returns the dtype that would hold the values that were found.

        Each GPU has a conveyor, and the pieces go to the GPUs in turn.

        numbers : of the GPUs, at least one. host_bytes : pinned memory that may be taken; None: as much as is of use.
        device_bytes : memory of a device that a piece takes; 0: unknown.
        Raises GpuError: of one GPU: no pinned memory, too little memory on the device for a piece that cannot be cut,
        or an error of the device; ResourceError: the result does not fit main memory.
        """
        from oocbe.kernels.cuda.transfer.conveyor import Conveyor

        self._first, self._last = (sum(pieces[0].low), sum(pieces[-1].high)) if pieces else (0, 0)
        count, conveyors = len(numbers), list[Conveyor]()

        def stream(position: int) -> None:
            places = range(position, len(pieces), count)
            columns = [self._columns_of(pieces[place]) for place in places]
            try:
                with Conveyor(columns, host_bytes, count, conveyors, device_bytes) as conveyor:
                    conveyor.pieces(lambda number, columns: self._piece(conveyor, places[number], pieces, columns))
                    if not pieces or places[-1] == len(pieces) - 1:
                        self._result.finish(conveyor)
            except MemoryError as error:
                raise ResourceError(f"pinned memory for pieces on their way: {error}") from error

        try:
            on_gpus(numbers, stream, self._turns.stop)
        except _ResultError as refused:
            raise refused.error from None
        finally:
            conveyors.clear()
            self._result.close()
        known = zip(self._extents, self._tables, strict=True)
        return self._step.dtype_of([np.array(found, dtype=table.dtype) for found, table in known])

    def row_bytes(self) -> float | None:
        """Device memory for each row of a piece, in bytes, measured by a sample; None: there is none in memory, or no
        small one."""
        from oocbe.kernels.cuda.transfer.conveyor import SLOTS

        cut = self._cuts.sample(tuning().least_device_piece_rows)
        found = [] if cut is None else self._columns_of(cut)
        if cut is None or not all(isinstance(column, np.ndarray) for column in found):
            return None
        try:
            columns = [with_retry(cupy().asarray)(column) for column in found]
            while True:
                try:
                    result, peak, kept = peak_of(lambda: self._result.prepared(*self._try(cut, cut, columns)))
                    break
                except _WiderError as wider:
                    self._step = replace(self._step, dtype=wider.dtype)  # type: ignore[type-var]
        except ResourceError:
            return inf
        del result
        # Two pieces of inputs, the computation of one, and the result before it on its way to the host.
        arrived = sum(table.nbytes for table in self._tables) / sum(table.rows for table in self._tables)
        fragmented = FRAGMENTED_PACKED if any(isinstance(t, PackedTable) for t in self._tables) else FRAGMENTED
        return fragmented * (SLOTS * arrived + (peak + kept) / cut.rows)

    def _columns_of(self, cut: RowRanges) -> list[NDArray[Any] | ChunkFiles]:
        found: list[NDArray[Any] | ChunkFiles] = []
        for table, low, high in zip(self._tables, cut.low, cut.high, strict=True):
            if isinstance(table, PackedTable):
                found += packed_words(table, low, high)
            else:
                found += [word[low:high] for word in table.keys]
                found.append(table.values[low:high])
        return found

    def _parts(self, whole: RowRanges, cut: RowRanges, columns: Sequence[Any]) -> list[Table]:
        """The tables of a part of a piece on the device, given the columns of the ``whole`` one there."""
        found: list[DeviceRows | DeviceChunk] = []
        place = 0
        for table, first, last, low, high in zip(self._tables, whole.low, whole.high, cut.low, cut.high, strict=True):
            own = columns[place : place + table.layout.words + 1]
            place += len(own)
            if isinstance(table, PackedTable):
                found.append(DeviceChunk(table, low, high, own, table.covering(first, last)[0]))
            else:
                *words, values = (column[low - first : high - first] for column in own)
                found.append((_stacked(words), values))
        arrived = iter(unpacked([part for part in found if isinstance(part, DeviceChunk)]))
        rows = [next(arrived) if isinstance(part, DeviceChunk) else part for part in found]
        return [
            Table(table.layout, *part, table.semiring, table.is_sorted)
            for table, part in zip(self._tables, rows, strict=True)
        ]

    def _piece(self, conveyor: Conveyor, place: int, pieces: Sequence[RowRanges], columns: Sequence[Any]) -> None:
        """Compute one piece and start its result on its way, after those of all earlier pieces; in parts where the
        device's memory does not hold what it takes."""
        whole = pieces[place]

        def compute(cut: RowRanges) -> list[tuple[Any, float]]:
            before = failed_allocations()
            try:
                rows = self._try(whole, cut, columns)
                self._turns.wait(place)
                return [(self._result.prepared(*rows), self._share_up_to(cut))]
            finally:
                # A failure takes as long as many pieces: later ones of this size are cut before an attempt.
                if failed_allocations() > before:
                    self._most_rows = min(self._most_rows, max(-(-cut.rows // 2), -(-whole.rows // MOST_PARTS)))

        cuts = [whole] if whole.rows <= self._most_rows else self._cuts.fitting(whole, int(self._most_rows))
        for cut in cuts:
            for result, share in run_piece(cut, compute, self._cuts.halves, _is_too_large):
                try:
                    self._result.take(conveyor, result, share)
                except ResourceError as error:
                    raise _ResultError(error) from None
                del result  # the next part has its memory
        self._turns.wait(place)
        self._turns.done()

    def _share_up_to(self, cut: RowRanges) -> float:
        """Share of the pieces' rows that are in a piece or before it."""
        return (sum(cut.high) - self._first) / max(1, self._last - self._first)

    def _try(self, whole: RowRanges, cut: RowRanges, columns: Sequence[Any]) -> DeviceRows:
        """Compute a part of a piece with the current dtype; _WiderError if its values show that this one does not hold
        them."""
        from oocbe.kernels.cuda.pairs.extents import Extents

        # Of floats, any result has the dtype.
        is_searched = [
            not isinstance(table, PackedTable) and high > low and table.dtype.kind != "f"
            for table, low, high in zip(self._tables, cut.low, cut.high, strict=True)
        ]

        @with_retry
        def attempt() -> tuple[Extents, DeviceRows]:
            tables = self._parts(whole, cut, columns)
            queued = Extents([table.values for table, is_in in zip(tables, is_searched, strict=True) if is_in])
            return queued, self._step.rows(taken_from(tables), self._plan.kernels)

        # The host reads extents after the rows have been computed, so that it does not wait twice.
        queued, rows = attempt()
        found = iter(queued.read())
        extents = [
            next(found) if is_in else known_extent(table)
            for table, is_in in zip(self._tables, is_searched, strict=True)
        ]
        dtype = self._step.dtype_of(extents)
        if dtype.itemsize > self._step.dtype.itemsize:
            raise _WiderError(dtype)
        for known, extent in zip(self._extents, extents, strict=True):
            known.extend(extent.tolist())
        return rows


def _is_too_large(error: BaseException) -> bool:
    """Whether a piece failed that may succeed in parts."""
    return isinstance(error, ResourceError) and not isinstance(error, DiskError)


def _stacked(words: Sequence[Any]) -> Any:
    """Key words as one array (words, rows) on the device."""
    return words[0][np.newaxis] if len(words) == 1 else cupy().stack(words)


def known_extent(table: Streamable) -> NDArray[Any]:
    """Least and greatest value where a table reports them; empty otherwise."""
    extent = table.extent if isinstance(table, PackedTable) else None
    return np.array(() if extent is None else extent, dtype=table.dtype)
