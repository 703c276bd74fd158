"""The steps of operators and where they work: settings, results, pieces that halve, the table being written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.inputs import Execution, TableLike, check_result
from oocbe.errors import DiskError, ResourceError
from oocbe.execution.budget import Budget, MemoryPlan
from oocbe.execution.cluster.workers import current
from oocbe.execution.partition import JoinInput, parts
from oocbe.execution.pipeline import run_in_order
from oocbe.execution.sources import Buffers, Source, row_bytes
from oocbe.kernels import backend_for
from oocbe.kernels.cpu.threads import thread_count
from oocbe.kernels.interface import Backend
from oocbe.model.results.numerals import format_bytes
from oocbe.model.semiring import Combination, Semiring
from oocbe.model.settings.option_values import parse_bytes
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.pieces import Indivisible, Resumption, run_piece
from oocbe.runtime.tracing.recorder import CALLER, span
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout
from oocbe.tables.residence import to_kernels
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from oocbe.tables.writer import CHUNK_ROWS


class ResultRows(NamedTuple):
    """Keys and values of a result in memory; ``is_open``: one group, of which the pieces beside may have more."""

    keys: NDArray[np.uint64]
    values: NDArray[Any]
    is_open: bool = False

    def after(self, rows: int) -> ResultRows:
        """The result without some first rows; ResourceError: those of an open group, of which some are unknown."""
        if self.is_open:
            raise ResourceError(
                "memory ran out after some rows of a piece were handed over, and a group of it has to be cut to go on; "
                "free some memory, or lower the limit to what there is"
            )
        return self._replace(keys=self.keys[:, rows:], values=self.values[rows:])


@dataclass(frozen=True)
class ExecutionContext:
    """Resources of an operator out of core: kernels, space, each stream's buffers, and its settings."""

    kernels: Backend
    space: MemoryPlan
    buffers: list[Buffers] = field(default_factory=list)
    settings: Execution = field(default_factory=Execution)

    @classmethod
    def of(cls, settings: Execution, *tables: TableLike) -> ExecutionContext:
        """The context that an operator's arguments describe; DiskError where the scratch folder is not there."""
        memory = parse_bytes("memory", settings.memory)
        folder = default_parent() if settings.scratch is None else Path(settings.scratch)
        if settings.scratch is None and settings.output is not None and current() is not None:
            beside = Path(settings.output).parent  # what workers see as well
            folder = beside if beside.is_dir() else folder
        if not folder.is_dir():
            raise DiskError(f"scratch: there is no folder {folder}; make it, or choose another one")
        rows = sum(table.rows for table in tables)
        kernels = backend_for(min(rows, len(tables) * (settings.piece_rows or rows)), settings.backend)
        return cls.within(kernels, Budget(memory), folder, settings)

    @classmethod
    def within(cls, kernels: Backend, budget: Budget, folder: Path, settings: Execution) -> ExecutionContext:
        """A context of some memory, with a folder for scratch files, which override those of the settings."""
        default = max(2, min(tuning().operator_streams, thread_count()))
        streams = default if settings.streams is None else settings.streams
        space = MemoryPlan(budget, DiskBudget(folder), streams, settings.piece_rows)
        return cls(kernels, space, settings=settings).fresh()

    def fresh(self, space: MemoryPlan | None = None) -> ExecutionContext:
        """A context with the same kernels, buffers of its own, and possibly another space."""
        space = self.space if space is None else space
        return replace(self, space=space, buffers=[Buffers() for _ in range(space.streams)])

    def suited_to(self, inputs: Sequence[JoinInput]) -> ExecutionContext:
        """The context for some inputs, by default: the CPU's kernels for pieces too small for a device, and few streams
        if rows are sorted beyond memory.

        Each piece reads a slice of each sorted run. Streams share the memory, so twice as many streams halve runs and
        pieces, and take four times as many reads.
        """
        rows, nbytes = sum(each.rows for each in inputs), sum(each.rows * each.cost for each in inputs)
        most = rows * self.space.piece_bytes // max(nbytes, self.space.piece_bytes)
        if self.kernels.name == "cuda" and (kernels := backend_for(most, self.settings.backend)).name != "cuda":
            return replace(self, kernels=kernels).suited_to(inputs)
        unordered = sum(ordered.rows * ordered.cost for ordered in inputs if not ordered.in_order)
        if self.settings.streams is not None or unordered <= self.space.budget.limit:
            return self
        return self.fresh(replace(self.space, streams=min(self.space.streams, tuning().merge_streams)))

    def load(self, inputs: Sequence[JoinInput], semiring: Semiring, stream: int) -> list[Table]:
        """All rows of some sources, read into a stream's buffers and brought to where the kernels work."""
        tables = [self.buffers[stream].load(f"table {number}", part.source) for number, part in enumerate(inputs)]
        return [replace(to_kernels(table, self.kernels), semiring=semiring) for table in tables]

    def joined_rows(self, layout: Layout, dtype: np.dtype[Any]) -> int:
        """Rows of a join's result that a piece hands over at a time: one lot waits while the next one is computed."""
        return self.space.rows_of(2 * row_bytes(layout, dtype) + 16, 1 - tuning().pieces_share)

    @contextmanager
    def scratch_folder(self) -> Iterator[Path]:
        """A folder for tables between steps, removed when the block ends; DiskError: it cannot be made."""
        folder, interrupted = ScratchFolder(self.space.disk.folder), True
        try:
            yield folder.path
            interrupted = False
        finally:
            folder.close(interrupted)

    def settings_inside(self, output: Path) -> Execution:
        """Settings for a step of an operation whose result is a table in the scratch folder."""
        space, settings = self.space, self.settings
        own = Execution(output, space.budget.limit, space.disk.folder, settings.streams)
        return replace(own, piece_rows=settings.piece_rows, backend=settings.backend)

    def chunk_rows(self, layout: Layout, dtype: np.dtype[Any]) -> int:
        """Rows of a chunk of a table that is written here."""
        return max(1, min(CHUNK_ROWS, self.space.chunk_bytes // row_bytes(layout, dtype)))

    @contextmanager
    def writing(self, layout: Layout, dtype: np.dtype[Any]) -> Iterator[int]:
        """Rows of a chunk of a table that is written in the block, for which memory is reserved."""
        chunk_rows = self.chunk_rows(layout, dtype)
        with self.space.budget.reserve("chunks being written", 3 * chunk_rows * row_bytes(layout, dtype)):
            yield chunk_rows

    def write(self, output: str | Path, operation: Step, inputs: Sequence[JoinInput]) -> StoredTable:
        """Write an operation's result chunk by chunk and open it; an exception leaves nothing of it."""
        layout, dtype, semiring = operation.layout, operation.dtype, operation.semiring
        with (
            closing(operation.results(inputs, self)) as results,
            self.writing(layout, dtype) as chunk_rows,
            StoredTable.create(
                output, layout, dtype, semiring, chunk_rows=chunk_rows, overwrite=self.settings.overwrite
            ) as writer,
        ):
            for rows in results:
                with span(CALLER, "append rows"):
                    writer.append(rows.keys, rows.values)
        return StoredTable.open(output)

    def run(self, pieces: Iterable[OperationPiece]) -> Generator[ResultRows, None, None]:
        """Results of pieces in their order; all threads have ended when this ends, however it does."""
        with closing(run_in_order((piece.compute for piece in pieces), self.space.streams)) as results:
            yield from results


class Step(ABC):
    """One step of an operator: a marginalisation, a join, or both at once; in memory, on a device, and of any size.

    layout, dtype, semiring : of the result. is_sorted : whether its rows are sorted, those of pieces end to end.
    goes_through_device : whether tables on disk may go through a device, whose results are written in sorted chunks.
    joins : whether a part of a piece's memory is for the joined rows.
    """

    layout: Layout
    dtype: np.dtype[Any]
    semiring: Semiring
    is_sorted = True
    goes_through_device = True
    joins = True

    @property
    @abstractmethod
    def common(self) -> tuple[str, ...]:
        """Variables by which all tables are cut, the least significant first: rows with one value meet no others."""

    @property
    @abstractmethod
    def unit(self) -> tuple[str, ...]:
        """Variables of the first table, ``common`` included, whose rows stay together if it is sorted by them."""

    @property
    @abstractmethod
    def cut(self) -> tuple[str, ...]:
        """Variables by whose ranges workers share the tables out; a table without them is read whole."""

    @abstractmethod
    def dtype_of(self, extents: Sequence[NDArray[Any]]) -> np.dtype[Any]:
        """Dtype that holds every result value, from the least and greatest values of each table (empty for no rows);
        the tables' own values serve as well.

        Raises ValueRangeError: a value could leave int64.
        """

    @abstractmethod
    def rows(
        self, tables: Iterable[Table], kernels: Backend, piece_rows: int | None = None
    ) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Keys and values of the result, of tables whose rows are where the kernels work; those that come from an
        iterator are released when they are no longer needed."""

    def table(self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None = None) -> Table:
        """The result where the kernels work; ValueRangeError if it has left the range of floats."""
        return self.as_table(self.rows(tables, kernels, piece_rows), tables)

    def as_table(self, rows: tuple[NDArray[np.uint64], NDArray[Any]], tables: Sequence[Table]) -> Table:
        """:meth:`rows` of tables as a table; errors as for :meth:`table`."""
        is_sorted = self.is_sorted or len(rows[1]) < 2
        return check_result(Table(self.layout, *rows, self.semiring, is_sorted), *tables)

    @abstractmethod
    def inputs(self, sources: Sequence[Source]) -> list[JoinInput]:
        """Sources with the order, the partition and the memory that the step needs."""

    def results(self, inputs: Sequence[JoinInput], context: ExecutionContext) -> Generator[ResultRows, None, None]:
        """All rows of the step, in their order."""
        context = context.suited_to(self.sorted_inputs(inputs))
        return self.closed(context.run(self.pieces(inputs, context)), context.kernels)

    def sorted_inputs(self, inputs: Sequence[JoinInput]) -> Sequence[JoinInput]:
        """The inputs in the order in which pieces read them first."""
        return inputs

    def closed(self, results: Generator[ResultRows, None, None], kernels: Backend) -> Generator[ResultRows, None, None]:
        """Results of pieces, with the rows of open groups put together."""
        return results

    def pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool = True
    ) -> Iterator[OperationPiece]:
        """Pieces of work whose concatenated results are the step's; ``outermost`` : whether none is in memory yet."""
        for part in parts(inputs, context.space, context.kernels, outermost=outermost):
            if part.fits:
                yield OperationPiece(self, part.inputs, context)
            else:
                yield from self.group_pieces(part.inputs, context, outermost)
            outermost = False

    @abstractmethod
    def group_pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool
    ) -> Iterator[OperationPiece]:
        """Pieces of rows that have one value of ``common`` and do not fit a piece together."""

    @abstractmethod
    def work(self, inputs: Sequence[JoinInput], context: ExecutionContext, stream: int) -> Iterator[ResultRows]:
        """The results of inputs that fit a piece."""


@dataclass(frozen=True)
class OperationPiece:
    """A piece of an operation, cut into smaller ones where memory cannot be had for it, although the budget has it.

    operation : what is done with the inputs. inputs : the sources' rows that the piece has, all of them.
    context : where; its space limits the size of the piece.
    """

    operation: Step
    inputs: Sequence[JoinInput]
    context: ExecutionContext

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs, reserved while the piece is processed."""
        share = tuning().pieces_share if self.operation.joins else 1.0
        return sum(int(ordered.rows * ordered.cost * share) for ordered in self.inputs)

    def compute(self, stream: int) -> Iterator[ResultRows]:
        """The piece's results."""
        return run_piece(
            self,
            lambda piece: piece.operation.work(piece.inputs, piece.context, stream),
            lambda piece: piece.smaller(stream),
            lambda error: isinstance(error, MemoryError),
            reserve=lambda piece: piece.context.space.budget.reserve(f"stream {stream}", piece.nbytes),
            resumption=Resumption(lambda result: len(result.values), ResultRows.after),
        )

    def smaller(self, stream: int) -> Iterator[OperationPiece] | Indivisible[OperationPiece]:
        """Pieces of half the size that do the same; the stream's buffers are given back before."""
        context = self.context
        context.buffers[stream].clear()
        space = context.space
        if space.piece_bytes < tuning().small_bytes:
            tables = ", ".join(f"over {ordered.source.layout.scope}" for ordered in self.inputs)
            return Indivisible(
                self,
                f"tables {tables}: memory could not be had even for a piece of {format_bytes(space.piece_bytes)}, with "
                f"{format_bytes(space.budget.used)} of the limit of {format_bytes(space.budget.limit)} reserved; "
                "free some memory or lower the limit to what there is",
            )
        smaller = replace(context, space=space.halved())
        return self.operation.pieces(self.inputs, smaller, outermost=False)


def extent_of(table: TableLike, semiring: Semiring) -> NDArray[Any]:
    """Values that stand for all of a table's in range analysis: the least and the greatest; empty for no rows.

    Floats are only looked at where their sign may matter, in maxima of products.
    """
    if isinstance(table, Table):
        return table.values
    if table.rows == 0:
        return np.empty(0, dtype=table.dtype)
    if table.extent is not None:
        return np.array(table.extent, dtype=table.dtype)
    if table.dtype.kind == "f" and (semiring.combination is Combination.ADD or not semiring.selects):
        return np.zeros(1, dtype=table.dtype)
    extents = []
    for start in range(0, table.rows, CHUNK_ROWS):
        values = np.empty(min(CHUNK_ROWS, table.rows - start), dtype=table.dtype)
        table.read_into(start, np.empty((0, len(values)), dtype=np.uint64), values)
        extents += [values.min(), values.max()]
    return np.array([np.min(extents), np.max(extents)], dtype=table.dtype)


def cost_of(source: Source, copies: float, more: int) -> int:
    """Bytes for a row of a source of which so many copies are made, and some more."""
    return int(copies * row_bytes(source.layout, source.dtype)) + more


def join_cost(source: Source, copies: float, more: int, dtype: np.dtype[Any]) -> int:
    """Bytes of a piece of a join for an input's row, and its result rows of a dtype; as :func:`cost_of`."""
    return int((cost_of(source, copies, more) + dtype.itemsize) / tuning().pieces_share)
