"""Operators on synthetic tables that nobody writes: rows are made where they are read, and results digested.

A range of ranks has a range of rows of each sorted table, and the operator's results for all ranges, laid end to end,
are its result. So every worker makes the rows of its ranges, does with them what it would do with stored ones, checks
each row of the result, and hands back sums: numbers that do not depend on how the ranks were cut, nor on who was killed
on the way. Nothing is on disk, so tables may have as many rows as time allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TypeAlias

import numpy as np

from oocbe.algebra.eliminate_rows import Elimination
from oocbe.algebra.join_rows import joined_layout
from oocbe.algebra.out_of_core.context import ExecutionContext, PartitionedOperation
from oocbe.algebra.out_of_core.join_marginalise import EliminateOutOfCore
from oocbe.algebra.out_of_core.join_sum import JoinOutOfCore
from oocbe.algebra.out_of_core.marginalise import MarginaliseOutOfCore
from oocbe.algebra.ranges import joined_dtype, reduced_dtype
from oocbe.execution.budget import Budget
from oocbe.execution.cluster.collection import Runs, begin_here, circumstances, halved_run, trace_segment
from oocbe.execution.cluster.dispatch import Dispatch
from oocbe.execution.cluster.segment_files import NO_VALUES, PartResult, WorkerConfig, active
from oocbe.execution.cluster.workers import Workers
from oocbe.execution.partition import JoinInput
from oocbe.execution.schedule.forecast import forecast, piece_rows, usual_conditions
from oocbe.execution.schedule.simulation import Simulated
from oocbe.execution.schedule.stages import predicted_stage
from oocbe.kernels import backend_for
from oocbe.model.semiring import MAX_SUM
from oocbe.runtime.deadline import Deadline
from oocbe.stress.answers import ResultCheck, summed_up
from oocbe.stress.generated import GeneratedRows
from oocbe.stress.row_checks import SUMS, JoinedRows, MarginalisedRows, RowChecker, check_tables
from oocbe.stress.tables import SyntheticTable
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.table import Table

JOIN_MAXIMISE, JOIN_SUM, MAXIMISE = OPERATORS = "join-maximise", "join-sum", "maximise"
"""Operators: a join with e marginalised out, a join, and the first table without its own variable."""

Hears: TypeAlias = Callable[[int], None]
"""Is told how many rows there are so far."""

STRETCH_ROWS = 1 << 20
"""Rows of the first table, about, in the smallest range of ranks that is given away."""

FIRST_STRETCHES, STRETCHES_HERE = 4, 16
"""Stretches of a segment, at most, before it is known how long any takes; and of one where one process does them all:
some seconds."""

SAMPLES, SAMPLE_STRETCHES = 4, 8
"""Segments whose seconds are measured for a forecast, evenly spread, and stretches of each."""


@dataclass(frozen=True)
class GeneratedOperation:
    """An operator and its tables; sent to workers as it is.

    Attributes
    ----------
    operator : one of :data:`OPERATORS`. tables : one for ``maximise``, two of one family otherwise; sorted.
    """

    operator: str
    tables: tuple[SyntheticTable, ...]

    @cached_property
    def checker(self) -> RowChecker:
        """Of the result's rows."""
        if self.operator == MAXIMISE:
            return MarginalisedRows(*self.tables)
        first, second = self.tables
        return JoinedRows(first, second, self.operator == JOIN_MAXIMISE)

    @property
    def rows_in(self) -> int:
        """Rows of all tables."""
        return sum(table.rows_made for table in self.tables)

    @property
    def stretches(self) -> int:
        """Smallest ranges of ranks that the work is cut into."""
        return max(1, -(-self.tables[0].rows_made // STRETCH_ROWS))

    def ranks(self, run: range) -> tuple[int, int]:
        """The first rank of some stretches, and the one behind the last; there may be none between them."""
        table = self.tables[0]
        return table.rank_from(run.start * STRETCH_ROWS), table.rank_from(run.stop * STRETCH_ROWS)

    def on(self, low: int, high: int) -> tuple[PartitionedOperation, list[JoinInput]]:
        """The operation, and its inputs with the groups of some ranks."""
        sources = [GeneratedRows(table, low, high) for table in self.tables]
        values = [np.array([0, table.greatest], dtype=s.dtype) for table, s in zip(self.tables, sources, strict=True)]
        if self.operator == MAXIMISE:
            (source,) = sources
            kept = tuple(name for name in source.layout.scope if name != self.tables[0].own)
            dtype = reduced_dtype(values[0], MAX_SUM, self.tables[0].domain)
            reduction = MarginaliseOutOfCore(source.layout.select(kept), dtype, MAX_SUM)
            return reduction, [reduction.ordered(source)]
        first, second = (source.layout for source in sources)
        shared = tuple(name for name in first.scope if name in second.scope)
        dtype = joined_dtype(values[0], values[1], MAX_SUM)
        if self.operator == JOIN_SUM:
            join = JoinOutOfCore(shared, joined_layout(first, second, shared), dtype, MAX_SUM)
            return join, [join.ordered(source) for source in sources]
        elimination = EliminateOutOfCore(Elimination(first, second, shared, ("e",)), dtype, MAX_SUM)
        return elimination, [elimination.outer(sources[0]), elimination.inner(sources[1])]


@dataclass(frozen=True)
class RankSegment:
    """A range of ranks of an operation to be done.

    Attributes
    ----------
    circumstances : how. folder : is there as long as the work is wanted; for scratch files as well.
    operation : what is done. low, high : the first rank, and the one behind the last.
    """

    circumstances: WorkerConfig
    folder: Path
    operation: GeneratedOperation
    low: int
    high: int


@dataclass(frozen=True)
class Digested:
    """What came of a segment: whether all rows are right, their sums (:data:`SUMS`), and who did it, and when."""

    is_right: bool
    sums: list[int]
    made: PartResult


def digest_segment(told: RankSegment) -> Digested:
    """Do a range of ranks; errors as for a segment of any operation (:mod:`oocbe.execution.cluster.segment_files`)."""
    how = told.circumstances
    with active(how, told.folder / "digest") as deadline:
        kernels = backend_for(told.operation.rows_in, how.backend)
        budget = Budget(how.memory_limit)
        context = ExecutionContext.within(kernels, budget, told.folder, how.streams, how.piece_rows)
        return _digested(told.operation, told.low, told.high, context, deadline)


def _digested(
    operation: GeneratedOperation, low: int, high: int, context: ExecutionContext, deadline: Deadline
) -> Digested:
    begin = time.perf_counter()
    totals, is_right, lots, checker = np.zeros(SUMS, dtype=np.uint64), True, 0, operation.checker
    if low < high:
        step, inputs = operation.on(low, high)
        with closing(step.results(inputs, context)) as results:
            for rows in results:
                deadline.check()
                wrong, sums = check_tables([Table(step.layout, rows.keys, rows.values, MAX_SUM)], checker)
                if wrong >= 0:
                    is_right = False
                    break
                totals += np.array(sums, dtype=np.uint64)
                lots += 1
    sums = [int(total) for total in totals]
    return Digested(is_right, sums, PartResult.since(begin, None, sums[0], NO_VALUES, lots))


class Digest:
    """The sums of all segments so far.

    Parameters
    ----------
    rows : row of each worker in a trace. hears : is told the rows of the result that are there, after each segment.
    """

    def __init__(self, operation: GeneratedOperation, rows: dict[str, int], hears: Hears | None = None) -> None:
        self._operation, self._rows, self._hears = operation, rows, hears
        self._totals = np.zeros(SUMS, dtype=np.uint64)
        self.name = f"{operation.operator} of generated rows"
        self.is_right = True

    def add(self, digested: Digested) -> None:
        """What came of a segment."""
        trace_segment(digested.made, self.name, self._rows)
        self.is_right &= digested.is_right
        self._totals += np.array(digested.sums, dtype=np.uint64)
        if self._hears is not None:
            self._hears(int(self._totals[0]))

    def verdict(self) -> ResultCheck:
        """Whether all rows are there and right."""
        expected, sums = self._operation.checker.expected, [int(total) for total in self._totals]
        if not self.is_right:
            return ResultCheck(sums[0], expected, "a row is none of the result's, or has another value")
        return summed_up(sums, expected)


def digest_here(operation: GeneratedOperation, context: ExecutionContext, hears: Hears | None = None) -> ResultCheck:
    """Do all of an operation in this process; ``hears`` as for :class:`Digest`.

    Raises
    ------
    ResourceError : a piece does not fit in memory. TimeLimitError : the current deadline came.
    """
    digest, deadline = Digest(operation, {}, hears), Deadline()
    for first in range(0, operation.stretches, STRETCHES_HERE):
        run = range(first, min(first + STRETCHES_HERE, operation.stretches))
        digest.add(_digested(operation, *operation.ranks(run), context, deadline))
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
    """Have workers do all of an operation.

    Parameters
    ----------
    folder : that all of them see, for scratch files; who asks and ends removes it. backend, streams : as for operators.
    hears : as for :class:`Digest`.

    Raises
    ------
    ClusterError : the workers cannot go on. ResourceError : a worker has no memory for the smallest segment.
    """
    digest, count = Digest(operation, workers.rows, hears), operation.stretches
    runs, deadline = Runs(count, workers, FIRST_STRETCHES), Deadline()

    def told(run: range, sharing: int) -> RankSegment:
        how = circumstances(
            workers, deadline, backend=backend, streams=streams, piece_rows=None, memory=workers.memory,
            chunk_rows=1, disk=DiskBudget(folder), sharing=sharing,
        )  # fmt: skip
        return RankSegment(how, folder.absolute(), operation, *operation.ranks(run))

    def submit(run: range, sharing: int) -> Future[Digested]:
        return workers.submit(digest.name, digest_segment, told(run, sharing))

    def done(run: range, digested: Digested) -> None:
        runs.pace.learn(len(run) / count, digested.made.seconds)
        digest.add(digested)

    def halves(run: range, error: Exception) -> Iterable[range]:
        return halved_run(run, error, f"a stretch of {STRETCH_ROWS:,} rows")

    def wanted() -> Iterator[range]:
        return takewhile(lambda run: digest.is_right, runs)

    dispatch = Dispatch(digest.name, submit, done, halves, deadline)
    begin_here(workers, ("generated", operation.operator), dispatch, wanted(), lambda run: digest_segment(told(run, 1)))
    dispatch.run(wanted(), workers)
    return digest.verdict()


@dataclass(frozen=True)
class Forecast:
    """How long an operation would take.

    Attributes
    ----------
    sampled_rows, sampled_seconds : rows of the tables that were tried, and what this process took for them.
    simulated : what follows for so many workers, each of which is as this process.
    """

    sampled_rows: int
    sampled_seconds: float
    simulated: Simulated


def forecast_digest(operation: GeneratedOperation, workers: int, context: ExecutionContext) -> Forecast:
    """Do some stretches here, evenly spread, and say what the scheduling model makes of all of them."""
    count = operation.stretches
    starts = sorted({place * count // SAMPLES for place in range(SAMPLES)})
    rows, seconds = 0, 0.0
    for start, end in zip(starts, [*starts[1:], count], strict=True):
        run = range(start, min(end, start + SAMPLE_STRETCHES))
        low, high = operation.ranks(run)
        rows += sum(table.first_row(high) - table.first_row(low) for table in operation.tables)
        seconds += _digested(operation, low, high, context, Deadline()).made.seconds
    total = float(operation.rows_in)
    # What was measured is a mean, whatever straggled in it; the model takes medians.
    median = seconds / max(1, rows) / usual_conditions().mean
    stage = predicted_stage(operation.operator, total, median, piece_rows(total), ())
    return Forecast(rows, seconds, forecast([stage], workers))
