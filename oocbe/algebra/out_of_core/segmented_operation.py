"""An operator on stored tables cut into segments for workers; the parts they write are the table that is wanted.

Tables are cut by variables that the result is in the order of: shared ones that stay, or those that stay of one table.
Rows with one value of these belong together, so a range of values of them is done with as one process does the whole
operation, and results laid end to end are the operation's, in its order.

1. A table that is not in that order is sorted first, in runs that each fit one worker's memory; where one is, it is
   taken as it is.
2. Runs and tables give the first key of each chunk. From these follow ranges of about as many rows as the next segment
   is to have; a worker finds where they begin in each run, reading a chunk of it.

A value that very many rows have is in one segment, as are all rows where nothing shared stays (which is done by the
calling process).

A *run* has some rows of a table, sorted by the cut variables; rows that agree in them keep their order. A *range* of
these variables' values takes its rows from all runs of all tables.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import prod
from pathlib import Path

import numpy as np

from oocbe.algebra.gpu_streaming import DevicePlan
from oocbe.algebra.inputs import Execution, TableLike, arrange
from oocbe.algebra.out_of_core.context import ExecutionContext, Step
from oocbe.algebra.sorted_cuts import RowRanges
from oocbe.errors import ResourceError
from oocbe.execution.budget import Budget
from oocbe.execution.cluster.dispatch import Dispatch, ItemRanges, PartCollector, halved_run, take_account
from oocbe.execution.cluster.segment_files import (
    NO_VALUES,
    PartResult,
    TableAt,
    WorkerConfig,
    active,
    attempt_path,
    opened,
    part_writer,
    written_part,
)
from oocbe.execution.cluster.workers import Workers, current
from oocbe.execution.partition import JoinInput, KeyIndex, LaidEndToEnd, OrderedSlice, run_cost
from oocbe.execution.sources import Source, StoredRows
from oocbe.kernels import backend_for
from oocbe.model.semiring import Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.tracing.recorder import KERNELS, span
from oocbe.tables import disk
from oocbe.tables.parts import PartsWriter
from oocbe.tables.residence import to_host, to_kernels
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from oocbe.tables.writer import CHUNK_ROWS


@dataclass(frozen=True)
class RunSegment:
    """Rows of a table to be sorted as a run.

    circumstances, part : how, and the beginning of the path of the run. table : the rows. low, high : those of the run.
    scope : of the run, its variables, the least significant first. order : by which it is sorted, likewise.
    """

    circumstances: WorkerConfig
    part: Path
    table: TableAt
    low: int
    high: int
    scope: tuple[str, ...]
    order: tuple[str, ...]


@dataclass(frozen=True)
class SentInput:
    """An input of an operation as it is sent; scope, common and cost as for :class:`JoinInput`.

    tables : its rows, in the order of the variables that are cut, each of them; more than one are runs.
    cut : the variables; empty where every segment has all rows.
    """

    tables: tuple[TableAt, ...]
    cut: tuple[str, ...]
    scope: tuple[str, ...]
    common: tuple[str, ...]
    cost: int

    def ranges(self, low: int, high: int, budget: Budget) -> list[tuple[StoredRows, int, int]]:
        """Rows of each table whose cut variables have numbers from ``low`` up to ``high``, which is left out."""
        found = []
        for rows in (StoredRows(opened(at)) for at in self.tables):
            places = 0, rows.rows
            if self.cut:
                index = KeyIndex(rows, self.cut, budget)
                places = index.place(low), index.place(high)
            found.append((rows, *places))
        return found

    def ordered(self, ranges: Sequence[tuple[StoredRows, int, int]]) -> JoinInput:
        """The rows as an input."""
        slices = [OrderedSlice(rows, low, high, self.cut) for rows, low, high in ranges if low < high]
        source = slices[0] if len(slices) == 1 else LaidEndToEnd(slices)
        return JoinInput(source, self.scope, self.common, self.cost)


@dataclass(frozen=True)
class RangeSegment:
    """A range of keys of an operation.

    circumstances, part : how, and the beginning of the path of the part to be written.
    operation, inputs : what is done, and with what. low, high : numbers of the cut variables (:class:`KeyIndex`).
    rows : of all inputs, which decide where kernels work. scratch : folder for scratch files; None: the worker's own.
    """

    circumstances: WorkerConfig
    part: Path
    operation: Step
    inputs: tuple[SentInput, ...]
    low: int
    high: int
    rows: int
    scratch: Path | None


def sort_run(segment: RunSegment) -> PartResult:
    """Sort rows of a table and write them; ResourceError: no room. DiskError, CorruptDataError, ClusterError."""
    begin, how = time.perf_counter(), segment.circumstances
    with active(how, segment.part) as deadline:
        table = opened(segment.table)
        count = segment.high - segment.low
        source = StoredRows(table)
        with Budget(how.memory_limit).reserve("sorting a run", run_cost(source) * count):
            kernels = backend_for(table.rows, how.backend)
            rows = to_kernels(source.read(segment.low, segment.high), kernels)
            deadline.check()
            with span(KERNELS, "sort run", rows=count):
                run = arrange(rows, segment.scope, segment.order, rows.dtype, kernels)
            del rows
            run, how = to_host(run), replace(how, is_scratch=True)
            return written_part(how, segment.part, run.layout, run.dtype, [run], begin)


def operate(segment: RangeSegment) -> PartResult:
    """Do an operation with a range of the rows, and write what comes of it; errors as for :func:`sort_run`."""
    begin, how, operation = time.perf_counter(), segment.circumstances, segment.operation
    with active(how, segment.part) as deadline:
        budget = Budget(how.memory_limit)
        found = [sent.ranges(segment.low, segment.high, budget) for sent in segment.inputs]
        if any(all(low >= high for _, low, high in ranges) for ranges in found):
            return PartResult.since(begin, None, 0, NO_VALUES)
        kernels = backend_for(min(segment.rows, len(found) * (how.piece_rows or segment.rows)), how.backend)
        folder = segment.scratch or default_parent()
        settings = Execution(streams=how.streams, piece_rows=how.piece_rows, backend=how.backend)
        context = ExecutionContext.within(kernels, budget, folder, settings)
        streamed = _streamed(segment, found, context, begin)
        if streamed is not None:
            return streamed
        inputs = [sent.ordered(ranges) for sent, ranges in zip(segment.inputs, found, strict=True)]

        def tables() -> Iterator[Table]:
            for rows in results:
                deadline.check()
                if len(rows.values):
                    yield Table(operation.layout, rows.keys, rows.values, operation.semiring)

        with (
            span(KERNELS, "segment"),
            closing(operation.results(inputs, context)) as results,
            context.writing(operation.layout, operation.dtype) as chunk_rows,
        ):
            how = replace(how, chunk_rows=min(how.chunk_rows, chunk_rows))
            return written_part(how, segment.part, operation.layout, operation.dtype, tables(), begin)


def _streamed(
    segment: RangeSegment, found: list[list[tuple[StoredRows, int, int]]], context: ExecutionContext, begin: float
) -> PartResult | None:
    """The range through a device, where rows go packed; None where they cannot, or runs have to be merged."""
    operation = segment.operation
    if any(len(ranges) > 1 for ranges in found):
        return None
    ranges = [only for (only,) in found]
    rows = RowRanges(tuple(low for _, low, _ in ranges), tuple(high for *_, high in ranges))
    plan = DevicePlan.from_disk(operation, [source.table for source, *_ in ranges], context.kernels)
    if plan is None or plan.dtype != operation.dtype:
        return None
    path, how = attempt_path(segment.part), segment.circumstances

    part = plan.to_disk(path, context, partial(part_writer, how), rows)
    if part is None:
        return None
    if part.rows == 0:
        disk.remove(path)
        return PartResult.since(begin, None, 0, NO_VALUES)
    return PartResult.since(begin, path.name, part.rows, NO_VALUES)


def workers_for(cut: Sequence[str], *tables: TableLike) -> Workers | None:
    """The workers for an operation that these variables could cut; None where this process does it."""
    workers = current()
    if workers is None or not cut or max(table.rows for table in tables) < tuning().segment_rows:
        return None
    return workers


class SegmentedOperation:
    """One operator's way through workers; the scratch folder of its ``context`` is seen by all."""

    def __init__(self, workers: Workers, context: ExecutionContext) -> None:
        self._workers, self._context = workers, context
        self._settings, backend = context.settings, context.settings.backend
        self._backend = backend if backend is None or isinstance(backend, str) else backend.name
        self._folder = context.space.disk.folder.absolute()
        self._deadline = Deadline()

    def write(
        self, output: str | Path, operation: Step, inputs: Sequence[JoinInput], cut: Sequence[str]
    ) -> StoredTable:
        """Do an operation on inputs, and write the result as a table of parts.

        cut : variables that the result is in the order of, the most significant last. An input that lacks them takes
            part in every segment with all its rows.
        Raises ClusterError: the workers cannot go on; ResourceError: a worker has no memory for a segment that has no
        half. DiskError, CorruptDataError, TimeLimitError as without workers.
        """
        name = f"{type(operation).__name__} over {', '.join(operation.layout.scope)}"
        cut = _cut_in_order(inputs, tuple(cut))
        layout, dtype, semiring = operation.layout, operation.dtype, operation.semiring
        rows = sum(ordered.rows for ordered in inputs)
        scratch_of_workers = None if self._settings.scratch is None else self._folder
        overwrite = self._settings.overwrite
        with (
            closing(ScratchFolder(self._folder)) as scratch,
            PartsWriter(output, layout, dtype, semiring, overwrite=overwrite) as writer,
        ):
            sent = tuple(
                self._sent(ordered, cut, semiring, scratch.path / str(number), name)
                for number, ordered in enumerate(inputs)
            )
            ranges = KeyRanges([each for each in sent if each.cut], self._context.space.budget, self._workers)
            parts = PartCollector(writer, name, self._workers)

            def segment_of(key: range, sharing: int) -> RangeSegment:
                how, part = self._circumstances(CHUNK_ROWS, sharing), writer.part_path().absolute()
                low, high = ranges.numbers(key)
                return RangeSegment(how, part, operation, sent, low, high, rows, scratch_of_workers)

            def done(key: range, made: PartResult) -> None:
                parts.add(ranges.learn(key, made.seconds), made, key.start)

            # The properties that loops depend on, so that they are compiled once.
            words = tuple((o.source.layout.words, o.source.dtype) for o in inputs)
            kind, deadline = (type(operation), layout.words, dtype, semiring, words), self._deadline
            Dispatch(name, self._workers, operate, segment_of, done, ranges.halves, deadline, kind).run(ranges)
        return StoredTable.open(output)

    def _circumstances(self, chunk_rows: int, sharing: int) -> WorkerConfig:
        return WorkerConfig.of(
            self._workers,
            self._deadline,
            self._context.space.disk,
            sharing,
            chunk_rows,
            backend=self._backend,
            streams=self._settings.streams,
            piece_rows=self._context.space.piece_rows,
            memory=None if self._settings.memory is None else self._context.space.budget.limit,
        )

    def _sent(self, ordered: JoinInput, cut: tuple[str, ...], semiring: Semiring, folder: Path, name: str) -> SentInput:
        """An input as workers find it: as it is where that is in order, else in runs in a folder."""
        table = self._stored(ordered.source, semiring, folder / "table")
        own = cut if cut[0] in table.layout else ()
        tables = [TableAt.of(table)]
        if table.rows and not replace(ordered, common=own).in_order:
            tables = self._runs(table, ordered, own, folder / "runs", name)
        return SentInput(tuple(tables), own, ordered.scope, ordered.common, ordered.cost)

    def _stored(self, source: Source, semiring: Semiring, path: Path) -> StoredTable:
        if isinstance(source, StoredRows):
            return source.table

        def pieces() -> Iterator[Table]:
            for low, high in source.ranges(CHUNK_ROWS):
                keys = np.empty((source.layout.words, high - low), dtype=np.uint64)
                values = np.empty(high - low, dtype=source.dtype)
                source.read_into(low, keys, values)
                yield Table(source.layout, keys, values, semiring)

        return StoredTable.save_pieces(path, source.layout, source.dtype, semiring, pieces())

    def _runs(
        self, table: StoredTable, ordered: JoinInput, order: tuple[str, ...], folder: Path, name: str
    ) -> list[TableAt]:
        """The table's rows in runs that workers sort, in the order that they had in the table."""
        folder.mkdir(parents=True)
        how = self._circumstances(1, 1)
        fitting = int(how.memory_limit * tuning().freed_share) // run_cost(ordered.source)
        even = -(-table.rows // (tuning().parts_a_worker * max(1, self._workers.count)))
        rows = max(1, min(fitting, even))
        chunk_rows = min(CHUNK_ROWS, max(tuning().few_rows, rows // tuning().cuts))
        at, name = TableAt.of(table), f"{name}, sorting"
        made_of: dict[int, TableAt] = {}

        def segment_of(run: range, sharing: int) -> RunSegment:
            how, part = self._circumstances(chunk_rows, sharing), folder / f"run-{run.start}"
            return RunSegment(how, part, at, run.start, run.stop, ordered.scope, order)

        def done(run: range, made: PartResult) -> None:
            assert made.name is not None
            take_account(made, name, self._workers)
            made_of[run.start] = TableAt.of(StoredTable.open(folder / made.name))

        def halves(run: range, error: Exception) -> Iterable[range]:
            return halved_run(run, error, f"a row of the table over {table.scope}")

        runs = (range(low, high) for low, high in StoredRows(table).ranges(rows))
        kind = ("sort", table.layout.words, table.dtype)
        Dispatch(name, self._workers, sort_run, segment_of, done, halves, self._deadline, kind).run(runs)
        return [made_of[start] for start in sorted(made_of)]


class KeyRanges(ItemRanges):
    """Ranges of the smallest ranges of the cut variables' values that an operation can be cut into.

    inputs : those that are cut. budget : of the memory for chunks that are looked at.
    """

    def __init__(self, inputs: Sequence[SentInput], budget: Budget, workers: Workers) -> None:
        rows: Counter[int] = Counter()
        end = 0
        for sent in inputs:
            for at in sent.tables:
                index = KeyIndex(StoredRows(opened(at)), sent.cut, budget)
                end = max(end, index.end)
                for number, count in index.samples(-(-tuning().cuts // len(sent.tables))):
                    rows[number] += count
        numbers = sorted(rows)
        self._numbers = [0, *numbers[1:], end] if numbers else []
        before = [0, *accumulate(rows[number] for number in numbers)]
        super().__init__(before, workers, least=tuning().parts_a_worker * tuning().segment_rows)

    def numbers(self, chosen: range) -> tuple[int, int]:
        """The first number of a range, and the one behind its last."""
        return self._numbers[chosen.start], self._numbers[chosen.stop]

    def halves(self, chosen: range, error: Exception) -> Iterable[range]:
        """Two ranges in the place of one; ResourceError where no chunk begins in it."""
        first, stop = chosen.start, chosen.stop
        if stop - first == 1:
            rows = self._before[stop] - self._before[first]
            raise ResourceError(f"some {rows:,} rows that are not cut: {error}") from error
        half = (self._before[first] + self._before[stop]) / 2
        middle = min(stop - 1, max(first + 1, bisect_right(self._before, half) - 1))
        return range(first, middle), range(middle, stop)


def _cut_in_order(inputs: Sequence[JoinInput], cut: tuple[str, ...]) -> tuple[str, ...]:
    """As many of the most significant variables as the inputs that have them are in the order of already.

    All of them where that is none, or these have too few values to cut by: then inputs are sorted.
    """
    concerned = [ordered for ordered in inputs if cut[0] in ordered.source.layout]
    for first in range(len(cut)):
        less = cut[first:]
        if all(replace(ordered, common=less).in_order for ordered in concerned):
            places = prod(concerned[0].source.layout.select(less).sizes)
            return less if not first or places >= tuning().cuts else cut
    return cut
