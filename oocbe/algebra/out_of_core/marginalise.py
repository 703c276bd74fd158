"""Marginalisation of a table of any size: the rows of the operator in memory, in the same order, written to disk.

The table is partitioned by the variables that stay; each part is sorted and reduced in memory, and parts laid end to
end are sorted. A group too large for a piece is reduced block by block: what came out of the blocks before goes in
front of the next one, so that values are combined in the very order in which the operator in memory combines them. A
table sorted by the variables that stay is read once, in any ranges, and groups across their bounds are put together
the same way.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from oocbe.algebra.arrange import arrange
from oocbe.algebra.inputs import Execution
from oocbe.algebra.out_of_core.context import ExecutionContext, OperationPiece, ResultRows, cost_of, extent_of
from oocbe.algebra.out_of_core.segmented_operation import SegmentedOperation, workers_for
from oocbe.algebra.ranges import reduced_dtype
from oocbe.algebra.streamed import plan_from_disk, plan_marginalise
from oocbe.execution.partition import JoinInput, parts
from oocbe.execution.sources import Source, source_of
from oocbe.kernels.interface import Backend
from oocbe.model.semiring import Semiring
from oocbe.tables.moves import field_masks
from oocbe.tables.residence import to_kernels

if TYPE_CHECKING:
    from oocbe.algebra.inputs import TableLike
    from oocbe.tables.layout import Layout
    from oocbe.tables.stored import StoredTable

COPIES, GROUP_BYTES = 5, 16
"""Memory of a part's row: as read, moved, converted, sorted, and as a result twice where each row is a group."""


def marginalise_stored(table: TableLike, variables: tuple[str, ...], settings: Execution) -> StoredTable:
    """The operator behind :func:`oocbe.maximise` with an output table; arguments as there."""
    sizes = [table.layout.sizes[table.layout.place(name)] for name in variables]
    adds_duplicates = has_duplicates(table) and not table.semiring.selects
    terms = max(1, table.rows) if adds_duplicates else min(prod(sizes), max(1, table.rows))
    dtype = reduced_dtype(extent_of(table, table.semiring), table.semiring, terms)
    context = ExecutionContext.of(settings, table)
    assert settings.output is not None
    kept = tuple(name for name in table.scope if name not in variables)
    workers = workers_for(kept, table)
    # Through a device, sums are expected to have no more terms than there are combinations of what is marginalised.
    planner = None if adds_duplicates else partial(plan_marginalise, gone=variables)
    if workers is None and planner is not None:
        plan = plan_from_disk([table], context.kernels, planner)
        if plan is not None and (written := plan.to_disk(settings.output, context)) is not None:
            return written
    operation = MarginaliseOutOfCore(table.layout.select(kept), dtype, table.semiring)
    inputs = [operation.ordered(source_of(table))]
    if workers is not None:
        return SegmentedOperation(workers, context, planner).write(settings.output, operation, inputs, kept)
    return context.write(settings.output, operation, inputs)


def has_duplicates(table: TableLike) -> bool:
    """Whether a key may occur in a table more than once."""
    return bool(getattr(table, "duplicates", False))


@dataclass(frozen=True)
class MarginaliseOutOfCore:
    """A marginalisation of a source.

    Attributes
    ----------
    layout, dtype, semiring : of the result; the layout has the variables that stay.
    in_blocks : whether the source's rows are grouped already, and cut wherever a piece is full: pieces may begin and
        end within a group.
    """

    layout: Layout
    dtype: np.dtype[Any]
    semiring: Semiring
    in_blocks: bool = False

    def ordered(self, source: Source) -> JoinInput:
        """How the operation wants a source: variables that stay lowest."""
        kept = self.layout.scope
        last = tuple(name for name in source.layout.scope if name not in self.layout)
        return JoinInput(source, (*kept, *last), kept, cost_of(source, COPIES, GROUP_BYTES) + self.dtype.itemsize)

    def results(self, inputs: Sequence[JoinInput], context: ExecutionContext) -> Generator[ResultRows, None, None]:
        """All reduced rows."""
        return self.closed(context.run(self.pieces(inputs, context)), context.kernels)

    def pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool = True
    ) -> Iterator[OperationPiece]:
        """Pieces of work whose results, laid end to end and :meth:`closed`, are the marginalisation."""
        (ordered,) = inputs
        if self.in_blocks or ordered.in_order:
            yield from self._blocks(ordered, context)
            return
        for part in parts([ordered], context.space, context.kernels, outermost=outermost):
            if part.fits:
                yield OperationPiece(self, part.inputs, context)
            else:
                yield from self._blocks(part.inputs[0], context)

    def _blocks(self, ordered: JoinInput, context: ExecutionContext) -> Iterator[OperationPiece]:
        """Rows that are grouped already, in blocks that may begin and end within a group."""
        grouped = replace(self, in_blocks=True)
        for block in ordered.blocks(context.space.rows_of(ordered.cost)):
            yield OperationPiece(grouped, [block], context)

    def work(self, inputs: Sequence[JoinInput], context: ExecutionContext, stream: int) -> Iterator[ResultRows]:
        """The results of a source that fits a piece, with the groups that are cut open at its ends."""
        (ordered,) = inputs
        is_open = self.in_blocks
        kernels, kept = context.kernels, self.layout.scope
        table = to_kernels(context.buffers[stream].load("table", ordered.source), kernels)
        rows = arrange(table, ordered.scope, () if is_open else kept, self.dtype, kernels)
        masks = field_masks(self.layout, kept)
        starts = kernels.group_starts(rows.keys, field_masks(rows.layout, kept))
        groups = len(starts) - 1
        first, last = (1, max(1, groups - 1)) if is_open else (0, groups)

        def raw(low: int, high: int) -> ResultRows:
            keys = kernels.download(rows.keys[: len(masks), low:high]) & masks[:, np.newaxis]
            return ResultRows(np.ascontiguousarray(keys), kernels.download(rows.values[low:high]).copy(), is_open=True)

        # All before the first one is handed over: a second attempt, after memory ran out, may cut elsewhere.
        results = [raw(0, int(starts[1]))] if first else []
        if last > first:
            # Open groups are reduced for nothing: the kernel wants all groups of the rows that it is given.
            keys, values = kernels.reduce_groups(rows.keys, rows.values, starts, masks, self.semiring.marginalisation)
            closed = np.ascontiguousarray(kernels.download(keys[:, first:last]))
            results.append(ResultRows(closed, kernels.download(values[first:last])))
        if is_open and groups > 1:
            results.append(raw(int(starts[last]), int(starts[-1])))
        yield from results

    def closed(self, results: Iterable[ResultRows], kernels: Backend) -> Generator[ResultRows, None, None]:
        """Results with the open groups put together."""
        held: ResultRows | None = None
        for rows in results:
            if held is not None and not (rows.is_open and np.array_equal(rows.keys[:, 0], held.keys[:, 0])):
                yield held
                held = None
            if not rows.is_open:
                yield rows
                continue
            if held is not None:
                rows = ResultRows(
                    np.concatenate((held.keys, rows.keys), axis=1), np.concatenate((held.values, rows.values))
                )
            held = self._reduced(rows, kernels)
        if held is not None:
            yield held

    def _reduced(self, rows: ResultRows, kernels: Backend) -> ResultRows:
        """The one row of a group."""
        starts = kernels.upload(np.array([0, len(rows.values)], dtype=np.int64))
        masks = field_masks(self.layout, self.layout.scope)
        keys, values = kernels.reduce_groups(
            kernels.upload(rows.keys), kernels.upload(rows.values), starts, masks, self.semiring.marginalisation
        )
        return ResultRows(kernels.download(keys), kernels.download(values))
