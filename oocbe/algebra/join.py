"""Join sum of two tables (Bistaffa, Bombieri and Farinelli 2016, algorithm 4), in memory and of any size.

Out of core both tables are partitioned by their shared variables; each part is joined in memory, its result handed over
in pieces. A group too large for a piece is cut: blocks of the second table's rows are joined with all of the first
one's where these fit, else single rows with block after block, which keeps the order (second table's rows outermost)
and reads no more than a constant times what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.arrange import arrange, match, without_lonely
from oocbe.algebra.inputs import check_pair
from oocbe.algebra.out_of_core.context import (
    ExecutionContext,
    OperationPiece,
    ResultRows,
    Step,
    join_cost,
)
from oocbe.algebra.ranges import joined_dtype
from oocbe.errors import ResourceError
from oocbe.execution.partition import JoinInput
from oocbe.execution.sources import Source
from oocbe.kernels.interface import Backend, MatchedGroups
from oocbe.model.semiring import Semiring
from oocbe.model.settings.machine import check_room
from oocbe.tables.layout import Layout, move_plan
from oocbe.tables.table import Table, format_bytes

COPIES, GROUP_BYTES = 3.5, 48
"""Memory of a part's row: as read, moved, converted and sorted; starts and matches where each row is a group."""


@dataclass(frozen=True)
class Join(Step):
    """A join of two tables.

    shared : the variables that both have, the least significant first. layout, dtype, semiring : of the result: the
        shared variables, the rest of the first table's, the rest of the second one's.
    """

    shared: tuple[str, ...]
    layout: Layout
    dtype: np.dtype[Any]
    semiring: Semiring
    is_sorted = False
    goes_through_device = False

    @classmethod
    def of(cls, tables: Sequence[Any], extents: Sequence[NDArray[Any]]) -> Join:
        """The step for two tables; ``extents`` as for :func:`oocbe.algebra.dispatch.step_of`."""
        one, two = (table.layout for table in tables)
        shared, semiring = check_pair(*tables), tables[0].semiring
        own1, own2 = ([name for name in layout.scope if name not in shared] for layout in (one, two))
        sizes = (*one.select((*shared, *own1)).sizes, *two.select(own2).sizes)
        layout = Layout.of((*shared, *own1, *own2), sizes, one, two)
        return cls(shared, layout, joined_dtype(extents[0], extents[1], semiring), semiring)

    @property
    def common(self) -> tuple[str, ...]:
        """See :class:`Step`."""
        return self.shared

    unit = cut = common

    def dtype_of(self, extents: Sequence[NDArray[Any]]) -> np.dtype[Any]:
        """See :class:`Step`."""
        return joined_dtype(extents[0], extents[1], self.semiring)

    def prepare(
        self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None = None
    ) -> tuple[MatchedGroups, Callable[[MatchedGroups], tuple[NDArray[np.uint64], NDArray[Any]]]]:
        """Bring two tables into the order of their shared variables and find the groups that both have.

        Returns these groups, and a function that gives keys and values of the joined rows of some of them.
        """
        own = [[name for name in table.scope if name not in self.shared] for table in tables]
        first, second = (
            arrange(table, (*self.shared, *names), self.shared, self.dtype, kernels, piece_rows)
            for table, names in zip(without_lonely(tables, self.shared, kernels, piece_rows), own, strict=True)
        )
        words, combination = self.layout.words, self.semiring.combination
        added = kernels.permute(second.keys, move_plan(second.layout, self.layout, own[1]), words, piece_rows)

        def rows(groups: MatchedGroups) -> tuple[NDArray[np.uint64], NDArray[Any]]:
            given = first.keys, first.values, added, second.values
            return kernels.join_rows(*given, groups, words, combination, piece_rows)

        return match(first, second, self.shared, kernels, piece_rows), rows

    def rows(
        self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None = None
    ) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """See :class:`Step`; the rows are grouped by the shared variables."""
        groups, rows = self.prepare(tables, kernels, piece_rows)
        return rows(groups)

    def table(self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None = None) -> Table:
        """See :class:`Step`; ResourceError if the joined rows do not fit in memory."""
        groups, rows = self.prepare(tables, kernels, piece_rows)
        needed = int(groups.joined_rows) * (8 * self.layout.words + self.dtype.itemsize)
        try:
            check_room(needed)
            return self.as_table(rows(groups), tables)
        except MemoryError:
            raise ResourceError(
                f"joining {tables[0]!r} and {tables[1]!r} gives {groups.joined_rows:,} rows, "
                f"{format_bytes(needed)}, more than the memory left; eliminate a variable in the same step "
                "(join_maximise), which writes no joined row, or name an output table on disk"
            ) from None

    def inputs(self, sources: Sequence[Source]) -> list[JoinInput]:
        """See :class:`Step`: shared variables lowest."""
        found = []
        for source in sources:
            own = tuple(name for name in source.layout.scope if name not in self.shared)
            cost = join_cost(source, COPIES, GROUP_BYTES, self.dtype)
            found.append(JoinInput(source, (*self.shared, *own), self.shared, cost))
        return found

    def group_pieces(
        self, inputs: Sequence[JoinInput], context: ExecutionContext, outermost: bool
    ) -> Iterator[OperationPiece]:
        """See :class:`Step`: every row of one source joins every row of the other."""
        first, second = inputs
        rows1 = context.space.rows_of(first.cost, 0.5)
        rows2 = context.space.rows_of(second.cost, 0.5) if first.rows <= rows1 else 1
        for block2 in second.blocks(rows2):
            for block1 in first.blocks(rows1):
                yield OperationPiece(self, (block1, block2), context)

    def work(self, inputs: Sequence[JoinInput], context: ExecutionContext, stream: int) -> Iterator[ResultRows]:
        """See :class:`Step`."""
        kernels = context.kernels
        matched, rows = self.prepare(context.load(inputs, self.semiring, stream), kernels)
        for groups in split_groups(matched, context.joined_rows(self.layout, self.dtype), kernels):
            keys, values = rows(groups)
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
