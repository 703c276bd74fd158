"""Join sum of tables of any size: the rows of the operator in memory, in the same order, written to disk.

Both tables are partitioned by their shared variables; each part is joined in memory, its result handed over in pieces.
A group too large for a piece is cut: blocks of the second table's rows are joined with all of the first one's where
these fit, else single rows with block after block, which keeps the order (second table's rows outermost) and reads no
more than a constant times what is written. Rows of one key, of tables that may have some,
are combined before.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from oocbe.algebra.inputs import Execution, check_pair
from oocbe.algebra.join_rows import joined_layout, prepare_join
from oocbe.algebra.out_of_core.context import ExecutionContext, OperationPiece, ResultRows, extent_of, join_cost
from oocbe.algebra.out_of_core.segmented_operation import SegmentedOperation, workers_for
from oocbe.algebra.ranges import joined_dtype
from oocbe.execution.partition import JoinInput, parts
from oocbe.execution.sources import Source, source_of
from oocbe.kernels.interface import Backend, MatchedGroups
from oocbe.model.semiring import Semiring

if TYPE_CHECKING:
    from oocbe.algebra.inputs import TableLike
    from oocbe.tables.layout import Layout
    from oocbe.tables.stored import StoredTable

COPIES, GROUP_BYTES = 3.5, 48
"""Memory of a part's row: as read, moved, converted and sorted; starts and matches where each row is a group."""


def join_sum_stored(table1: TableLike, table2: TableLike, settings: Execution) -> StoredTable:
    """The joined rows of two tables in which no key occurs twice, on disk."""
    shared, semiring = check_pair(table1, table2), table1.semiring
    dtype = joined_dtype(extent_of(table1, semiring), extent_of(table2, semiring), semiring)
    context = ExecutionContext.of(settings, table1, table2)
    join = JoinOutOfCore(shared, joined_layout(table1.layout, table2.layout, shared), dtype, semiring)
    inputs = [join.ordered(source_of(table)) for table in (table1, table2)]
    assert settings.output is not None
    workers = workers_for(shared, table1, table2)
    if workers is not None:
        return SegmentedOperation(workers, context).write(settings.output, join, inputs, shared)
    return context.write(settings.output, join, inputs)


@dataclass(frozen=True)
class JoinOutOfCore:
    """A join of two sources.

    Attributes
    ----------
    shared : the variables that both have, the least significant first. layout, dtype, semiring : of the result.
    """

    shared: tuple[str, ...]
    layout: Layout
    dtype: np.dtype[Any]
    semiring: Semiring

    def ordered(self, source: Source) -> JoinInput:
        """How the join wants a source: shared variables lowest."""
        own = tuple(name for name in source.layout.scope if name not in self.shared)
        cost = join_cost(source, COPIES, GROUP_BYTES, self.dtype)
        return JoinInput(source, (*self.shared, *own), self.shared, cost)

    def results(self, inputs: Sequence[JoinInput], context: ExecutionContext) -> Generator[ResultRows, None, None]:
        """All joined rows."""
        return context.run(self.pieces(inputs, context))

    def pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool = True
    ) -> Iterator[OperationPiece]:
        """Pieces of work whose results, laid end to end, are the join."""
        for part in parts(inputs, context.space, context.kernels, outermost=outermost):
            if part.fits:
                yield OperationPiece.of_join(self, part.inputs, context)
            else:
                yield from self._group(part.inputs, context)

    def _group(self, inputs: Sequence[JoinInput], context: ExecutionContext) -> Iterator[OperationPiece]:
        """All rows have one shared key: every row of one source joins every row of the other."""
        first, second = inputs
        rows1 = context.space.rows_of(first.cost, 0.5)
        rows2 = context.space.rows_of(second.cost, 0.5) if first.rows <= rows1 else 1
        for block2 in second.blocks(rows2):
            for block1 in first.blocks(rows1):
                yield OperationPiece.of_join(self, (block1, block2), context)

    def work(self, inputs: Sequence[JoinInput], context: ExecutionContext, stream: int) -> Iterator[ResultRows]:
        """The results of inputs that fit a piece."""
        kernels = context.kernels
        t1, t2 = context.load(inputs, self.semiring, stream)
        join = prepare_join(t1, t2, self.shared, self.dtype, kernels)
        rows = context.joined_rows(self.layout, self.dtype)
        for groups in split_groups(join.groups, rows, kernels):
            keys, values = join.rows(groups)
            yield ResultRows(kernels.download(keys), kernels.download(values))


def split_groups(groups: MatchedGroups, most: int, kernels: Backend) -> Iterator[MatchedGroups]:
    """Matched groups cut into runs of at most ``most`` joined rows each, in the order of the joined rows."""
    counts1, counts2 = kernels.download(groups.counts1), kernels.download(groups.counts2)
    ends = np.cumsum(counts1 * counts2)
    low, done = 0, 0
    while low < len(ends):
        high = int(np.searchsorted(ends, done + most, side="right"))
        if high > low:
            yield _part(groups, slice(low, high))
        else:
            high = low + 1
            group = _part(groups, slice(low, high))
            count1, count2 = int(counts1[low]), int(counts2[low])
            step2 = max(1, most // count1)
            for row2 in range(0, count2, step2):
                for row1 in range(0, count1, count1 if count1 <= most else most):
                    many1 = min(count1 - row1, count1 if count1 <= most else most)
                    yield MatchedGroups(
                        group.starts1 + row1,
                        group.counts1 * 0 + many1,
                        group.starts2 + row2,
                        group.counts2 * 0 + min(step2, count2 - row2),
                    )
        low, done = high, int(ends[high - 1])


def _part(groups: MatchedGroups, chosen: slice) -> MatchedGroups:
    return MatchedGroups(groups.starts1[chosen], groups.counts1[chosen], groups.starts2[chosen], groups.counts2[chosen])
