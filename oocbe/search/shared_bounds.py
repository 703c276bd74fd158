"""Bounds on the optimum during a search: a proven lower bound and an incumbent.

All values are in min-sum; maximisation is negated (:class:`oocbe.elimination.reformulation.Negation`).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from oocbe.elimination.reformulation import Report
from oocbe.elimination.row_pruning.row_bounds import BoundSource
from oocbe.elimination.solution_check import check_solution
from oocbe.model.problem import Problem
from oocbe.model.settings.option_values import Gap


@dataclass
class SharedBounds:
    """Bounds on the optimum of one problem, each with a proof.

    problem : in min-sum. gap : accepted distance of the bounds.
    report : called on changes.
    lower : lower bound on all admissible assignments, or None.
    value, assignment : the best assignment found, or None.
    source : the relaxation of the whole problem with the best bound, whose reduced costs exclude values, or None.
    """

    problem: Problem
    gap: Gap
    report: Report
    lower: int | float | None = None
    value: int | float | None = None
    assignment: tuple[int, ...] | None = None
    source: BoundSource | None = None

    def __post_init__(self) -> None:
        self.grid = self.problem.value_grid
        self._ceiling = above_all_values(self.problem)

    @property
    def upper_bound(self) -> int | float:
        """Cutoff: only assignments strictly below it matter. Without a limit, it exceeds all values."""
        return min(limit for limit in (self.problem.upper_bound, self.value, self._ceiling) if limit is not None)

    def offer(self, value: int | float, assignment: tuple[int, ...], why: str) -> None:
        """Replace the incumbent by a better assignment.

        Non-finite values are ignored.

        Raises InternalError: the assignment is infeasible, or not worth the value
        (:mod:`oocbe.elimination.solution_check`).
        """
        if value < self.upper_bound and math.isfinite(value):
            check_solution(self.problem, value, assignment, why)
            if self.problem.upper_bound is not None and self.problem.evaluate(assignment) is None:
                return  # in the problem's own order of summation the value reaches its bound
            self.value, self.assignment = value, assignment
            self.report(self.lower, self.value, why, self.assignment)

    def raise_lower(self, bound: int | float, why: str) -> None:
        """Raise the lower bound to a better proven bound, capped at the upper bound."""
        bound = min(bound, self.upper_bound)
        if self.lower is None or bound > self.lower:
            self.lower = bound
            self.report(self.lower, self.value, why, self.assignment)

    @property
    def distance(self) -> int | float:
        """Distance between bound and incumbent; infinite while one of them is missing."""
        return math.inf if self.lower is None or self.value is None else max(0, self.value - self.lower)

    @property
    def is_closed(self) -> bool:
        """Whether nothing better than the incumbent (or than the problem's upper bound, or at all) can exist."""
        return self.lower is not None and self.lower >= self.upper_bound

    @property
    def is_near_enough(self) -> bool:
        """Whether bound and incumbent are within the requested gap."""
        if self.is_closed:
            return True
        return self.lower is not None and self.value is not None and self.gap.is_reached(self.lower, self.value)


def above_all_values(problem: Problem) -> int | float:
    """A number above the value of every assignment: the sum of the functions' largest values, plus a margin.

    Capped at the largest floating-point number.
    """
    greatest = problem.extremes.greatest.tolist()
    total = sum(greatest, problem.constant)
    if problem.is_integral:
        return total + 1
    size = sum(map(abs, greatest), abs(problem.constant))
    above = total + (size * 2.0**-30 or 1.0)
    return above if math.isfinite(above) else sys.float_info.max
