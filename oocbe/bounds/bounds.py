"""Selection of bound sources for a problem: several relaxations share the time; the best root bound comes first.

``constant`` is always present. ``local-polytope`` suits problems with costs over two or more variables, ``lp`` those
with conflicts between values. If both apply, both run, and the linear program starts from the costs that dual ascent
reparametrised.

The local polytope bound is sequential dual ascent over the variables, for functions of any arity. Each function passes
parts of its cost to its variables, value by value. The minimum reduced costs of all functions plus the cheapest value
of each variable are a lower bound. A pass visits the variables in turn, takes all spare cost of their functions, and
passes equal parts on to the functions with later variables, then back again: the bound never falls (Kolmogorov 2006,
TRW-S, for pairs; Kolmogorov 2015, SRMP, for larger scopes). Forbidden tuples cost infinity; values without a tuple in
some function are removed on the way (arc consistency).

Passes run in floating point, with costs in units of the fixed point. The shares of each function are then rounded to
integers, and its reduced costs are recomputed in integers, so that the bound is exact.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.estimators import constant_source, minimum_terms
from oocbe.bounds.forbidden import (
    LARGEST_PART,
    MOST_LITERALS,
    CostlyTuples,
    Forbidden,
    cost_limits,
    drop_tuples_above_bound,
    forbidden_sets,
)
from oocbe.bounds.kernels.cpu.dual_ascent import least_of_functions, sweep
from oocbe.bounds.row_tables import network_of
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.elimination.row_pruning.row_bounds import BoundSource, BoundTerms, FixedPoint
from oocbe.errors import TimeLimitError, UnsupportedError, ValueRangeError
from oocbe.kernels.cpu.buckets.outside_terms import HARD, SOFT
from oocbe.model.parts import Constraint, LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import MOST_AXES, distinct_values
from oocbe.model.semiring import MIN_SUM
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline, current_flag, looked
from oocbe.runtime.interruption import is_requested
from oocbe.runtime.tracing.recorder import ELIMINATION, spanning

if TYPE_CHECKING:
    from oocbe.bounds.relaxation import Relaxation

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
    """Parts over several variables, and numbers of functions, constant or too large, that contribute their minimum."""
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
        is_constant = len(distinct_values(values[permitted])) == 1
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
                for is_forward in (True, False):  # an interrupted pass also leaves a valid bound
                    sweep(self._network, is_forward, self._shares, self.removed, self._costs, True, deadline.flag)
                self.passes += 1
                now = self._bound()
                patience = patience + 1 if now - best <= LITTLE * (best - start) + 1e-12 * abs(best) else 0
                best = max(best, now)
        self.is_over = patience >= PATIENCE or best == math.inf
        # All spare costs end with the variables, where other relaxations expect them.
        sweep(self._network, True, self._shares, self.removed, self._costs, False, current_flag())

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


ASCENT_SHARE = 0.3
"""Share of the time for dual ascent if a linear program follows."""


class BoundSources:
    """Sources of bounds for the rows of a problem's messages, improved in steps.

    problem : in the min-sum semiring. seed : of tie-breaking.
    upper_bound : only assignments strictly below it count (an incumbent's value); None: the problem's own.
    improve : let sources look for assignments, too. The bounds of a source with an ``assignment`` are valid only for
        assignments strictly better than that one: the caller must take it as incumbent.
    is_over : whether further steps improve nothing. UnsupportedError : the semiring is not min-sum.
    """

    def __init__(
        self, problem: Problem, seed: int = 0, upper_bound: int | float | None = None, improve: bool = False
    ) -> None:
        if problem.semiring != MIN_SUM:
            raise UnsupportedError(
                f"{problem.name}: bounds on rows exist for the min-sum semiring only, not for {problem.semiring}; "
                "negate the costs of a max-sum problem, or solve it without bounds"
            )
        limits = [b for b in (problem.upper_bound, upper_bound) if b is not None]
        self._problem, self._seed, self._improve = problem.below(min(limits, default=None)), seed, improve
        self._constant = constant_source(self._problem)
        self._conflicts: list[Conflicts] | None = None
        self._ascent: DualAscent | None = None
        self._relaxations: dict[Conflicts, Relaxation] = {}
        self.is_over = False

    @property
    def relaxation(self) -> Relaxation | None:
        """The linear program with the best bound; None if there is none."""
        return max(self._relaxations.values(), key=lambda one: one.bound, default=None)

    @spanning(ELIMINATION, "bounds")
    def improved(self, seconds: float, upper_bound: int | float | None = None) -> list[BoundSource]:
        """The sources after a further step, the one with the best root bound first.

        seconds : time limit of all sources together; building the relaxations is not counted.
        upper_bound : value of a better incumbent since the last step, or None.
        Returns list : at least the source ``constant``. If a root bound reaches the upper bound, no assignment counts,
        and the list ends there.
        """
        found: list[BoundSource] = []
        # The sources found so far are valid when time runs out.
        with suppress(TimeLimitError):
            self._step(found, seconds, upper_bound)
        found.append(self._constant)
        found.sort(key=lambda source: source.root, reverse=True)
        self.is_over |= found[0].root == math.inf
        return found

    def _step(self, found: list[BoundSource], seconds: float, upper_bound: int | float | None) -> None:
        """Append bounds better than the constant, which is replaced if the problem is infeasible.
        Raises TimeLimitError if the deadline came before all sources were tried."""
        problem, deadline = self._problem, working_time() + seconds
        if self._constant.root == math.inf:
            return
        if self._conflicts is None:
            self._conflicts = self._find_conflicts()
        constant, conflicts = self._constant, self._conflicts
        removed = constant.removed
        if conflicts and conflicts[-1].forbidden.is_empty:
            removed = np.ones_like(removed)
            why = "hard constraints permit no assignment"
            self._constant = BoundSource("constant", why, problem, constant.fixed_point, constant.terms, removed)
            return
        for c in conflicts[-1:]:
            removed = removed | c.forbidden.removed
        # Without values of different variables that conflict, a linear program adds nothing to the minima.
        is_linear = any(c.can_bind and c.scope for c in problem.linear_constraints)
        conflicts = [c for c in conflicts if c.forbidden.between.any() or c.forbidden.larger or is_linear]
        is_over = True
        if any(len(f.scope) >= 2 for f in problem.functions):
            share = (deadline - working_time()) * (ASCENT_SHARE if conflicts else 1)
            ascended = self._ascended(removed, share)
            is_over = self._ascent is None or self._ascent.is_over
            if ascended is not None:
                found.append(ascended)
                removed = ascended.removed
        for number, c in enumerate(conflicts):
            if is_requested():
                break
            left = (deadline - working_time()) / (len(conflicts) - number)
            linear = self._linear(c, removed, left, upper_bound)
            if linear is not None:
                is_over &= self._relaxations[c].is_over
                found.append(linear)
                if linear.root >= max(source.root for source in (constant, *found)):
                    break
        self.is_over = is_over

    def _find_conflicts(self) -> list[Conflicts]:
        """Inputs of the linear programs; none if there are too many values."""
        problem, constant = self._problem, self._constant
        if sum(problem.sizes) <= MOST_LITERALS:
            return conflicts_of(problem, constant.fixed_point)
        constant.why += (
            f"; there is no linear program, as {sum(problem.sizes):,} values of variables are more than the "
            f"{MOST_LITERALS:,} whose conflicts it can take"
        )
        return []

    def _ascended(self, removed: NDArray[np.uint8], seconds: float) -> BoundSource | None:
        """The source named ``local-polytope``; None if its sums overflow 64-bit integers."""
        problem, fixed_point = self._problem, self._constant.fixed_point
        if self._ascent is None:
            self._ascent = DualAscent(problem, fixed_point, removed, True)
        ascent = self._ascent
        ascent.run(seconds)
        try:
            source = BoundSource("local-polytope", "", problem, fixed_point, ascent.terms(), ascent.removed)
        except ValueRangeError:
            return None
        source.why = f"{ascent.passes} passes of dual ascent over the functions give {source.root} at the root"
        return source

    def _linear(
        self, conflicts: Conflicts, removed: NDArray[np.uint8], seconds: float, upper_bound: int | float | None
    ) -> BoundSource | None:
        """The source named ``lp``; None if its sums overflow 64-bit integers, or without HiGHS (see the constant's
        ``why``)."""
        limit = min((b for b in (self._problem.upper_bound, upper_bound) if b is not None), default=None)
        begin = working_time()
        try:
            relaxation = self._relaxations.get(conflicts) or self._relaxed(conflicts, removed, seconds)
            if relaxation is None:
                return None
            self._relaxations[conflicts] = relaxation
            with suppress(TimeLimitError):  # the bound of the last complete round is valid
                relaxation.tighten(seconds - (working_time() - begin), limit, self._improve)
            source = relaxation.source("lp", "")
        except ValueRangeError:
            self._relaxations.pop(conflicts, None)  # its removals may rest on an assignment that nobody takes
            return None
        source.assignment = relaxation.rounding.assignment
        cuts = relaxation.cuts
        source.why = (
            f"a linear program, tightened by {cuts['clique']} cliques and {cuts['local']} local cuts in "
            f"{relaxation.rounds} rounds, gives {source.root} at the root"
            + (f"; rounding it gave an assignment worth {relaxation.rounding.value}" if source.assignment else "")
        )
        return source

    def _relaxed(self, conflicts: Conflicts, removed: NDArray[np.uint8], seconds: float) -> Relaxation | None:
        """The linear program before its first step, over the costs that dual ascent reparametrised."""
        problem, constant = self._problem, self._constant
        try:
            # Imported late: loading takes half a second, and fails in a process that holds another copy of the
            # solver's library (as in OR-Tools).
            from oocbe.bounds.relaxation import Relaxation
        except ImportError as error:
            constant.why += f"; there is no linear program, as highspy cannot be loaded: {error}"
            return None
        fixed_point = constant.fixed_point
        base = minimum_terms(conflicts.capped, fixed_point)
        if any(len(f.scope) >= 2 for f in problem.functions):
            ascent = DualAscent(conflicts.capped, fixed_point, removed, False)
            ascent.run(seconds * ASCENT_SHARE)
            with suppress(ValueRangeError):
                soft = BoundSource("local-polytope", "", conflicts.capped, fixed_point, ascent.terms(), ascent.removed)
                base, removed = soft.terms, soft.removed
        forbidden = replace(conflicts.forbidden, removed=conflicts.forbidden.removed | removed)
        return Relaxation(problem, forbidden, fixed_point, base, self._seed, conflicts.costly)


@dataclass(frozen=True, eq=False)
class Conflicts:
    """Forbidden sets that include costly tuples, and the problem with these tuples capped.

    capped : the problem; costly tuples cost no more than the costliest other tuple. costly : these tuples.
    forbidden : sets of literals that assignments cannot contain, and the costly tuples.
    """

    capped: Problem
    costly: CostlyTuples
    forbidden: Forbidden


def conflicts_of(problem: Problem, fixed_point: FixedPoint) -> list[Conflicts]:
    """Inputs of the linear programs: with costly tuples as conflicts, if there are any, and without."""
    plain = Conflicts(problem, CostlyTuples(), forbidden_sets(problem))
    capped, costly = drop_tuples_above_bound(problem, fixed_point)
    return [Conflicts(capped, costly, forbidden_sets(problem, costly.sets)), plain] if costly.sets else [plain]
