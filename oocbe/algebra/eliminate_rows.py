"""Join sum and marginalisation in one step, of tables whose rows are where the kernels work; no joined row is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.arrange import Arranged, arrange, match
from oocbe.algebra.inputs import check_pair, check_result
from oocbe.algebra.join_rows import join_tables
from oocbe.algebra.ranges import distributes, joined_dtype
from oocbe.algebra.reduce_rows import reduce_table
from oocbe.kernels.interface import Backend, EliminationPlan, MatchedGroups
from oocbe.model.semiring import Semiring
from oocbe.tables.layout import Layout
from oocbe.tables.moves import field_masks, move_plan
from oocbe.tables.table import Table


def join_eliminating(
    t1: Table, t2: Table, gone: Sequence[str], kernels: Backend, piece_rows: int | None = None
) -> Table:
    """Two tables joined and variables marginalised out; layout as :func:`oocbe.join_maximise` gives it.

    Raises
    ------
    ValueRangeError : a value could leave int64, or has left the range of floats.
    ResourceError : rows that have to be joined first do not fit in memory.
    """
    shared = check_pair(t1, t2)
    alone1 = [name for name in gone if name not in t2.layout]
    alone2 = [name for name in gone if name not in t1.layout]
    if (alone1 or alone2) and not distributes(t1.values, t2.values, t1.semiring):
        return reduce_table(join_tables(t1, t2, kernels, piece_rows), gone, kernels, piece_rows)
    if alone1:
        t1 = reduce_table(t1, alone1, kernels, piece_rows)
    if alone2:
        t2 = reduce_table(t2, alone2, kernels, piece_rows)
    while_joining, later = split_key_word([name for name in shared if name in gone], t1.layout)
    if not while_joining:
        return join_tables(t1, t2, kernels, piece_rows)
    result = _join_eliminating_shared(t1, t2, shared, while_joining, kernels, piece_rows)
    return reduce_table(result, later, kernels, piece_rows) if later else result


def split_key_word(names: Sequence[str], layout: Layout) -> tuple[list[str], list[str]]:
    """Variables cut into as many as fit in one key word, which the kernel looks up by, and the rest."""
    fitting = 0
    while fitting < len(names) and layout.select(names[: fitting + 1]).words == 1:
        fitting += 1
    return list(names[:fitting]), list(names[fitting:])


def _join_eliminating_shared(
    t1: Table, t2: Table, shared: Sequence[str], gone: Sequence[str], kernels: Backend, piece_rows: int | None
) -> Table:
    """Join two tables and eliminate shared variables that fit in one key word."""
    outer, inner = (t1, t2) if t1.rows >= t2.rows else (t2, t1)
    terms = min(prod(t1.layout.select(gone).sizes), max(1, t1.rows * t2.rows))
    dtype = joined_dtype(t1.values, t2.values, t1.semiring, terms)
    elimination = Elimination(outer.layout, inner.layout, tuple(shared), tuple(gone))
    join = elimination.prepare(outer, inner, dtype, kernels, piece_rows)
    keys, values = join.rows(0, len(join.outer.values), join.groups)
    return check_result(Table(elimination.layout, keys, values, t1.semiring, is_sorted=True), t1, t2)


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
        return Layout.of((*self.own_inner, *outer), sizes, self.outer_layout, self.inner_layout)

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
