"""Sums of floats at an upper bound: rounded in the order in which the problem itself adds them up.

An assignment counts where :meth:`oocbe.model.problem.Problem.evaluate` gives it a value strictly below the upper bound.
Elimination and searches add the same floats up in other orders, and come to sums that are a little more or less. So a
solve searches below a bound raised by the maximum rounding error, and the problem then evaluates the assignment found:
that is its value, and if it is not below the bound, the assignment does not count. So a result, the problem's
evaluation of its assignment, and :func:`oocbe.verify` agree.

Assignments whose sums differ only by rounding are not distinguished: if one of them is below the bound, but another one
is found that is not, nothing counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from oocbe.elimination.preparation.ranges import rounding_margin
from oocbe.elimination.reformulation import Number, Reformulation
from oocbe.model.problem import Problem
from oocbe.model.results.result import UNPROVEN, Result
from oocbe.model.semiring import Combination


@dataclass(frozen=True)
class RoundedBound(Reformulation):
    """A problem with room for rounding below its upper bound. ub : of the options, None without."""

    ub: Number = None

    @classmethod
    def of(cls, problem: Problem, ub: Number) -> RoundedBound:
        """The reformulation of a problem with its own upper bound, or that of the options."""
        return cls(problem, _with_room(problem), ub, name="rounding")

    def result(self, result: Result) -> Result:
        """The result with the problem's own value of its assignment, and without one that does not count."""
        problem = self.original
        if result.status == "nothing-better":
            result = replace(result, bound=self.ub)
        if problem.lower_bound is not None:
            result = _above(result, problem, problem.lower_bound)
        adds = problem.semiring.combination is Combination.ADD
        if result.assignment is None or problem.is_integral or not adds:
            return result
        value = problem.evaluate(result.assignment)
        if value is None:
            note = f"the least sum that was found is not below the upper bound of {problem.upper_bound}"
            result = replace(result, value=None, assignment=None, notes=(*result.notes, note))
            if result.status in UNPROVEN:
                return result
            if self.ub is None:
                return replace(result, status="infeasible", bound=None)
            return replace(result, status="nothing-better", bound=self.ub)
        if not math.isfinite(value):
            return result
        if result.bound is None or result.status not in UNPROVEN:
            return replace(result, value=value, bound=None if result.bound is None else value)
        choose = min if result.sense == "min" else max
        return replace(result, value=value, bound=choose(result.bound, value))


def _with_room(problem: Problem) -> Problem:
    """The problem with an upper bound so much higher that no sum which counts is rounded to reach it.

    A lower bound of sums to maximise is left out: either the greatest sum is above it, or none is.
    """
    if problem.lower_bound is not None:
        problem = replace(problem, lower_bound=None)
    if problem.upper_bound is None:
        return problem
    margin = rounding_margin(problem)
    bound = math.nextafter(problem.upper_bound + margin, math.inf) if margin else problem.upper_bound
    return problem.below(bound) if margin and math.isfinite(bound) else problem


def _above(result: Result, problem: Problem, bound: int | float) -> Result:
    """The result without an assignment that is not above the lower bound; infeasible where none can be."""
    if result.assignment is not None and problem.evaluate(result.assignment) is None:
        note = f"the greatest sum that was found is not above the lower bound of {bound}"
        is_proven = result.status not in UNPROVEN
        result = replace(result, value=None, assignment=None, notes=(*result.notes, note))
        if is_proven:
            return replace(result, status="infeasible", bound=None)
    if result.status in UNPROVEN and result.bound is not None and result.bound <= bound:
        return replace(result, status="infeasible", bound=None)
    return result
