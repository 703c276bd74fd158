"""Cost shifting between the mini-buckets of a bucket: max-marginal matching (Ihler, Flerova, Dechter and Otten 2012).

Each mini-bucket eliminates its own copy of the bucket's variable; the bound improves as the copies agree. So before
elimination, functions over the variables common to all mini-buckets are added to some and subtracted from others. Their
sum is zero, and the mini-buckets' min-marginals over the common variables become equal. The problem is unchanged; the
bound often rises. Integers stay integers: the remainder of a mean is distributed over the first mini-buckets, one each.

If one mini-bucket has no row for an assignment of the common variables, all rows with that assignment are dropped.

The engine joins and eliminates in one step and never stores the join, but shifting needs it. So elimination runs on a
problem in which every variable v has a *copy* v', next to it in the order and equal to it by a constraint. Elimination
of v from a mini-bucket with this constraint gives the join over v', which is eliminated afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.engine.factors import LOOKUP_BITS, FactorPool
from oocbe.elimination.preparation.prepare import Prepared, ScopedTable, prepare
from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.tables.layout import bits_for
from oocbe.tables.table import Table

MATCHED_BITS = 20
"""Maximum bits of the common variables: their marginals are dense arrays of at most a million entries."""


def with_copies(problem: Problem, order: Sequence[int]) -> Prepared:
    """A min-sum problem prepared for an order, with a copy n + v of every variable v (of n) right after it.

    Variables with too many values for a packed constraint have a copy without a constraint: they are not matched.
    Integers are int64, since shifted values may leave the range of the problem's own sums.
    """
    count = len(problem.variables)
    names = {v.name for v in problem.variables}
    copies: list[Variable] = []
    equal: list[Constraint] = []
    for number, v in enumerate(problem.variables):
        name = v.name + "'"
        while name in names:
            name += "'"
        names.add(name)
        copies.append(Variable(name, v.size))
        if 2 * bits_for(v.size) <= LOOKUP_BITS:
            values = np.arange(v.size)
            equal.append(Constraint((number, count + number), np.column_stack([values, values]), allowed=True))
    variables, constraints = (*problem.variables, *copies), (*problem.constraints, *equal)
    doubled = replace(problem, variables=variables, constraints=constraints)
    prepared = prepare(doubled, MIN_SUM, [w for v in order for w in (v, count + v)], carries=False)
    if prepared.dtype.kind == "i":
        prepared.dtype = np.dtype(np.int64)
        prepared.functions = FactorPool(prepared.functions.factors, prepared.functions.entries.astype(np.int64))
        prepared.tables = [ScopedTable(t.scope, _as_int64(t.table)) for t in prepared.tables]
    return prepared


def _as_int64(table: Table) -> Table:
    return Table(table.layout, table.keys, table.values.astype(np.int64), table.semiring, table.is_sorted)


def match(tables: Sequence[Table], copy: str) -> list[Table]:
    """The joined mini-buckets of a bucket after cost shifting (see the module).

    Parameters
    ----------
    tables : in host memory, at least two; all scopes contain the variable named ``copy``.
    """
    shared = _shared_names(tables, copy)
    bits = sum(bits_for(tables[0].layout.sizes[tables[0].layout.place(name)]) for name in shared)
    codes = [_codes(t, shared) for t in tables]
    marginals: list[NDArray[Any]] = []
    possible = np.ones(1 << bits, dtype=np.bool_)
    for t, own in zip(tables, codes, strict=True):
        there = np.zeros(1 << bits, dtype=np.bool_)
        there[own] = True
        possible &= there
        first = np.zeros(1 << bits, dtype=t.values.dtype)
        first[own] = t.values  # any row of each group, so that no dtype needs an infinity
        np.minimum.at(first, own, t.values)
        marginals.append(first)
    shifts = _shifts(np.stack(marginals)[:, possible])
    matched = []
    for t, own, shift in zip(tables, codes, shifts, strict=True):
        keep = possible[own]
        spread = np.zeros(1 << bits, dtype=t.values.dtype)
        spread[possible] = shift
        values = t.values[keep] + spread[own[keep]]
        keys = np.ascontiguousarray(t.keys[:, keep])
        matched.append(Table(t.layout, keys, values, t.semiring, t.is_sorted))
    return matched


def _shared_names(tables: Sequence[Table], copy: str) -> list[str]:
    """Variables in all scopes, the copy first, limited to :data:`MATCHED_BITS`."""
    shared, bits = [copy], bits_for(tables[0].layout.sizes[tables[0].layout.place(copy)])
    for name, size in zip(tables[0].layout.scope, tables[0].layout.sizes, strict=True):
        if name == copy or any(name not in t.layout for t in tables[1:]):
            continue
        if bits + bits_for(size) > MATCHED_BITS:
            break
        shared.append(name)
        bits += bits_for(size)
    return shared


def _codes(table: Table, names: Sequence[str]) -> NDArray[np.int64]:
    """Values of some variables in each row, packed from bit 0 on."""
    codes: NDArray[np.int64] = np.zeros(table.rows, dtype=np.int64)
    place = 0
    for name in names:
        f = table.layout.field(name)
        codes |= ((table.keys[f.word] >> np.uint64(f.shift)) & np.uint64(f.mask)).astype(np.int64) << place
        place += f.bits
    return codes


def _shifts(marginals: NDArray[Any]) -> NDArray[Any]:
    """Shift of each mini-bucket (tables, assignments): the sum is zero, and all marginals become their mean."""
    tables = len(marginals)
    if marginals.dtype.kind == "i":
        total = marginals.sum(axis=0)
        target = np.broadcast_to(total // tables, marginals.shape).copy()
        target += np.arange(tables)[:, None] < total % tables
        shifts: NDArray[Any] = target - marginals
    else:
        shifts = marginals.mean(axis=0) - marginals
    return shifts
