"""Join sum and maximisation in one step, without writing a joined row."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from oocbe.errors import ModelError
from oocbe.kernels.interface import EliminationPlan
from oocbe.operators.arrange import arrange, match
from oocbe.operators.inputs import check_pair, workplace
from oocbe.operators.join_sum import join_sum
from oocbe.operators.maximise import maximise
from oocbe.operators.ranges import distributes, joined_dtype
from oocbe.tables.layout import Layout
from oocbe.tables.moves import field_masks, move_plan
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend
    from oocbe.operators.inputs import TableLike


def join_maximise(
    table1: TableLike,
    table2: TableLike,
    variables: str | Sequence[str],
    *,
    piece_rows: int | None = None,
    backend: Backend | str | None = None,
) -> Table:
    """The same rows as ``maximise(join_sum(table1, table2), variables)``, in the time and memory of its result.

    Variables of one table only are marginalised out of it first (combination distributes over marginalisation); shared
    ones while joining (:mod:`oocbe.kernels.cpu.join_reduce`).

    Parameters
    ----------
    table1, table2 : tables in memory or stored, of one semiring; scopes may be disjoint, equal or empty.
    variables : name of one variable in a scope, or several names.
    piece_rows : rows that a kernel call works on; None: the backend's choice. The result does not depend on it.
    backend : the kernels, or ``auto``, ``cpu`` or ``cuda``; None: what ``OOCBE_BACKEND`` says, or ``auto``.

    Returns
    -------
    Table : the variables that stay. Where a shared variable is eliminated: those of the table with fewer rows alone,
        those of the other one alone, the shared ones, the least significant first, and sorted; otherwise the layout of
        :func:`join_sum`.

    Raises
    ------
    ModelError : different semirings, a variable with different domain sizes, or one in neither scope.
    ValueRangeError : a value could leave int64.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> f = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3])
    >>> g = Table.from_rows({"x": 2, "z": 2}, [[0, 1], [1, 1]], [10, 20])
    >>> join_maximise(f, g, "x")
    <Table (z, y): 2 rows, density 0.5, 32 B, 2 key bits, int64, max-sum>
    """
    place = workplace(backend, table1, table2)
    t1, t2 = place.tables
    return place.hand_over(_join_maximise(t1, t2, variables, piece_rows, place.kernels))


def _join_maximise(
    t1: Table, t2: Table, variables: str | Sequence[str], piece_rows: int | None, kernels: Backend
) -> Table:
    """The operator on tables whose rows are where the kernels work, and its result there."""
    shared = check_pair(t1, t2)
    gone = (variables,) if isinstance(variables, str) else tuple(dict.fromkeys(variables))
    for name in gone:
        if name not in t1.layout and name not in t2.layout:
            raise ModelError(f"variable {name} is in neither scope: {t1.scope}, {t2.scope}")
    alone1 = [name for name in gone if name not in t2.layout]
    alone2 = [name for name in gone if name not in t1.layout]
    if (alone1 or alone2) and not distributes(t1.values, t2.values, t1.semiring):
        joined = join_sum(t1, t2, piece_rows=piece_rows, backend=kernels)
        return maximise(joined, gone, piece_rows=piece_rows, backend=kernels)
    if alone1:
        t1 = maximise(t1, alone1, piece_rows=piece_rows, backend=kernels)
    if alone2:
        t2 = maximise(t2, alone2, piece_rows=piece_rows, backend=kernels)
    while_joining, later = _one_word([name for name in shared if name in gone], t1.layout)
    if not while_joining:
        return join_sum(t1, t2, piece_rows=piece_rows, backend=kernels)
    result = _join_eliminating(t1, t2, shared, while_joining, kernels, piece_rows)
    return maximise(result, later, piece_rows=piece_rows, backend=kernels) if later else result


def _one_word(names: Sequence[str], layout: Layout) -> tuple[list[str], list[str]]:
    """Variables cut into as many as fit in one key word, which the kernel looks up by, and the rest."""
    fitting = 0
    while fitting < len(names) and layout.select(names[: fitting + 1]).words == 1:
        fitting += 1
    return list(names[:fitting]), list(names[fitting:])


def _join_eliminating(
    t1: Table, t2: Table, shared: Sequence[str], gone: Sequence[str], kernels: Backend, piece_rows: int | None
) -> Table:
    """Join two tables and eliminate shared variables that fit in one key word."""
    kept = tuple(name for name in shared if name not in gone)
    outer, inner = (t1, t2) if t1.rows >= t2.rows else (t2, t1)
    own_outer = tuple(name for name in outer.scope if name not in shared)
    own_inner = tuple(name for name in inner.scope if name not in shared)
    terms = min(prod(t1.layout.select(gone).sizes), max(1, t1.rows * t2.rows))
    dtype = joined_dtype(t1.values, t2.values, t1.semiring, terms)
    rows1 = arrange(outer, (*kept, *gone, *own_outer), (*own_outer, *kept), dtype, kernels, piece_rows)
    rows2 = arrange(inner, (*kept, *gone, *own_inner), (*own_inner, *kept), dtype, kernels, piece_rows)
    eliminated = t1.layout.select(gone)
    layout = Layout(
        (*own_inner, *own_outer, *kept),
        (*inner.layout.select(own_inner).sizes, *outer.layout.select((*own_outer, *kept)).sizes),
    )
    plan = EliminationPlan(
        outer_eliminated=move_plan(rows1.layout, eliminated),
        inner_eliminated=move_plan(rows2.layout, eliminated),
        outer_run=field_masks(rows1.layout, (*kept, *own_outer)),
        inner_rank=field_masks(rows2.layout, (*kept, *own_inner)),
        outer_move=move_plan(rows1.layout, layout, (*kept, *own_outer)),
        inner_move=move_plan(rows2.layout, layout, own_inner),
        eliminated_bits=eliminated.bits,
        words=layout.words,
    )
    keys, values = kernels.join_reduce(
        (rows1.keys, rows1.values),
        (rows2.keys, rows2.values),
        match(rows1, rows2, kept, kernels, piece_rows),
        plan,
        t1.semiring.combination,
        t1.semiring.marginalisation,
        piece_rows,
    )
    return Table(layout, keys, values, t1.semiring, is_sorted=True)
