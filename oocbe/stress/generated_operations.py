"""Operators on synthetic tables without storage: input rows are generated at each read, and results are digested.

A range of ranks has a range of rows of each sorted table, and the concatenated results of all ranges are the operator's
result. So every worker generates the rows of its ranges, processes them as it would stored ones, checks each row of the
result, and returns sums, which depend neither on the cuts of the ranks nor on killed workers. No table is on disk, so
only time limits the number of rows.

Where the kernels work on a device, rows are generated, processed, checked and digested there, and only the sums are
copied to the host; a group that the device's memory does not hold is processed out of core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise, takewhile
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.elimination import Join, JoinElimination, MarginalisationStep
from oocbe.algebra.inputs import Execution
from oocbe.algebra.out_of_core.context import ExecutionContext, Step
from oocbe.errors import ResourceError
from oocbe.execution.budget import Budget
from oocbe.execution.cluster.dispatch import Dispatch, ItemRanges, halved_run, trace_segment
from oocbe.execution.cluster.segment_files import NO_VALUES, PartResult, WorkerConfig, active
from oocbe.execution.cluster.workers import Workers
from oocbe.execution.partition import JoinInput
from oocbe.execution.sources import EvenStretches
from oocbe.kernels import backend_for
from oocbe.model.row_numbers import key_number
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.pieces import Indivisible, run_piece
from oocbe.runtime.waiting import StoppedError
from oocbe.stress.kernels.cpu.synthetic import fill_in_order
from oocbe.stress.segments import (
    SUMS,
    JoinCheck,
    MarginalisationCheck,
    ResultCheck,
    RowChecker,
    check_tables,
    summed_up,
)
from oocbe.stress.tables import SyntheticTable
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend

JOIN_MAXIMISE, JOIN_SUM, MAXIMISE = OPERATORS = "join-maximise", "join-sum", "maximise"
"""Operators: a join with e marginalised out, a join, and the first table without its own variable."""

Hears: TypeAlias = Callable[[int], None]
"""Receives the number of rows so far."""

STRETCH_ROWS = 1 << 20
"""Approximate rows of the first table in the smallest range of ranks of a segment."""

FIRST_STRETCHES, STRETCHES_HERE = 4, 16
"""Limit of the stretches of a segment before the first measured time; and stretches of a segment where one process does
all of them: some seconds."""

DEVICE_TIMES = 256
"""Multiple of these stretches on a device, which takes less than a tenth of a millisecond for one; several devices wait
for one another at the end of each segment."""

DEVICE_ROWS = 1 << 27
"""Limit of the rows of all tables that are on a device at a time: their processing takes some 10 milliseconds, and the
start of its kernels a small part of that."""


@dataclass(frozen=True)
class GeneratedOperation:
    """An operator of :data:`OPERATORS` and its sorted tables, two of one family or one for ``maximise``."""

    operator: str
    tables: tuple[SyntheticTable, ...]

    @cached_property
    def checker(self) -> RowChecker:
        """The checker of the result's rows."""
        if self.operator == MAXIMISE:
            return MarginalisationCheck(*self.tables)
        first, second = self.tables
        return JoinCheck(first, second, self.operator == JOIN_MAXIMISE)

    @property
    def rows_in(self) -> int:
        """Rows of all tables."""
        return sum(table.rows_made for table in self.tables)

    @property
    def stretches(self) -> int:
        """Number of the smallest ranges of ranks."""
        return max(1, -(-self.tables[0].rows_made // STRETCH_ROWS))

    def ranks(self, run: range) -> range:
        """The ranks of some stretches; there may be none."""
        table = self.tables[0]
        return range(table.rank_from(run.start * STRETCH_ROWS), table.rank_from(run.stop * STRETCH_ROWS))

    def rank_ranges(self, ranks: range, rows: int) -> Iterator[range]:
        """Ranges of some ranks, in order, with approximately so many rows of all tables each."""
        table = self.tables[0]
        step = max(1, rows * table.rows_made // self.rows_in)
        starts = range(table.first_row(ranks.start) + step, table.first_row(ranks.stop), step)
        for first, stop in pairwise([ranks.start, *map(table.rank_from, starts), ranks.stop]):
            if first < stop:
                yield range(first, stop)

    def on(self, ranks: range) -> tuple[Step, list[JoinInput]]:
        """The step, and its inputs with the groups of some ranks."""
        sources = [GeneratedRows(table, ranks) for table in self.tables]
        values = [np.array([0, table.greatest], dtype=s.dtype) for table, s in zip(self.tables, sources, strict=True)]
        step: Step
        if self.operator == MAXIMISE:
            step = MarginalisationStep.of(sources[0], (self.tables[0].own,), values[0])
        elif self.operator == JOIN_SUM:
            step = Join.of(sources, values)
        else:
            step = JoinElimination.of(sources, ("e",), values)
        return step, step.inputs(sources)


@dataclass(frozen=True)
class RankSegment:
    """A range of ranks of an operation to be done.

    circumstances : how. folder : is there as long as the work is wanted; for scratch files as well.
    operation, ranks : what is done.
    """

    circumstances: WorkerConfig
    folder: Path
    operation: GeneratedOperation
    ranks: range


@dataclass(frozen=True)
class Digested:
    """Result of a segment: whether all rows are correct, their sums (:data:`SUMS`), the worker, and the times."""

    is_right: bool
    sums: list[int]
    made: PartResult


def digest_segment(segment: RankSegment) -> Digested:
    """Do a range of ranks; errors as for a segment of any operation (:mod:`oocbe.execution.cluster.segment_files`)."""
    how = segment.circumstances
    with active(how, segment.folder / "digest") as deadline:
        kernels = backend_for(segment.operation.rows_in, how.backend)
        budget = Budget(how.memory_limit)
        settings = Execution(streams=how.streams, piece_rows=how.piece_rows, backend=kernels)
        context = ExecutionContext.within(kernels, budget, segment.folder, settings)
        return _digested(segment.operation, segment.ranks, context, deadline)


def _digested(operation: GeneratedOperation, ranks: range, context: ExecutionContext, deadline: Deadline) -> Digested:
    begin = time.perf_counter()
    is_right, sums, lots = True, [0] * SUMS, 0
    if ranks:
        process = _on_device if context.kernels.name == "cuda" else _out_of_core
        is_right, totals, lots = process(operation, ranks, context, deadline)
        sums = totals.tolist()
    return Digested(is_right, sums, PartResult.since(begin, None, sums[0], NO_VALUES, lots))


_Totals: TypeAlias = tuple[bool, NDArray[np.uint64], int]
"""Whether all rows are correct, their sums uint64 (SUMS,), and the number of results that they came in."""


def _out_of_core(operation: GeneratedOperation, ranks: range, context: ExecutionContext, deadline: Deadline) -> _Totals:
    """Process some ranks piece by piece, with rows generated and checked in main memory."""
    totals, lots, checker = np.zeros(SUMS, dtype=np.uint64), 0, operation.checker
    step, inputs = operation.on(ranks)
    with closing(step.results(inputs, context)) as results:
        for rows in results:
            deadline.check()
            wrong, sums = check_tables([Table(step.layout, rows.keys, rows.values, MAX_SUM)], checker)
            if wrong >= 0:
                return False, totals, lots
            totals += np.array(sums, dtype=np.uint64)
            lots += 1
    return True, totals, lots


def _on_device(operation: GeneratedOperation, ranks: range, context: ExecutionContext, deadline: Deadline) -> _Totals:
    """Process some ranks with all rows on devices, which take one range after the other from a list."""
    from oocbe.kernels.cuda.gpus import by_gpus, gpus, on_gpus
    from oocbe.kernels.cuda.transfer.memory import device_room

    step, _ = operation.on(ranks)
    most = min(device_room() // tuning().device_row_bytes, DEVICE_ROWS)
    piece_rows = context.space.piece_rows or max(tuning().least_device_piece_rows, most)
    ranges = list(operation.rank_ranges(ranks, piece_rows))
    seconds = operation.rows_in / tuning().generated_rows_a_second
    out_of_core = Lock()

    def alone(ranks: range) -> Iterable[_Totals]:
        with out_of_core:  # the context's buffers and memory are for one at a time
            return [_out_of_core(operation, ranks, context, deadline)]

    def attempt(numbers: Sequence[int]) -> list[_Totals]:
        found: list[_Totals] = []
        remaining, stopped = iter(ranges), Event()

        def stoppable() -> Iterator[range]:
            for ranks in remaining:  # each is for one thread: the iterator of a list is atomic
                if stopped.is_set():
                    raise StoppedError
                yield ranks

        def work(position: int) -> None:
            found.extend(_of_ranges(operation, step, stoppable(), context.kernels, deadline, alone))

        on_gpus(numbers, work, stopped.set)
        return found

    found = by_gpus(gpus(seconds)[: len(ranges)], attempt)
    totals = np.array([total for _, total, _ in found], dtype=np.uint64).sum(axis=0, dtype=np.uint64)
    return all(is_right for is_right, _, _ in found), totals, len(ranges)


def _of_ranges(
    operation: GeneratedOperation,
    step: Step,
    ranges: Iterable[range],
    kernels: Backend,
    deadline: Deadline,
    alone: Callable[[range], Iterable[_Totals]],
) -> list[_Totals]:
    """Process ranges of ranks on the current device; groups for which it has no memory, by ``alone``."""
    from oocbe.kernels.cuda.transfer.memory import with_retry
    from oocbe.stress.kernels.cuda.synthetic import TableRows

    sums = operation.checker.on_device(step.layout)
    dtypes = (table.value_dtype(np.dtype(np.int32)) for table in operation.tables)
    makers = [
        TableRows(table.layout.words, dtype, table.classes, table.fields, table.settings)
        for table, dtype in zip(operation.tables, dtypes, strict=True)
    ]

    @with_retry
    def compute(ranks: range) -> Iterable[_Totals]:
        tables = []
        for table, maker in zip(operation.tables, makers, strict=True):
            first, stop = table.first_row(ranks.start), table.first_row(ranks.stop)
            tables.append(Table(table.layout, *maker.rows(first, stop - first), MAX_SUM, is_sorted=True))
        sums.add(*step.rows(tables, kernels))
        return ()

    found: list[_Totals] = []
    for ranks in ranges:
        deadline.check()
        found += run_piece(ranks, compute, _halves, lambda error: isinstance(error, ResourceError), alone=alone)
    return [*found, (*sums.read(), 0)]


def _halves(ranks: range) -> Iterable[range] | Indivisible[range]:
    """Halves of a range of ranks."""
    if len(ranks) == 1:
        return Indivisible(ranks, f"group {ranks.start:,}")
    middle = len(ranks) // 2
    return ranks[:middle], ranks[middle:]


class Digest:
    """Sums of all segments so far; ``rows``: of workers in a trace; ``hears``: gets the result's rows so far."""

    def __init__(self, operation: GeneratedOperation, rows: dict[str, int], hears: Hears | None = None) -> None:
        self._operation, self._rows, self._hears = operation, rows, hears
        self._totals = np.zeros(SUMS, dtype=np.uint64)
        self.name = f"{operation.operator} of generated rows"
        self.is_right = True

    def add(self, digested: Digested) -> None:
        """Add the result of a segment."""
        trace_segment(digested.made, self.name, self._rows)
        self.is_right &= digested.is_right
        self._totals += np.array(digested.sums, dtype=np.uint64)
        if self._hears is not None:
            self._hears(int(self._totals[0]))

    def verdict(self) -> ResultCheck:
        """The check of the completeness and correctness of all rows."""
        expected, sums = self._operation.checker.expected, [int(total) for total in self._totals]
        if not self.is_right:
            return ResultCheck(sums[0], expected, "a row is none of the result's, or has another value")
        return summed_up(sums, expected)


def digest_here(operation: GeneratedOperation, context: ExecutionContext, hears: Hears | None = None) -> ResultCheck:
    """Run an operation here; ``hears`` as for :class:`Digest`; ResourceError: a piece too large; TimeLimitError."""
    digest, deadline = Digest(operation, {}, hears), Deadline()
    at_once = STRETCHES_HERE * (DEVICE_TIMES if context.kernels.name == "cuda" else 1)
    for first in range(0, operation.stretches, at_once):
        run = range(first, min(first + at_once, operation.stretches))
        digest.add(_digested(operation, operation.ranks(run), context, deadline))
        if not digest.is_right:
            break
    return digest.verdict()


def digest_by(
    workers: Workers,
    operation: GeneratedOperation,
    folder: Path,
    backend: str | None,
    streams: int | None,
    hears: Hears | None = None,
) -> ResultCheck:
    """Run a whole operation on workers.

    folder : shared by all of them, for scratch files; the caller removes it. backend, streams : as for operators.
    hears : as for :class:`Digest`.
    Raises ClusterError: the workers cannot go on; ResourceError: a worker has no memory for the smallest segment.
    """
    digest, deadline = Digest(operation, workers.rows, hears), Deadline()
    runs = ItemRanges(range(operation.stretches + 1), workers, FIRST_STRETCHES)

    def segment_of(run: range, sharing: int) -> RankSegment:
        how = WorkerConfig.of(workers, deadline, DiskBudget(folder), sharing, backend=backend, streams=streams)
        return RankSegment(how, folder.absolute(), operation, operation.ranks(run))

    def done(run: range, digested: Digested) -> None:
        runs.learn(run, digested.made.seconds)
        digest.add(digested)

    halves = partial(halved_run, what=f"a stretch of {STRETCH_ROWS:,} rows")
    kind = ("generated", operation.operator)
    dispatch = Dispatch(digest.name, workers, digest_segment, segment_of, done, halves, deadline, kind)
    dispatch.run(takewhile(lambda run: digest.is_right, runs))
    return digest.verdict()


STRETCHES, LEAST_STRETCH = 1 << 10, 1 << 12
"""Limit of the number of stretches, at whose edges the rows can be cut, and least number of rows of one."""


class GeneratedRows(EvenStretches):
    """Rows of groups of some ranks of a sorted table; a :class:`oocbe.execution.partition.KeyedRows`."""

    def __init__(self, table: SyntheticTable, ranks: range) -> None:
        assert table.is_sorted
        self.layout, self.dtype, self.is_sorted = table.layout, table.value_dtype(np.dtype(np.int32)), True
        self.scope, self.semiring = self.layout.scope, MAX_SUM
        self._table, self._first = table, table.first_row(ranks.start)
        self.rows = table.first_row(ranks.stop) - self._first
        self.stretch_rows = max(LEAST_STRETCH, -(-self.rows // STRETCHES))

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[np.signedinteger] | None) -> None:
        """Make rows from ``start`` on; see :class:`oocbe.execution.sources.Source`."""
        table = self._table
        given = np.empty(0, dtype=self.dtype) if values is None else values
        fill_in_order(keys, given, self._first + start, table.classes, table.fields, table.settings)

    def edge_keys(self, stretch: int) -> tuple[int, int]:
        """Keys of the first and the last row of a stretch."""
        return self._key(self.stretch_start(stretch)), self._key(self.stretch_start(stretch + 1) - 1)

    def keys_of(self, stretch: int) -> NDArray[np.uint64]:
        """Keys of all rows of a stretch, uint64 (words, rows)."""
        start = self.stretch_start(stretch)
        return self._keys(start, self.stretch_start(stretch + 1) - start)

    def _key(self, row: int) -> int:
        return key_number(self._keys(row, 1), 0)

    def _keys(self, start: int, count: int) -> NDArray[np.uint64]:
        keys = np.empty((self.layout.words, count), dtype=np.uint64)
        self.read_into(start, keys, None)
        return keys
