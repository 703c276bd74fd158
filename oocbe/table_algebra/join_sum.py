"""Join sum: all rows of two tables that agree on their shared variables, values combined (⊕ of bucket elimination)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ResourceError
from oocbe.kernels.interface import MatchedGroups
from oocbe.table_algebra.arrange import Arranged, arrange, match
from oocbe.table_algebra.inputs import (
    OutOfCore,
    any_complete,
    as_rows,
    check_pair,
    check_result,
    check_values,
    choose_kernels,
    has_complete,
)
from oocbe.table_algebra.ranges import joined_dtype
from oocbe.tables.layout import Layout
from oocbe.tables.moves import move_plan
from oocbe.tables.packed import PackedTable
from oocbe.tables.table import Table, format_bytes

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend
    from oocbe.table_algebra.inputs import AnyTable, KernelSettings, OperatorSettings, RowTable, TableLike
    from oocbe.tables.complete import CompleteTable
    from oocbe.tables.stored import StoredTable
    from oocbe.tables.stored_complete import StoredCompleteTable


@overload
def join_sum(
    table1: PackedTable,
    table2: PackedTable,
    *,
    output: None = None,
    **settings: Unpack[OperatorSettings],
) -> PackedTable: ...


@overload
def join_sum(
    table1: RowTable,
    table2: RowTable,
    *,
    output: None = None,
    **settings: Unpack[OperatorSettings],
) -> Table: ...


@overload
def join_sum(
    table1: TableLike,
    table2: TableLike,
    *,
    output: str | Path,
    **settings: Unpack[OperatorSettings],
) -> StoredTable: ...


@overload
def join_sum(
    table1: AnyTable,
    table2: AnyTable,
    *,
    output: str | Path,
    **settings: Unpack[OperatorSettings],
) -> StoredTable | StoredCompleteTable: ...


@overload
def join_sum(
    table1: AnyTable,
    table2: AnyTable,
    **settings: Unpack[KernelSettings],
) -> Table | CompleteTable | PackedTable: ...


def join_sum(
    table1: AnyTable,
    table2: AnyTable,
    *,
    piece_rows: int | None = None,
    backend: Backend | str | None = None,
    output: str | Path | None = None,
    memory: int | str | None = None,
    scratch: str | Path | None = None,
    streams: int | None = None,
) -> Table | StoredTable | PackedTable | CompleteTable | StoredCompleteTable:
    """Join two tables on their shared variables.

    Both are preprocessed by :mod:`oocbe.table_algebra.arrange`; then each output row is gathered from its two input
    rows (Bistaffa, Bombieri and Farinelli 2016, algorithm 4).

    Parameters
    ----------
    table1, table2 : tables in memory or stored, incomplete or complete, of one semiring; scopes may be disjoint, equal
        or empty.
    piece_rows : rows that a kernel call works on; None: the backend's choice. The result does not depend on it.
    backend : the kernels, or ``auto``, ``cpu`` or ``cuda``; None: what ``OOCBE_BACKEND`` says, or ``auto``.
    output, memory, scratch, streams : with ``output``, tables of any size are joined piece by piece and the same rows
        are written to a table on disk; see :class:`oocbe.table_algebra.inputs.OutOfCore`.

    Returns
    -------
    Table, or StoredTable with ``output`` : scope = shared variables (in the first table's order), the rest of the
        first table's, the rest of the second's, the least significant first. Rows are grouped by the shared variables,
    not sorted within a group.
    PackedTable where all tables are packed: see :mod:`oocbe.table_algebra.on_packed`.
    Where a table is complete the result may be a CompleteTable, or a StoredCompleteTable with ``output``: see
        :mod:`oocbe.table_algebra.complete`.

    Raises
    ------
    ModelError : different semirings, a variable with different domain sizes, or numbers that tables cannot hold
        (:mod:`oocbe.tables.numbers`).
    ValueRangeError : a joined value could leave int64, or has left the range of floats (see
        :func:`oocbe.table_algebra.inputs.check_result`).
    ResourceError : the joined rows do not fit in memory.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> f = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3])
    >>> g = Table.from_rows({"y": 2, "z": 2}, [[0, 1]], [10])
    >>> join_sum(f, g).to_dict()
    {(0, 0, 1): 11, (0, 1, 1): 12}
    """
    check_values(table1, table2)
    settings = OutOfCore(output, memory, scratch, streams)
    if settings.wanted:
        from oocbe.table_algebra.out_of_core.join_sum import join_sum_stored

        if has_complete(table1, table2):
            from oocbe.table_algebra.out_of_core.complete import combine_stored

            check_pair(table1, table2)
            return combine_stored(
                (table1, table2),
                (),
                settings,
                piece_rows,
                backend,
                lambda rows: join_sum_stored(rows[0], rows[1], settings, piece_rows, backend),
            )
        return join_sum_stored(as_rows(table1), as_rows(table2), settings, piece_rows, backend)
    if isinstance(table1, PackedTable) and isinstance(table2, PackedTable):
        from oocbe.table_algebra.on_packed import on_packed
        from oocbe.table_algebra.streamed import stream_join

        return on_packed(
            (table1, table2),
            backend,
            lambda kernels: stream_join(table1, table2, kernels, piece_rows),
            lambda t1, t2: join_sum(t1, t2, piece_rows=piece_rows, backend=backend),
        )
    if (found := any_complete(table1, table2)) is not None:
        from oocbe.table_algebra.complete import combine_tables

        check_pair(table1, table2)
        return check_result(combine_tables(found, (), backend, piece_rows), table1, table2)
    place = choose_kernels(backend, as_rows(table1), as_rows(table2))
    t1, t2 = place.tables
    if place.has_to_stream(piece_rows):
        from oocbe.table_algebra.streamed import stream_join

        streamed = stream_join(t1, t2, place.kernels, piece_rows)
        if streamed is not None:
            return check_result(streamed, t1, t2)
    place = place.moved()
    (t1, t2), kernels = place.tables, place.kernels
    shared = check_pair(t1, t2)
    dtype = joined_dtype(t1.values, t2.values, t1.semiring)
    join = prepare_join(t1, t2, shared, dtype, kernels, piece_rows)
    try:
        keys, values = join.rows(join.groups)
    except MemoryError:
        needed = join.groups.joined_rows * (8 * join.layout.words + dtype.itemsize)
        raise ResourceError(
            f"joining {t1!r} and {t2!r} gives {join.groups.joined_rows:,} rows, {format_bytes(needed)}, more than the "
            "memory left; eliminate a variable in the same step (join_maximise), which writes no joined row, or name "
            "an output table on disk"
        ) from None
    joined = Table(join.layout, keys, values, t1.semiring, is_sorted=len(values) < 2)
    return place.hand_over(check_result(joined, t1, t2))


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
    return Layout((*shared, *own1, *own2), sizes)


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
