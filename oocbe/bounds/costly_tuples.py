"""Costly tuples: finite costs so large that relaxations treat the tuples as forbidden, up to their excess cost.

Many files write hard constraints as large costs, and a linear program over cliques of forbidden pairs is far tighter
than any relaxation of single functions. So such a function is split: ``f >= capped f + Σ excess of its costly
tuples``. The capped function is relaxed as any other. Inequalities are derived as if costly tuples were forbidden.
If an assignment contains some of them, the left-hand side exceeds the right by at most the largest coefficient per
tuple: without one literal of each, nothing forbidden remains. So an inequality with multiplier y is a valid bound if
each costly tuple among its literals can pay ``y * largest coefficient``; the payments of one tuple for all
inequalities together must not exceed its excess. (The older certificate format calls such tuples *dear*.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.forbidden import LARGEST_PART, cost_limits
from oocbe.bounds.rows import Row
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.elimination.row_pruning.row_bounds import FixedPoint
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import check_deadline

COSTLY = 2
"""A tuple is costly if its cost exceeds its function's minimum by this multiple of the largest saving of one
variable."""

BLOCK = 1 << 22
"""Maximum number of (row, tuple) pairs in one batch."""


@dataclass(frozen=True)
class CostlyTuples:
    """Costly tuples as sets of literals, one array for each size.

    sets : int64 (tuples, size). excess : int64 (tuples,), in fixed point: the maximum payment of each tuple.
    """

    sets: tuple[NDArray[np.int64], ...] = ()
    excess: tuple[NDArray[np.int64], ...] = ()

    def payable(
        self, rows: Sequence[Row], multipliers: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Multipliers in fixed point, lowered until all costly tuples can pay, and a mask of the rows that use them."""
        depends = np.zeros(len(rows), dtype=bool)
        is_derived = np.array(
            [row.kind != "linear" and int(row.coefficients.min(initial=1)) > 0 for row in rows], dtype=bool
        )
        if not self.sets or not len(rows):
            return multipliers, depends
        named = [row.literals for row in rows] + [sets.ravel() for sets in self.sets]
        literals = 1 + int(np.concatenate(named).max())
        contains = np.zeros((literals, len(rows)), dtype=bool)
        for number, row in enumerate(rows):
            if is_derived[number]:  # linear constraints, and rows about removed values, depend on no tuple
                contains[row.literals, number] = True
        largest = np.array([max(1, int(row.coefficients.max(initial=1))) for row in rows], dtype=np.int64)
        charges = (multipliers * largest).astype(np.float64)
        factor = np.ones(len(rows))
        for sets, excess in zip(self.sets, self.excess, strict=True):
            step = max(1, BLOCK // len(rows))
            for begin in range(0, len(sets), step):
                part, can_pay = sets[begin : begin + step], excess[begin : begin + step]
                holds = contains[part].all(axis=1)
                depends |= holds.any(axis=0)
                load = holds @ charges
                # The factor 1 - 1e-9 covers rounding: loads are floating-point sums of positive numbers.
                share = np.minimum(1.0, can_pay * (1 - 1e-9) / np.maximum(load, 1.0))
                lowest = np.where(holds, share[:, None], 1.0).min(axis=0, initial=1.0)
                factor = np.minimum(factor, lowest)
        lowered = np.floor(multipliers * factor).astype(np.int64)
        return np.where(factor < 1, lowered, multipliers), depends


def drop_tuples_above_bound(problem: Problem, fixed_point: FixedPoint) -> tuple[Problem, CostlyTuples]:
    """The problem with its costly tuples capped, and these tuples with their excess cost."""
    if not problem.is_integral:
        return problem, CostlyTuples()
    threshold = COSTLY * largest_saving(problem)
    if threshold == 0:
        return problem, CostlyTuples()
    first = starts_of(problem.sizes)
    limits = cost_limits(problem)
    functions = list(problem.functions)
    found: dict[int, list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = {}
    for number, f in enumerate(problem.functions):
        check_deadline()
        if len(f.scope) < 2 or math.prod(problem.sizes[v] for v in f.scope) > LARGEST_PART:
            continue
        values, permitted = f.to_array(problem.sizes)
        if limits:
            permitted = permitted & (values < limits[number])
        if not permitted.any():
            continue
        least = int(values[permitted].min())
        is_costly = permitted & (values > least + threshold)
        if not is_costly.any():
            continue
        cap = int(values[permitted & ~is_costly].max())
        tuples = np.argwhere(is_costly)
        excess = fixed_point.down(values[is_costly]) - int(fixed_point.down(cap))
        found.setdefault(len(f.scope), []).append((first[list(f.scope)] + tuples, excess))
        feasible = f.to_array(problem.sizes)[1]
        capped = np.where(is_costly, cap, values)
        functions[number] = Function(f.scope, np.argwhere(feasible), capped[feasible])
    sets = tuple(np.concatenate([s for s, _ in group]) for _, group in sorted(found.items()))
    excess_of = tuple(np.concatenate([e for _, e in group]) for _, group in sorted(found.items()))
    return replace(problem, functions=tuple(functions)), CostlyTuples(sets, excess_of)


def largest_saving(problem: Problem) -> int:
    """Maximum saving from a change of one variable in the functions over it alone."""
    totals = [np.zeros(size, dtype=np.int64) for size in problem.sizes]
    for f in problem.functions:
        if len(f.scope) == 1:
            values, feasible = f.to_array(problem.sizes)
            if feasible.any():
                totals[f.scope[0]] += np.where(feasible, values, values[feasible].min())
    return max((int(total.max() - total.min()) for total in totals), default=0)
