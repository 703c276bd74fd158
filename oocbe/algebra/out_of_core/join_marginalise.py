"""Join sum and marginalisation in one step, on tables of any size.

Where shared variables are eliminated while joining, both tables are partitioned by the shared variables that stay, and
each part is joined as in memory; results laid end to end are sorted. For one combination of those that does not fit:

* where the table with fewer rows fits, the other one is partitioned by its own variables, and each part joined with all
  of the small one;
* otherwise both are partitioned by the eliminated variables as well, which gives partial results. These are written to
  scratch and marginalised there. Minima, maxima and exact integers do not depend on where sums are cut; sums of floats
  may differ in their last bits from those in memory, in this case alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.eliminate_rows import Elimination, PreparedElimination, split_key_word
from oocbe.algebra.inputs import Execution, check_pair
from oocbe.algebra.out_of_core.context import ExecutionContext, OperationPiece, ResultRows, extent_of, join_cost
from oocbe.algebra.out_of_core.join_sum import join_sum_stored
from oocbe.algebra.out_of_core.marginalise import MarginaliseOutOfCore, has_duplicates, marginalise_stored
from oocbe.algebra.out_of_core.segmented_operation import SegmentedOperation, workers_for
from oocbe.algebra.ranges import distributes, joined_dtype
from oocbe.algebra.streamed import plan_elimination, plan_from_disk
from oocbe.errors import ModelError
from oocbe.execution.partition import JoinInput, parts
from oocbe.execution.scratch import ScratchFile
from oocbe.execution.sources import Source, source_of
from oocbe.kernels.interface import Backend, MatchedGroups
from oocbe.model.semiring import Semiring

if TYPE_CHECKING:
    from oocbe.algebra.inputs import TableLike
    from oocbe.tables.layout import Layout
    from oocbe.tables.stored import StoredTable

COPIES, OUTER_BYTES, INNER_BYTES = 3, 40, 180
"""Memory of a part's row: as read, moved and sorted; where runs and groups begin; for the inner table the columns
and buckets of its group, once for each of two threads that have it at work."""


def join_marginalise_stored(
    table1: TableLike, table2: TableLike, variables: tuple[str, ...], settings: Execution
) -> StoredTable:
    """The operators behind :func:`oocbe.join_sum` and :func:`oocbe.join_maximise` with an output; arguments as there.

    Raises
    ------
    ModelError : rows of one key, of a negative value, and the greatest product is asked for.
    """
    shared, semiring = check_pair(table1, table2), table1.semiring
    context = ExecutionContext.of(settings, table1, table2)
    while_joining, later = split_key_word([name for name in shared if name in variables], table1.layout)
    pairs = (table1, table2), (table2, table1)
    alone = [tuple(name for name in variables if name not in other.layout) for _, other in pairs]
    # The best of several rows of one key is found while variables are eliminated.
    doubled = [has_duplicates(table) and not (while_joining and semiring.selects) for table, _ in pairs]
    is_first = any(alone) or any(doubled)
    with context.scratch_folder() as folder:
        if is_first and not distributes(extent_of(table1, semiring), extent_of(table2, semiring), semiring):
            if any(has_duplicates(table) for table, _ in pairs):
                raise ModelError(
                    "rows of one key cannot be combined before they are joined, as a value is negative, and the "
                    "greatest product is asked for; combine them beforehand, if that is meant: "
                    "maximise(table, [], output=…)"
                )
            joined = join_sum_stored(table1, table2, context.settings_inside(folder / "joined"))
            return marginalise_stored(joined, variables, settings)
        tables = [
            marginalise_stored(table, gone, context.settings_inside(folder / f"{number}")) if gone or twice else table
            for number, ((table, _), gone, twice) in enumerate(zip(pairs, alone, doubled, strict=True))
        ]
        if not while_joining:
            return join_sum_stored(tables[0], tables[1], settings)
        assert settings.output is not None
        result = _eliminate(tables, shared, while_joining, folder / "eliminated" if later else settings.output, context)
        return marginalise_stored(result, tuple(later), settings) if later else result


def _eliminate(
    tables: Sequence[TableLike],
    shared: Sequence[str],
    gone: Sequence[str],
    output: str | Path,
    context: ExecutionContext,
) -> StoredTable:
    """Join two tables and eliminate shared variables that fit in one key word."""
    t1, t2 = tables
    outer, inner = (t1, t2) if t1.rows >= t2.rows else (t2, t1)
    elimination = Elimination(outer.layout, inner.layout, tuple(shared), tuple(gone))
    # Where no shared variable stays, the rows of the outer table are cut, and each range of them meets the inner one.
    cut = elimination.kept or elimination.own_outer
    workers = workers_for(cut, t1, t2)
    planner = partial(plan_elimination, variables=gone)
    if workers is None:
        plan = plan_from_disk(tables, context.kernels, planner)
        if plan is not None and (written := plan.to_disk(output, context)) is not None:
            return written
    terms = min(prod(t1.layout.select(gone).sizes), max(1, t1.rows * t2.rows))
    dtype = joined_dtype(extent_of(t1, t1.semiring), extent_of(t2, t2.semiring), t1.semiring, terms)
    operation = EliminateOutOfCore(elimination, dtype, t1.semiring)
    inputs = operation.outer(source_of(outer)), operation.inner(source_of(inner))
    if workers is not None:
        given = (0, 1) if outer is t1 else (1, 0)
        return SegmentedOperation(workers, context, planner, given).write(output, operation, inputs, cut)
    return context.write(output, operation, inputs)


@dataclass(frozen=True)
class EliminateOutOfCore:
    """A join of two sources with shared variables eliminated."""

    elimination: Elimination
    dtype: np.dtype[Any]
    semiring: Semiring

    @property
    def layout(self) -> Layout:
        """Of the result."""
        return self.elimination.layout

    def results(self, inputs: Sequence[JoinInput], context: ExecutionContext) -> Generator[ResultRows, None, None]:
        """All rows of the result."""
        reduction = MarginaliseOutOfCore(self.layout, self.dtype, self.semiring)
        return reduction.closed(context.run(self.pieces(inputs, context)), context.kernels)

    def outer(self, source: Source) -> JoinInput:
        """How the operation wants the table with more rows."""
        return self._ordered(source, self.elimination.outer_scope, OUTER_BYTES)

    def inner(self, source: Source) -> JoinInput:
        """How the operation wants the table with fewer rows."""
        return self._ordered(source, self.elimination.inner_scope, INNER_BYTES)

    def _ordered(self, source: Source, scope: tuple[str, ...], more: int) -> JoinInput:
        return JoinInput(source, scope, self.elimination.kept, join_cost(source, COPIES, more, self.dtype))

    def pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool = True
    ) -> Iterator[OperationPiece]:
        """Pieces of work whose results, laid end to end, are the operation's, sorted."""
        for part in parts(inputs, context.space, context.kernels, outermost=outermost):
            if part.fits:
                yield OperationPiece.of_join(self, part.inputs, context)
            else:
                yield from self._group(part.inputs, context, outermost)

    def _group(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool
    ) -> Iterator[OperationPiece]:
        """All rows have one combination of the variables that stay and are shared."""
        outer, inner = inputs
        own = self.elimination.own_outer
        if own and context.space.fits([(2 * inner.rows, inner.cost)]):
            less = replace(context.space, pieces=context.space.pieces / 2)
            by_own = replace(outer, common=own)
            for part in parts([by_own], less, context.kernels, outermost=outermost):
                piece = (replace(part.inputs[0], common=outer.common), inner)
                if not part.fits:
                    yield from self._partial(piece, context)
                else:
                    yield OperationPiece.of_join(self, piece, context)
        else:
            yield from self._partial(inputs, context)

    def _partial(self, inputs: Sequence[JoinInput], context: ExecutionContext) -> Iterator[OperationPiece]:
        """Join part by part of the eliminated variables; then marginalise what came out of the parts."""
        layout = self.elimination.layout
        inside = context.fresh(context.space.inside())
        most = inside.joined_rows(layout, self.dtype)
        scratch = ScratchFile(context.space.disk, layout, self.dtype)
        for rows in inside.run(self._partial_pieces(inputs, inside)):
            for low in range(0, len(rows.values), most):
                high = min(low + most, len(rows.values))
                scratch.append(rows.keys[:, low:high], rows.values[low:high], np.array([0, high - low]))
        operation = MarginaliseOutOfCore(layout, self.dtype, self.semiring)
        yield from operation.pieces([operation.ordered(scratch)], context, outermost=False)

    def _partial_pieces(self, inputs: Sequence[JoinInput], context: ExecutionContext) -> Iterator[OperationPiece]:
        by_gone = [replace(ordered, common=self.elimination.gone) for ordered in inputs]
        for part in parts(by_gone, context.space, context.kernels, outermost=False):
            outer, inner = (
                replace(found, common=ordered.common) for found, ordered in zip(part.inputs, inputs, strict=True)
            )
            if part.fits:
                yield OperationPiece.of_join(self, (outer, inner), context)
                continue
            # One value of all shared variables: each row meets each, in blocks.
            for block1 in outer.blocks(context.space.rows_of(outer.cost, 0.5)):
                for block2 in inner.blocks(context.space.rows_of(inner.cost, 0.5)):
                    yield OperationPiece.of_join(self, (block1, block2), context)

    def work(self, inputs: Sequence[JoinInput], context: ExecutionContext, stream: int) -> Iterator[ResultRows]:
        """The results of inputs that fit a piece."""
        kernels = context.kernels
        outer, inner = context.load(inputs, self.semiring, stream)
        join = self.elimination.prepare(outer, inner, self.dtype, kernels)
        most = context.joined_rows(self.elimination.layout, self.dtype)
        runs = kernels.download(kernels.group_starts(join.outer.keys, join.plan.outer_run))
        ranks = kernels.download(kernels.group_starts(join.inner.keys, join.plan.inner_rank))
        met = partial(self._met_rows, join, kernels)
        for low, high, groups in split_runs(join.groups, runs, ranks, most, kernels, met):
            keys, values = join.rows(low, high, groups)
            if len(values):
                yield ResultRows(kernels.download(keys), kernels.download(values))

    def _met_rows(self, join: PreparedElimination, kernels: Backend) -> NDArray[np.int64]:
        """For each outer row, how many inner rows agree with it on the eliminated variables."""
        outer = kernels.download(kernels.permute(join.outer.keys, join.plan.outer_eliminated, 1))[0]
        inner = kernels.download(kernels.permute(join.inner.keys, join.plan.inner_eliminated, 1))[0]
        eliminated, counts = np.unique(inner, return_counts=True)
        places = np.minimum(np.searchsorted(eliminated, outer), len(eliminated) - 1)
        return np.where(eliminated[places] == outer, counts[places], 0)


def split_runs(
    groups: MatchedGroups,
    runs: NDArray[np.int64],
    ranks: NDArray[np.int64],
    most: int,
    kernels: Backend,
    met_rows: Callable[[], NDArray[np.int64]],
) -> Iterator[tuple[int, int, MatchedGroups]]:
    """Ranges of outer rows that give at most ``most`` result rows (one run may give more), and their groups.

    A run gives no more rows than its group has columns. Where that is too much and there is one group alone, such as
    where all shared variables are eliminated, neither does it give more than the inner rows that its rows meet.

    Parameters
    ----------
    runs, ranks : where runs of outer rows and columns of inner rows begin, and the number of rows last.
    met_rows : gives, for each outer row, the inner rows that it meets; asked for only where it matters.
    """
    starts1, counts1 = kernels.download(groups.starts1), kernels.download(groups.counts1)
    starts2, counts2 = kernels.download(groups.starts2), kernels.download(groups.counts2)
    if len(starts1) == 0:
        return
    columns = np.searchsorted(ranks, starts2 + counts2) - np.searchsorted(ranks, starts2)
    firsts = np.searchsorted(runs, starts1)
    many = np.searchsorted(runs, starts1 + counts1) - firsts
    group_of = np.repeat(np.arange(len(many)), many)
    run_of = np.arange(len(group_of)) + np.repeat(firsts - (np.cumsum(many) - many), many)
    bounds = columns[group_of]
    if len(starts1) == 1 and bounds.sum() > most:
        first, last = int(runs[run_of[0]]), int(runs[run_of[-1] + 1])
        bounds = np.minimum(bounds, np.add.reduceat(met_rows()[first:last], runs[run_of] - first))
    ends = np.cumsum(bounds)
    low, done = 0, 0
    while low < len(ends):
        high = max(low + 1, int(np.searchsorted(ends, done + most, side="right")))
        first_row, last_row = int(runs[run_of[low]]), int(runs[run_of[high - 1] + 1])
        chosen = slice(int(group_of[low]), int(group_of[high - 1]) + 1)
        begins = np.maximum(starts1[chosen], first_row)
        stops = np.minimum(starts1[chosen] + counts1[chosen], last_row)
        yield (
            first_row,
            last_row,
            MatchedGroups(
                kernels.upload(begins - first_row),
                kernels.upload(stops - begins),
                groups.starts2[chosen],
                groups.counts2[chosen],
            ),
        )
        low, done = high, int(ends[high - 1])
