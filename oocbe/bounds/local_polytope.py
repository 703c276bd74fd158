"""The local polytope bound for functions of any arity: sequential dual ascent over the variables.

Each function passes parts of its cost to its variables, value by value. The minimum reduced costs of all functions plus
the cheapest value of each variable are a lower bound. A pass visits the variables in turn, takes all spare
cost of their functions, and passes equal parts on to the functions with later variables, then back again: the bound
never falls (Kolmogorov 2006, TRW-S, for pairs; Kolmogorov 2015, SRMP, for larger scopes). Forbidden tuples cost
infinity; values without a tuple in some function are removed on the way (arc consistency).

Passes run in floating point, with costs in units of the fixed point. The shares of each function are then rounded to
integers, and its reduced costs are recomputed in integers, so that the bound is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.estimators import minimum_terms, scaled_minima
from oocbe.bounds.forbidden import LARGEST_PART, cost_limits
from oocbe.bounds.kernels.cpu.dual_ascent import least_of_functions, sweep
from oocbe.bounds.row_tables import network_of
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.elimination.row_pruning.fixed_point import FixedPoint
from oocbe.elimination.row_pruning.row_bounds import Terms
from oocbe.kernels.cpu.buckets.outside_terms import HARD, SOFT
from oocbe.model.parts import Constraint, LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import MOST_AXES
from oocbe.runtime.deadline import Deadline, current_flag, looked

MOST_CELLS = 1 << 24
"""Maximum total cells of all functions; functions beyond it contribute their minimum."""

PATIENCE = 20
"""Passes with little progress before the ascent ends."""

LITTLE = 1e-5
"""Little progress of a pass, relative to the total progress."""

NEVER = np.iinfo(np.int64).max
"""Integer cost of a forbidden tuple."""


@dataclass(frozen=True)
class _FunctionPart:
    """A dense function or hard constraint: scope, costs (infinite where forbidden), exact costs, and its kind."""

    scope: tuple[int, ...]
    costs: NDArray[np.float64]
    exact: NDArray[np.int64]
    is_hard: bool


def _parts(problem: Problem, fixed_point: FixedPoint, with_constraints: bool) -> tuple[list[_FunctionPart], list[int]]:
    """Parts over two or more variables, and the numbers of the functions that contribute their minimum only.

    The latter are constant or too large.
    """
    sizes = problem.sizes
    limits = cost_limits(problem)
    parts, skipped = [], []
    cells = 0

    def is_small(scope: tuple[int, ...]) -> bool:
        nonlocal cells
        size = math.prod(sizes[v] for v in scope)
        if len(scope) > MOST_AXES or size > LARGEST_PART or cells + size > MOST_CELLS:
            return False
        cells += size
        return True

    for number, f in enumerate(looked(problem.functions)):
        if len(f.scope) < 2:
            continue
        if not is_small(f.scope):
            skipped.append(number)
            continue
        values, permitted = f.to_array(sizes)
        if limits:
            permitted = permitted & (values < limits[number])
        is_constant = len(np.unique(values[permitted])) == 1
        if is_constant and (permitted.all() or not with_constraints):
            skipped.append(number)  # its minimum is exact, apart from forbidden tuples
            continue
        exact = np.where(permitted, fixed_point.down(values), NEVER)
        parts.append(_part(f.scope, exact, False))
    if with_constraints:
        hard: list[tuple[tuple[int, ...], Constraint | LinearConstraint]]
        hard = [(c.scope, c) for c in problem.constraints] + [
            (linear.scope, linear) for linear in problem.linear_constraints if linear.can_bind
        ]
        for scope, c in hard:
            if len(scope) >= 2 and is_small(scope):
                permitted = c.to_array(sizes) if isinstance(c, Constraint) else c.to_array()
                parts.append(_part(scope, np.where(permitted, 0, NEVER), True))
    return parts, skipped


def _part(scope: tuple[int, ...], exact: NDArray[np.int64], is_hard: bool) -> _FunctionPart:
    costs = np.where(exact == NEVER, np.inf, exact)
    return _FunctionPart(scope, costs.ravel(), exact.ravel().astype(np.int64), is_hard)


class DualAscent:
    """Dual ascent for one problem.

    Parameters
    ----------
    problem : in the min-sum semiring. fixed_point : of the terms. removed : uint8, 1 for removed values.
    with_constraints : whether costs move through hard constraints, too; otherwise through functions only.
    """

    def __init__(
        self,
        problem: Problem,
        fixed_point: FixedPoint,
        removed: NDArray[np.uint8],
        with_constraints: bool = True,
    ) -> None:
        self._fixed_point = fixed_point
        self._parts, self._skipped = _parts(problem, fixed_point, with_constraints)
        self._problem = problem
        self._first = starts_of(problem.sizes)
        self._unary = minimum_terms(problem, fixed_point, with_minima=False)
        self.removed = removed.copy()
        costs = np.zeros(int(self._first[-1]))
        for v, offset in zip(self._unary.variable.tolist(), self._unary.offset.tolist(), strict=True):
            size = problem.sizes[v]
            costs[self._first[v] : self._first[v + 1]] += self._unary.entries[offset : offset + size]
        self._costs = costs
        parts = self._parts
        cells = np.concatenate([p.costs for p in parts]) if parts else np.zeros(0)
        starts, scopes = starts_of([len(p.costs) for p in parts])[:-1], [p.scope for p in parts]
        self._network = network_of(scopes, problem.sizes, np.repeat(starts, [len(scope) for scope in scopes]), cells)
        sizes = np.array(problem.sizes, dtype=np.int64)[self._network.variable]
        self._shares = np.zeros(int(sizes.sum()))
        self._shares_of_parts = np.add.reduceat(sizes, self._network.function_start[:-1]) if parts else sizes
        self.passes = 0

    def run(self, seconds: float) -> None:
        """Pass forward and backward until the time limit, or until there is little progress."""
        if not self._parts:
            return
        start = best = self._bound()
        patience = 0
        with Deadline(max(0.0, seconds)) as deadline:
            while not deadline.passed and patience < PATIENCE and best < math.inf:
                self._sweep(True, True, deadline.flag)
                self._sweep(False, True, deadline.flag)
                self.passes += 1
                now = self._bound()
                patience = patience + 1 if now - best <= LITTLE * (best - start) + 1e-12 * abs(best) else 0
                best = max(best, now)
        # All spare costs end with the variables, where other relaxations expect them.
        self._sweep(True, False, current_flag())

    def _sweep(self, is_forward: bool, hand_on: bool, stop: NDArray[np.int64]) -> None:
        """One pass; an interrupted pass also leaves a valid bound."""
        sweep(self._network, is_forward, self._shares, self.removed, self._costs, hand_on, stop)

    def _bound(self) -> float:
        """The bound in floating point, to measure progress; infinite if no assignment counts."""
        least = np.empty(len(self._parts))
        least_of_functions(self._network, self._network.tables, self._shares, self.removed, np.inf, least)
        costs = np.where(self.removed > 0, np.inf, self._costs)
        return float(least.sum() + np.minimum.reduceat(costs, self._first[:-1]).sum())

    def terms(self) -> Terms:
        """Terms of all functions (and constraints, if they take part)."""
        fixed_point, sizes = self._fixed_point, self._problem.sizes
        minima = scaled_minima(self._problem, fixed_point)[self._skipped]
        scopes = [self._problem.functions[f].scope for f in self._skipped]
        lengths = np.array([sum(sizes[v] for v in scope) for scope in scopes], dtype=np.int64)
        skipped = Terms(
            np.concatenate([[0], np.cumsum([len(s) for s in scopes])]).astype(np.int64),
            np.array([v for s in scopes for v in s], dtype=np.int64),
            np.zeros(sum(len(s) for s in scopes), dtype=np.int64),
            np.zeros(int(lengths.max(initial=0)), dtype=np.int64),
            minima,
            np.zeros(len(scopes), dtype=np.uint8),
        )
        if not self._parts:
            return self._unary.joined(skipped)
        shares = np.rint(self._shares).astype(np.int64)
        exact = np.concatenate([p.exact for p in self._parts])
        least = np.empty(len(self._parts), dtype=np.int64)
        network = self._network
        least_of_functions(network, exact, shares, self.removed, NEVER, least)
        shares[np.repeat(least == NEVER, self._shares_of_parts)] = 0
        kind = np.array([HARD if p.is_hard else SOFT for p in self._parts], dtype=np.uint8)
        least[least == NEVER] = 0
        offset = network.message_start - network.value_start[-1]
        own = Terms(network.function_start, network.variable, offset, shares, least, kind)
        return self._unary.joined(own).joined(skipped)
