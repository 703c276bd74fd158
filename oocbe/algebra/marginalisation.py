"""Marginalisation of a table (Bistaffa et al. 2016, algorithm 5: maximisation), in memory and of any size.

Out of core the table is partitioned by the variables that stay; each part is sorted and reduced in memory, and the
concatenated parts are sorted. A group too large for a piece is reduced block by block: the result of the blocks before
goes in front of the next one, so that values are combined in the order of the operator in memory. A table sorted by the
variables that stay is read once, in any ranges, and groups across their bounds are put together the same way.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.arrange import arrange
from oocbe.algebra.out_of_core.context import ExecutionContext, OperationPiece, ResultRows, Step, cost_of
from oocbe.algebra.ranges import reduced_dtype
from oocbe.execution.partition import JoinInput
from oocbe.execution.sources import Source
from oocbe.kernels.interface import Backend
from oocbe.model.semiring import Semiring
from oocbe.tables.layout import Layout, field_masks
from oocbe.tables.residence import to_kernels
from oocbe.tables.table import Table

COPIES, GROUP_BYTES = 5, 16
"""Memory of a part's row: as read, moved, converted, sorted, and as a result twice where each row is a group."""


def has_duplicates(table: Any) -> bool:
    """Whether a key may occur in a table more than once."""
    return bool(getattr(table, "duplicates", False))


@dataclass(frozen=True)
class MarginalisationStep(Step):
    """A marginalisation of a table.

    layout, dtype, semiring : of the result; the layout has the variables that stay.
    terms : rows that become one, at most.
    in_blocks : whether the source's rows are grouped already, and cut wherever a piece is full: pieces may begin and
        end within a group.
    goes_through_device : False if sums may have more terms than there are combinations of the eliminated variables.
    """

    layout: Layout
    dtype: np.dtype[Any]
    semiring: Semiring
    terms: int = 1
    in_blocks: bool = False
    goes_through_device: bool = True
    joins = False

    @classmethod
    def of(cls, table: Any, gone: Sequence[str], extent: NDArray[Any]) -> MarginalisationStep:
        """The step for a table; ``extent`` as for :func:`oocbe.algebra.dispatch.step_of`."""
        sizes = [table.layout.sizes[table.layout.place(name)] for name in gone]
        adds_duplicates = has_duplicates(table) and not table.semiring.selects
        terms = max(1, table.rows) if adds_duplicates else min(prod(sizes), max(1, table.rows))
        layout = table.layout.select([name for name in table.scope if name not in gone])
        dtype = reduced_dtype(extent, table.semiring, terms)
        return cls(layout, dtype, table.semiring, terms, goes_through_device=not adds_duplicates)

    @property
    def common(self) -> tuple[str, ...]:
        """See :class:`Step`."""
        return self.layout.scope

    unit = cut = common

    def dtype_of(self, extents: Sequence[NDArray[Any]]) -> np.dtype[Any]:
        """See :class:`Step`."""
        return reduced_dtype(extents[0], self.semiring, self.terms)

    def rows(
        self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None = None
    ) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """See :class:`Step`; the rows are sorted."""
        (table,) = tables
        rows, starts = self._grouped(table, kernels, piece_rows)
        return self._reduced(rows.keys, rows.values, starts, kernels, piece_rows)

    def _grouped(self, table: Table, kernels: Backend, piece_rows: int | None = None) -> tuple[Table, NDArray[Any]]:
        """The table's rows in order of the variables that stay, and where groups begin."""
        kept = self.layout.scope
        scope = (*kept, *(name for name in table.scope if name not in self.layout))
        rows = arrange(table, scope, () if self.in_blocks else kept, self.dtype, kernels, piece_rows)
        return rows, kernels.group_starts(rows.keys, field_masks(rows.layout, kept), piece_rows)

    def _reduced(
        self, keys: Any, values: Any, starts: Any, kernels: Backend, piece_rows: int | None = None
    ) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        masks = field_masks(self.layout, self.layout.scope)
        return kernels.reduce_groups(keys, values, starts, masks, self.semiring.marginalisation, piece_rows)

    def inputs(self, sources: Sequence[Source]) -> list[JoinInput]:
        """See :class:`Step`: variables that stay lowest."""
        (source,), kept = sources, self.layout.scope
        last = tuple(name for name in source.layout.scope if name not in self.layout)
        cost = cost_of(source, COPIES, GROUP_BYTES) + self.dtype.itemsize
        return [JoinInput(source, (*kept, *last), kept, cost)]

    def results(self, inputs: Sequence[JoinInput], context: ExecutionContext) -> Generator[ResultRows, None, None]:
        """See :class:`Step`."""
        return self.closed(super().results(inputs, context), context.kernels)

    def pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool = True
    ) -> Iterator[OperationPiece]:
        """See :class:`Step`; their results have to be :meth:`closed`."""
        if self.in_blocks or inputs[0].in_order:
            return self.group_pieces(inputs, context, outermost)
        return super().pieces(inputs, context, outermost)

    def group_pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool
    ) -> Iterator[OperationPiece]:
        """Rows that are grouped already, in blocks that may begin and end within a group."""
        (ordered,), grouped = inputs, replace(self, in_blocks=True)
        for block in ordered.blocks(context.space.rows_of(ordered.cost)):
            yield OperationPiece(grouped, [block], context)

    def work(self, inputs: Sequence[JoinInput], context: ExecutionContext, stream: int) -> Iterator[ResultRows]:
        """See :class:`Step`; the groups that are cut open at the ends of the source are raw rows."""
        is_open, kernels = self.in_blocks, context.kernels
        rows, starts = self._grouped(
            to_kernels(context.buffers[stream].load("table", inputs[0].source), kernels), kernels
        )
        masks, groups = field_masks(self.layout, self.layout.scope), len(starts) - 1
        first, last = (1, max(1, groups - 1)) if is_open else (0, groups)

        def raw(low: int, high: int) -> ResultRows:
            keys = kernels.download(rows.keys[: len(masks), low:high]) & masks[:, np.newaxis]
            return ResultRows(np.ascontiguousarray(keys), kernels.download(rows.values[low:high]).copy(), is_open=True)

        # All before the first one is handed over: a second attempt, after memory ran out, may cut elsewhere.
        results = [raw(0, int(starts[1]))] if first else []
        if last > first:
            # The reduction of open groups is wasted: the kernel needs all groups of its rows.
            keys, values = self._reduced(rows.keys, rows.values, starts, kernels)
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
            starts = np.array([0, len(rows.values)], dtype=np.int64)
            keys, values = kernels.upload(rows.keys), kernels.upload(rows.values)
            reduced = self._reduced(keys, values, kernels.upload(starts), kernels)
            held = ResultRows(kernels.download(reduced[0]), kernels.download(reduced[1]))
        if held is not None:
            yield held
