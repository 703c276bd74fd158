"""Join sum of two tables whose rows are where the kernels work (Bistaffa, Bombieri and Farinelli 2016, algorithm 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.arrange import Arranged, arrange, match
from oocbe.algebra.inputs import check_pair, check_result
from oocbe.algebra.ranges import joined_dtype
from oocbe.errors import ResourceError
from oocbe.kernels.interface import Backend, MatchedGroups
from oocbe.model.settings.machine import check_room
from oocbe.tables.layout import Layout
from oocbe.tables.moves import move_plan
from oocbe.tables.table import Table, format_bytes


def join_tables(t1: Table, t2: Table, kernels: Backend, piece_rows: int | None = None) -> Table:
    """All joined rows, grouped by the shared variables; layout as :func:`oocbe.join_sum` gives it.

    Raises
    ------
    ValueRangeError : a value could leave int64, or has left the range of floats.
    ResourceError : the joined rows do not fit in memory.
    """
    shared = check_pair(t1, t2)
    dtype = joined_dtype(t1.values, t2.values, t1.semiring)
    join = prepare_join(t1, t2, shared, dtype, kernels, piece_rows)
    needed = int(join.groups.joined_rows) * (8 * join.layout.words + dtype.itemsize)
    try:
        check_room(needed)
        keys, values = join.rows(join.groups)
    except MemoryError:
        raise ResourceError(
            f"joining {t1!r} and {t2!r} gives {join.groups.joined_rows:,} rows, {format_bytes(needed)}, more than the "
            "memory left; eliminate a variable in the same step (join_maximise), which writes no joined row, or name "
            "an output table on disk"
        ) from None
    return check_result(Table(join.layout, keys, values, t1.semiring, is_sorted=len(values) < 2), t1, t2)


@dataclass(frozen=True)
class PreparedJoin:
    """Two tables ready to be joined: both grouped by their shared variables, the groups that both have matched."""

    layout: Layout
    first: Arranged
    second: Arranged
    added: NDArray[np.uint64]
    groups: MatchedGroups
    combination: int
    kernels: Backend
    piece_rows: int | None

    def rows(self, groups: MatchedGroups) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Keys and values of the joined rows of some of the groups."""
        first, second = self.first, self.second
        return self.kernels.join_rows(
            first.keys, first.values, self.added, second.values, groups, self.layout.words, self.combination,
            self.piece_rows,
        )  # fmt: skip


def joined_layout(layout1: Layout, layout2: Layout, shared: Sequence[str]) -> Layout:
    """Layout of a join: the shared variables, the rest of the first table's, the rest of the second one's."""
    own1 = [name for name in layout1.scope if name not in shared]
    own2 = [name for name in layout2.scope if name not in shared]
    sizes = (*layout1.select((*shared, *own1)).sizes, *layout2.select(own2).sizes)
    return Layout.of((*shared, *own1, *own2), sizes, layout1, layout2)


def prepare_join(
    t1: Table, t2: Table, shared: Sequence[str], dtype: np.dtype[Any], kernels: Backend, piece_rows: int | None = None
) -> PreparedJoin:
    """Bring two tables into the order of their shared variables and find the groups that both have."""
    layout = joined_layout(t1.layout, t2.layout, shared)
    own1 = [name for name in t1.scope if name not in shared]
    own2 = [name for name in t2.scope if name not in shared]
    first = arrange(t1, (*shared, *own1), shared, dtype, kernels, piece_rows)
    second = arrange(t2, (*shared, *own2), shared, dtype, kernels, piece_rows)
    groups = match(first, second, shared, kernels, piece_rows)
    added = kernels.permute(second.keys, move_plan(second.layout, layout, own2), layout.words, piece_rows)
    return PreparedJoin(layout, first, second, added, groups, t1.semiring.combination, kernels, piece_rows)
