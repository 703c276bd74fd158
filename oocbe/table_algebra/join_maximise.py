"""Join sum and maximisation in one step, without writing a joined row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError
from oocbe.kernels.interface import EliminationPlan, MatchedGroups
from oocbe.model.semiring import Semiring
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
from oocbe.table_algebra.join_sum import join_sum
from oocbe.table_algebra.maximise import maximise
from oocbe.table_algebra.ranges import distributes, joined_dtype
from oocbe.tables.layout import Layout
from oocbe.tables.moves import field_masks, move_plan
from oocbe.tables.packed import PackedTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend
    from oocbe.table_algebra.inputs import AnyTable, KernelSettings, OperatorSettings, RowTable, TableLike
    from oocbe.tables.complete import CompleteTable
    from oocbe.tables.stored import StoredTable
    from oocbe.tables.stored_complete import StoredCompleteTable


@overload
def join_maximise(
    table1: PackedTable,
    table2: PackedTable,
    variables: str | Sequence[str],
    *,
    output: None = None,
    **settings: Unpack[OperatorSettings],
) -> PackedTable: ...


@overload
def join_maximise(
    table1: RowTable,
    table2: RowTable,
    variables: str | Sequence[str],
    *,
    output: None = None,
    **settings: Unpack[OperatorSettings],
) -> Table: ...


@overload
def join_maximise(
    table1: TableLike,
    table2: TableLike,
    variables: str | Sequence[str],
    *,
    output: str | Path,
    **settings: Unpack[OperatorSettings],
) -> StoredTable: ...


@overload
def join_maximise(
    table1: AnyTable,
    table2: AnyTable,
    variables: str | Sequence[str],
    *,
    output: str | Path,
    **settings: Unpack[OperatorSettings],
) -> StoredTable | StoredCompleteTable: ...


@overload
def join_maximise(
    table1: AnyTable,
    table2: AnyTable,
    variables: str | Sequence[str],
    **settings: Unpack[KernelSettings],
) -> Table | CompleteTable | PackedTable: ...


def join_maximise(
    table1: AnyTable,
    table2: AnyTable,
    variables: str | Sequence[str],
    *,
    piece_rows: int | None = None,
    backend: Backend | str | None = None,
    output: str | Path | None = None,
    memory: int | str | None = None,
    scratch: str | Path | None = None,
    streams: int | None = None,
) -> Table | StoredTable | PackedTable | CompleteTable | StoredCompleteTable:
    """The same rows as ``maximise(join_sum(table1, table2), variables)``, in the time and memory of its result.

    Variables of one table only are marginalised out of it first (combination distributes over marginalisation); shared
    ones while joining (:mod:`oocbe.kernels.cpu.pairs.join_reduce`).

    Parameters
    ----------
    table1, table2 : tables in memory or stored, incomplete or complete, of one semiring; scopes may be disjoint, equal
        or empty.
    variables : name of one variable in a scope, or several names.
    piece_rows : rows that a kernel call works on; None: the backend's choice. The result does not depend on it.
    backend : the kernels, or ``auto``, ``cpu`` or ``cuda``; None: what ``OOCBE_BACKEND`` says, or ``auto``.
    output, memory, scratch, streams : with ``output``, tables of any size are treated piece by piece and the same rows
        written to a table on disk; see :class:`oocbe.table_algebra.inputs.OutOfCore`.

    Returns
    -------
    Table, or StoredTable with ``output`` : the variables that stay. Where a shared variable is eliminated: those of
        the table with fewer rows alone, those of the other one alone, the shared ones, the least significant first,
        and sorted; otherwise the layout of :func:`join_sum`.
    PackedTable where all tables are packed: see :mod:`oocbe.table_algebra.on_packed`.
    Where a table is complete the result may be a CompleteTable, or a StoredCompleteTable with ``output``: see
        :mod:`oocbe.table_algebra.complete`.

    Raises
    ------
    ModelError : different semirings, a variable with different domain sizes, or one in neither scope; numbers that
        tables cannot hold (:mod:`oocbe.tables.numbers`).
    ValueRangeError : a value could leave int64, or has left the range of floats.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> f = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3])
    >>> g = Table.from_rows({"x": 2, "z": 2}, [[0, 1], [1, 1]], [10, 20])
    >>> join_maximise(f, g, "x")
    <Table (z, y): 2 rows, density 0.5, 32 B, 2 key bits, int64, max-sum>
    """
    check_values(table1, table2)
    settings = OutOfCore(output, memory, scratch, streams)
    gone = (variables,) if isinstance(variables, str) else tuple(dict.fromkeys(variables))
    if settings.wanted:
        from oocbe.table_algebra.out_of_core.join_maximise import join_maximise_stored

        if has_complete(table1, table2):
            from oocbe.table_algebra.out_of_core.complete import combine_stored

            check_pair(table1, table2)
            _check_gone(gone, table1.layout, table2.layout)
            return combine_stored(
                (table1, table2),
                gone,
                settings,
                piece_rows,
                backend,
                lambda rows: join_maximise_stored(rows[0], rows[1], gone, settings, piece_rows, backend),
            )
        return join_maximise_stored(as_rows(table1), as_rows(table2), gone, settings, piece_rows, backend)
    if isinstance(table1, PackedTable) and isinstance(table2, PackedTable):
        from oocbe.table_algebra.on_packed import on_packed
        from oocbe.table_algebra.streamed import stream_elimination

        _check_gone(gone, table1.layout, table2.layout)
        return on_packed(
            (table1, table2),
            backend,
            lambda kernels: stream_elimination(table1, table2, variables, kernels, piece_rows),
            lambda t1, t2: join_maximise(t1, t2, variables, piece_rows=piece_rows, backend=backend),
        )
    if (found := any_complete(table1, table2)) is not None:
        from oocbe.table_algebra.complete import combine_tables

        check_pair(table1, table2)
        _check_gone(gone, table1.layout, table2.layout)
        return check_result(combine_tables(found, gone, backend, piece_rows), table1, table2)
    place = choose_kernels(backend, as_rows(table1), as_rows(table2))
    t1, t2 = place.tables
    if place.has_to_stream(piece_rows):
        from oocbe.table_algebra.streamed import stream_elimination

        streamed: Table | None = stream_elimination(t1, t2, variables, place.kernels, piece_rows)
        if streamed is not None:
            return check_result(streamed, t1, t2)
    place = place.moved()
    t1, t2 = place.tables
    return place.hand_over(check_result(_join_maximise(t1, t2, variables, piece_rows, place.kernels), t1, t2))


def _join_maximise(
    t1: Table, t2: Table, variables: str | Sequence[str], piece_rows: int | None, kernels: Backend
) -> Table:
    """The operator on tables whose rows are where the kernels work, and its result there."""
    shared = check_pair(t1, t2)
    gone = (variables,) if isinstance(variables, str) else tuple(dict.fromkeys(variables))
    _check_gone(gone, t1.layout, t2.layout)
    alone1 = [name for name in gone if name not in t2.layout]
    alone2 = [name for name in gone if name not in t1.layout]
    if (alone1 or alone2) and not distributes(t1.values, t2.values, t1.semiring):
        joined = join_sum(t1, t2, piece_rows=piece_rows, backend=kernels)
        return maximise(joined, gone, piece_rows=piece_rows, backend=kernels)
    if alone1:
        t1 = maximise(t1, alone1, piece_rows=piece_rows, backend=kernels)
    if alone2:
        t2 = maximise(t2, alone2, piece_rows=piece_rows, backend=kernels)
    while_joining, later = one_word([name for name in shared if name in gone], t1.layout)
    if not while_joining:
        return join_sum(t1, t2, piece_rows=piece_rows, backend=kernels)
    result = _join_eliminating(t1, t2, shared, while_joining, kernels, piece_rows)
    return maximise(result, later, piece_rows=piece_rows, backend=kernels) if later else result


def _check_gone(gone: Sequence[str], layout1: Layout, layout2: Layout) -> None:
    for name in gone:
        if name not in layout1 and name not in layout2:
            raise ModelError(f"variable {name} is in neither scope: {layout1.scope}, {layout2.scope}")


def one_word(names: Sequence[str], layout: Layout) -> tuple[list[str], list[str]]:
    """Variables cut into as many as fit in one key word, which the kernel looks up by, and the rest."""
    fitting = 0
    while fitting < len(names) and layout.select(names[: fitting + 1]).words == 1:
        fitting += 1
    return list(names[:fitting]), list(names[fitting:])


def _join_eliminating(
    t1: Table, t2: Table, shared: Sequence[str], gone: Sequence[str], kernels: Backend, piece_rows: int | None
) -> Table:
    """Join two tables and eliminate shared variables that fit in one key word."""
    outer, inner = (t1, t2) if t1.rows >= t2.rows else (t2, t1)
    terms = min(prod(t1.layout.select(gone).sizes), max(1, t1.rows * t2.rows))
    dtype = joined_dtype(t1.values, t2.values, t1.semiring, terms)
    elimination = Elimination(outer.layout, inner.layout, tuple(shared), tuple(gone))
    join = elimination.prepare(outer, inner, dtype, kernels, piece_rows)
    keys, values = join.rows(0, len(join.outer.values), join.groups)
    return Table(elimination.layout, keys, values, t1.semiring, is_sorted=True)


@dataclass(frozen=True)
class Elimination:
    """The layouts of a join that eliminates shared variables.

    Attributes
    ----------
    outer_layout, inner_layout : of the tables.
    shared : the variables that both have. gone : those of them that are eliminated, which fit in one key word.
    """

    outer_layout: Layout
    inner_layout: Layout
    shared: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def kept(self) -> tuple[str, ...]:
        """Shared variables that stay."""
        return tuple(name for name in self.shared if name not in self.gone)

    @property
    def own_outer(self) -> tuple[str, ...]:
        """Variables that only the outer table has."""
        return tuple(name for name in self.outer_layout.scope if name not in self.shared)

    @property
    def own_inner(self) -> tuple[str, ...]:
        """Variables that only the inner table has."""
        return tuple(name for name in self.inner_layout.scope if name not in self.shared)

    @property
    def outer_scope(self) -> tuple[str, ...]:
        """Places of the outer table's variables while joining, the least significant first."""
        return (*self.kept, *self.gone, *self.own_outer)

    @property
    def inner_scope(self) -> tuple[str, ...]:
        """Places of the inner table's variables while joining, the least significant first."""
        return (*self.kept, *self.gone, *self.own_inner)

    @property
    def layout(self) -> Layout:
        """Layout of the result."""
        outer = (*self.own_outer, *self.kept)
        sizes = (*self.inner_layout.select(self.own_inner).sizes, *self.outer_layout.select(outer).sizes)
        return Layout((*self.own_inner, *outer), sizes)

    def prepare(
        self, outer: Table, inner: Table, dtype: np.dtype[Any], kernels: Backend, piece_rows: int | None = None
    ) -> PreparedElimination:
        """Sort two tables by the variables that stay and find the groups that both have."""
        layout = self.layout
        rows1 = arrange(outer, self.outer_scope, (*self.own_outer, *self.kept), dtype, kernels, piece_rows)
        rows2 = arrange(inner, self.inner_scope, (*self.own_inner, *self.kept), dtype, kernels, piece_rows)
        eliminated = outer.layout.select(self.gone)
        plan = EliminationPlan(
            outer_eliminated=move_plan(rows1.layout, eliminated),
            inner_eliminated=move_plan(rows2.layout, eliminated),
            outer_run=field_masks(rows1.layout, (*self.kept, *self.own_outer)),
            inner_rank=field_masks(rows2.layout, (*self.kept, *self.own_inner)),
            outer_move=move_plan(rows1.layout, layout, (*self.kept, *self.own_outer)),
            inner_move=move_plan(rows2.layout, layout, self.own_inner),
            eliminated_bits=eliminated.bits,
            words=layout.words,
        )
        groups = match(rows1, rows2, self.kept, kernels, piece_rows)
        return PreparedElimination(rows1, rows2, groups, plan, outer.semiring, kernels, piece_rows)


@dataclass(frozen=True)
class PreparedElimination:
    """Two tables ready to be joined with variables eliminated."""

    outer: Arranged
    inner: Arranged
    groups: MatchedGroups
    plan: EliminationPlan
    semiring: Semiring
    kernels: Backend
    piece_rows: int | None

    def rows(self, low: int, high: int, groups: MatchedGroups) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Result rows from outer rows ``low`` to ``high``, with their groups counted from ``low``."""
        keys, values = self.outer.keys, self.outer.values
        if high - low < len(values):
            keys, values = keys[:, low:high].copy(), values[low:high]
        return self.kernels.join_reduce(
            (keys, values),
            (self.inner.keys, self.inner.values),
            groups,
            self.plan,
            self.semiring.combination,
            self.semiring.marginalisation,
            self.piece_rows,
        )
