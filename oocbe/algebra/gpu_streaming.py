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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.device_results import DeviceChunk, PackedResult, PlainResult, StoredResult, packed_words, unpacked
from oocbe.algebra.sorted_cuts import RowRanges, SortedCuts, leads_with
from oocbe.errors import DiskError, ResourceError
from oocbe.kernels.cuda.gpus import Turns, by_gpus, gpus, on_gpus
from oocbe.kernels.cuda.transfer.memory import device_room
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.pieces import run_piece
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.algebra.inputs import TableLike
    from oocbe.algebra.out_of_core.context import ExecutionContext, Step
    from oocbe.kernels.cuda.transfer.conveyor import Conveyor
    from oocbe.kernels.interface import Backend
    from oocbe.tables.packed import ChunkFiles
    from oocbe.tables.writer import StoredTableWriter

MOST_BYTES = 1 << 29
"""Rows of a piece take no more: a handful of pieces are in pinned memory at a time."""

Streamable = Table | PackedTable

DeviceRows = tuple[Any, Any]
"""Keys uint64 (words, rows) and values (rows,) on the device."""


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

        Raises ResourceError: device memory ran out for a piece that cannot be cut, or the result is larger than main
        memory.
        """
        step = self.step
        pieces = self.cuts.fitting(self.cuts.whole(), rows_a_piece(self.tables) if piece_rows is None else piece_rows)
        kind = PackedResult if all(isinstance(table, PackedTable) for table in self.tables) else PlainResult

        def attempt(numbers: Sequence[int]) -> Streamable:
            dtype = self.dtype
            while True:
                result = kind(step.layout, dtype, step.is_sorted)
                try:
                    found = PiecesThroughDevice(self, dtype, result).over(pieces, numbers)
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


def rows_a_piece(tables: Sequence[Streamable], most_bytes: int = MOST_BYTES) -> int:
    """Rows of a piece's tables together that the device's memory has room for, and that take ``most_bytes``."""
    row_bytes = max(8 * table.layout.words + table.dtype.itemsize for table in tables)
    are_packed = all(isinstance(table, PackedTable) for table in tables)
    work = tuning().device_packed_row_bytes if are_packed else tuning().device_row_bytes
    return max(tuning().least_device_piece_rows, min(device_room() // work, most_bytes // row_bytes))


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
        self._turns = Turns()

    def over(self, pieces: Sequence[RowRanges], numbers: Sequence[int], host_bytes: int | None = None) -> np.dtype[Any]:
        """Bring all pieces through; returns the dtype that would hold the values that were found.

        Each GPU has a conveyor, and the pieces go to the GPUs in turn.

        numbers : of the GPUs, at least one. host_bytes : pinned memory that may be taken; None: as much as is of use.
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
                with Conveyor(columns, host_bytes, sharing=count, beside=conveyors) as conveyor:
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

    def _columns_of(self, cut: RowRanges) -> list[NDArray[Any] | ChunkFiles]:
        found: list[NDArray[Any] | ChunkFiles] = []
        for table, low, high in zip(self._tables, cut.low, cut.high, strict=True):
            if isinstance(table, PackedTable):
                found += packed_words(table, low, high)
            else:
                found += [word[low:high] for word in table.keys]
                found.append(table.values[low:high])
        return found

    def _piece(self, conveyor: Conveyor, place: int, pieces: Sequence[RowRanges], columns: list[Any]) -> None:
        """Compute one piece and start its result on its way, after those of all earlier pieces."""
        cut = pieces[place]
        found: list[DeviceRows | DeviceChunk] = []
        for table, low, high in zip(self._tables, cut.low, cut.high, strict=True):
            own = columns[: table.layout.words + 1]
            del columns[: table.layout.words + 1]
            if isinstance(table, PackedTable):
                found.append(DeviceChunk(table, low, high, own))
            else:
                found.append((_stacked(own[:-1]), own[-1]))
        travelled = [part for part in found if isinstance(part, DeviceChunk)]
        arrived: Iterator[DeviceRows] = iter(self._with_room(conveyor, lambda: unpacked(travelled)))
        rows = [next(arrived) if isinstance(part, DeviceChunk) else part for part in found]
        tables = [
            Table(table.layout, *part, table.semiring, table.is_sorted)
            for table, part in zip(self._tables, rows, strict=True)
        ]
        self._compute(conveyor, place, cut, tables)

    def _compute(self, conveyor: Conveyor, place: int, whole: RowRanges, tables: Sequence[Table]) -> None:
        """Compute a piece, in halves where the device's memory does not hold what it takes."""

        def compute(cut: RowRanges) -> list[tuple[DeviceRows, float]]:
            parts = tables if cut is whole else [_part(table, *rows) for table, *rows in _inside(tables, whole, cut)]
            return [(self._try(conveyor, parts), self._share_up_to(cut))]

        results = run_piece(
            whole,
            compute,
            self._cuts.halves,
            lambda error: isinstance(error, ResourceError) and not isinstance(error, DiskError),
        )
        for rows, share in results:
            self._turns.wait(place)
            try:
                self._result.take(conveyor, *rows, share)
            except ResourceError as error:
                raise _ResultError(error) from None
            del rows  # the next half has their memory
        self._turns.wait(place)
        self._turns.done()

    def _share_up_to(self, cut: RowRanges) -> float:
        """Share of the pieces' rows that are in a piece or before it."""
        return (sum(cut.high) - self._first) / max(1, self._last - self._first)

    def _try(self, conveyor: Conveyor, tables: Sequence[Table]) -> DeviceRows:
        """Compute a piece with the current dtype; _WiderError if its values show that this one does not hold them."""
        from oocbe.kernels.cuda.pairs.extents import Extents

        pairs = list(zip(self._tables, tables, strict=True))
        # Of floats, any result has the dtype.
        is_searched = [
            not isinstance(whole, PackedTable) and len(part.values) > 0 and part.values.dtype.kind != "f"
            for whole, part in pairs
        ]
        # The host reads them after the rows have been computed, so that it does not wait twice.
        queued = self._with_room(
            conveyor,
            lambda: Extents([part.values for (_, part), is_in in zip(pairs, is_searched, strict=True) if is_in]),
        )
        rows: DeviceRows = self._with_room(conveyor, lambda: self._step.rows(tables, self._plan.kernels))
        found = iter(queued.read())
        extents = [
            next(found) if is_in else known_extent(whole) for (whole, _), is_in in zip(pairs, is_searched, strict=True)
        ]
        dtype = self._step.dtype_of(extents)
        if dtype.itemsize > self._step.dtype.itemsize:
            raise _WiderError(dtype)
        for known, extent in zip(self._extents, extents, strict=True):
            known.extend(extent.tolist())
        return rows

    def _with_room(self, conveyor: Conveyor, call: Callable[[], Any]) -> Any:
        """Result of a call; if device memory runs out, it is repeated once when no result is in transit any more.
        Raises ResourceError if it ran out again."""
        from oocbe.kernels.cuda.transfer.memory import with_retry

        try:
            return with_retry(call)()
        except ResourceError:
            conveyor.wait_for_results()
        return with_retry(call)()


def _inside(tables: Sequence[Table], whole: RowRanges, cut: RowRanges) -> list[tuple[Table, int, int]]:
    """Tables that have the rows of one cut, and where the rows of another one are in them."""
    bounds = zip(tables, whole.low, cut.low, cut.high, strict=True)
    return [(table, low - first, high - first) for table, first, low, high in bounds]


def _part(table: Table, low: int, high: int) -> Table:
    """Some rows of a table on the device."""
    return replace(table, keys=_stacked([word[low:high] for word in table.keys]), values=table.values[low:high])


def _stacked(words: Sequence[Any]) -> Any:
    """Key words as one array (words, rows) on the device."""
    if len(words) == 1:
        return words[0][np.newaxis]
    from oocbe.kernels.cuda.device import cupy

    return cupy().stack(words)


def known_extent(table: Streamable) -> NDArray[Any]:
    """Least and greatest value where a table reports them; empty otherwise."""
    extent = table.extent if isinstance(table, PackedTable) else None
    return np.array(() if extent is None else extent, dtype=table.dtype)
