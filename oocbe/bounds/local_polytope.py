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

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.estimators import minimum_terms
from oocbe.bounds.forbidden import LARGEST_PART, cost_limits
from oocbe.bounds.kernels.cpu.dual_ascent import least_of_functions, sweep
from oocbe.bounds.row_tables import network_of
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.elimination.row_pruning.row_bounds import BoundTerms, FixedPoint
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


_Part = tuple[tuple[int, ...], NDArray[np.int64], int]
"""Scope of a function or hard constraint, exact costs of its cells (:data:`NEVER` where forbidden), and kind."""


def _parts(problem: Problem, fixed_point: FixedPoint, with_constraints: bool) -> tuple[list[_Part], list[int]]:
    """Parts over two or more variables, and the numbers of the functions that contribute their minimum only.

    The latter are constant or too large.
    """
    sizes = problem.sizes
    limits = cost_limits(problem)
    parts: list[_Part] = []
    skipped: list[int] = []
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
        parts.append((f.scope, np.where(permitted, fixed_point.down(values), NEVER).ravel(), SOFT))
    if with_constraints:
        hard: list[Constraint | LinearConstraint] = [*problem.constraints]
        hard += [linear for linear in problem.linear_constraints if linear.can_bind]
        for c in hard:
            if len(c.scope) >= 2 and is_small(c.scope):
                permitted = c.to_array(sizes) if isinstance(c, Constraint) else c.to_array()
                parts.append((c.scope, np.where(permitted, 0, NEVER).ravel(), HARD))
    return parts, skipped


class DualAscent:
    """Dual ascent for one problem.

    problem : in the min-sum semiring. fixed_point : of the terms. removed : uint8, 1 for removed values.
    with_constraints : whether costs move through hard constraints, too; otherwise through functions only.
    passes : number so far. is_over : whether further passes would make little progress.
    """

    def __init__(
        self, problem: Problem, fixed_point: FixedPoint, removed: NDArray[np.uint8], with_constraints: bool
    ) -> None:
        parts, skipped = _parts(problem, fixed_point, with_constraints)
        self._others = minimum_terms(problem, fixed_point, skipped)
        self._first = starts_of(problem.sizes)
        self.removed = removed.copy()
        self._costs = np.zeros(int(self._first[-1]))
        unary = np.flatnonzero(np.diff(self._others.start) == 1)
        for use in self._others.start[unary].tolist():
            v, offset = self._others.variable[use], self._others.offset[use]
            own = self._costs[self._first[v] : self._first[v + 1]]
            own += self._others.entries[offset : offset + len(own)]
        scopes = [scope for scope, _, _ in parts]
        self._kinds = np.array([kind for _, _, kind in parts], dtype=np.uint8)
        self._exact = np.concatenate([np.zeros(0, dtype=np.int64), *(exact for _, exact, _ in parts)])
        starts = np.repeat(starts_of([len(exact) for _, exact, _ in parts])[:-1], [len(scope) for scope in scopes])
        cells = np.where(self._exact == NEVER, np.inf, self._exact)
        self._network = network_of(scopes, problem.sizes, starts, cells)
        self._sizes = np.array(problem.sizes, dtype=np.int64)[self._network.variable]
        self._shares = np.zeros(int(self._sizes.sum()))
        self.passes = 0
        self.is_over = not parts

    def run(self, seconds: float) -> None:
        """Pass forward and backward until the time limit, or until there is little progress; may be continued."""
        if self.is_over:
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
        self.is_over = patience >= PATIENCE or best == math.inf
        # All spare costs end with the variables, where other relaxations expect them.
        self._sweep(True, False, current_flag())

    def _sweep(self, is_forward: bool, hand_on: bool, stop: NDArray[np.int64]) -> None:
        """One pass; an interrupted pass also leaves a valid bound."""
        sweep(self._network, is_forward, self._shares, self.removed, self._costs, hand_on, stop)

    def _bound(self) -> float:
        """The bound in floating point, to measure progress; infinite if no assignment counts."""
        least = np.empty(len(self._kinds))
        least_of_functions(self._network, self._network.tables, self._shares, self.removed, np.inf, least)
        costs = np.where(self.removed > 0, np.inf, self._costs)
        return float(least.sum() + np.minimum.reduceat(costs, self._first[:-1]).sum())

    def terms(self) -> BoundTerms:
        """Terms of all functions (and constraints, if they take part)."""
        if not len(self._kinds):
            return self._others
        shares, network = np.rint(self._shares).astype(np.int64), self._network
        least = np.empty(len(self._kinds), dtype=np.int64)
        least_of_functions(network, self._exact, shares, self.removed, NEVER, least)
        permits_nothing = least == NEVER
        shares[np.repeat(permits_nothing[network.function], self._sizes)] = 0
        least[permits_nothing] = 0
        offset = network.message_start - network.value_start[-1]
        return self._others.joined(
            BoundTerms(network.function_start, network.variable, offset, shares, least, self._kinds)
        )
