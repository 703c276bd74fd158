"""Segments of an operator on stored tables: a worker's input and its work.

There are two kinds. A table that is not in the order of the variables that it is cut by is sorted in *runs* first: each
has some of its rows, sorted by those variables, those that agree in them in the order that they had. Then a *range* of
those variables' values is taken from all runs of all tables, and what one process would do with the whole tables is
done with these rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from oocbe.algebra.arrange import arrange
from oocbe.algebra.gpu_streaming import DevicePlan
from oocbe.algebra.out_of_core.context import ExecutionContext, Step
from oocbe.algebra.sorted_cuts import RowRanges
from oocbe.execution.budget import Budget
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
from oocbe.execution.key_cuts import KeyIndex, LaidEndToEnd, OrderedSlice
from oocbe.execution.partition import JoinInput, run_cost
from oocbe.execution.sources import StoredRows
from oocbe.kernels import backend_for
from oocbe.runtime.tracing.recorder import KERNELS, span
from oocbe.tables import disk
from oocbe.tables.residence import to_kernels
from oocbe.tables.scratch import default_parent
from oocbe.tables.table import Table


@dataclass(frozen=True)
class RunSegment:
    """Rows of a table to be sorted as a run.

    Attributes
    ----------
    circumstances, part : how, and the beginning of the path of the run.
    table : the rows. low, high : those of the run.
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

    Attributes
    ----------
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
        """Those rows as an input."""
        slices = [OrderedSlice(rows, low, high, self.cut) for rows, low, high in ranges if low < high]
        source = slices[0] if len(slices) == 1 else LaidEndToEnd(slices)
        return JoinInput(source, self.scope, self.common, self.cost)


@dataclass(frozen=True)
class RangeSegment:
    """A range of keys of an operation.

    Attributes
    ----------
    circumstances, part : how, and the beginning of the path of the part to be written.
    operation, inputs : what is done, and with what. low, high : numbers of the cut variables (:class:`KeyIndex`).
    rows : of all inputs, which decide where kernels work.
    scratch : folder for scratch files; None: the worker's own.
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
    """Sort some rows of a table and write them.

    Raises
    ------
    ResourceError : they do not fit in this worker's memory. DiskError, CorruptDataError, ClusterError.
    """
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
                sorted_rows = arrange(rows, segment.scope, segment.order, rows.dtype, kernels)
            del rows
            keys, values = kernels.download(sorted_rows.keys), kernels.download(sorted_rows.values)
            run, how = Table(sorted_rows.layout, keys, values, table.semiring), replace(how, is_scratch=True)
            return written_part(how, segment.part, run.layout, run.dtype, [run], begin)


def operate(segment: RangeSegment) -> PartResult:
    """Do an operation with a range of the rows, and write what comes of it; errors as for :func:`sort_run`."""
    begin, how, operation = time.perf_counter(), segment.circumstances, segment.operation
    with active(how, segment.part) as deadline:
        budget = Budget(how.memory_limit)
        found = [sent.ranges(segment.low, segment.high, budget) for sent in segment.inputs]
        if any(all(low >= high for _, low, high in ranges) for ranges in found):
            return PartResult.since(begin, None, 0, NO_VALUES)
        kernels = backend_for(segment.rows, how.backend)
        folder = segment.scratch or default_parent()
        context = ExecutionContext.within(kernels, budget, folder, how.streams, how.piece_rows)
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
