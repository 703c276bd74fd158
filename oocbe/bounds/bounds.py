"""Selection of bound sources for a problem: several relaxations share the time; the best root bound comes first.

``constant`` is always present. ``local-polytope`` suits problems with costs over two or more variables, ``lp`` those
with conflicts between values. If both apply, both run, and the linear program starts from the costs that dual ascent
reparametrised.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.costly_tuples import CostlyTuples, drop_tuples_above_bound
from oocbe.bounds.estimators import constant_source, minimum_terms
from oocbe.bounds.forbidden import MOST_LITERALS, Forbidden, forbidden_sets
from oocbe.bounds.local_polytope import DualAscent
from oocbe.elimination.row_pruning.row_bounds import BoundSource, FixedPoint
from oocbe.errors import TimeLimitError, UnsupportedError, ValueRangeError
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.runtime.compilation import working_time
from oocbe.runtime.interruption import is_requested
from oocbe.runtime.tracing.recorder import ELIMINATION, spanning

if TYPE_CHECKING:
    from oocbe.bounds.relaxation import Relaxation

ASCENT_SHARE = 0.3
"""Share of the time for dual ascent if a linear program follows."""


class BoundSources:
    """Sources of bounds for the rows of a problem's messages, improved in steps.

    problem : in the min-sum semiring.
    seed : of tie-breaking.
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
