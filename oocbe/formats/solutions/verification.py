"""Independent judgement of an assignment: is it feasible, what is it worth, and does that agree with the claim?

Nothing here uses the engine: the problem is evaluated function by function, from the file as it was read. What this
does not show is that no better assignment exists; that is the solve's proof.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oocbe.errors import UsageError
from oocbe.formats.solutions.solution_file import Solution, read_solution
from oocbe.model.names import assignment_of
from oocbe.model.problem import Problem
from oocbe.model.results.numerals import finite
from oocbe.model.results.result import Result
from oocbe.model.results.task_result import TaskResult
from oocbe.model.semiring import Combination, semiring_by_name
from oocbe.model.violations import violations_of

__all__ = ["RELATIVE_TOLERANCE", "Verdict", "judge", "read_solution", "verify_solution"]

RELATIVE_TOLERANCE = 1e-9
"""How far a claimed float may be from ours: sums of the same floats in another order differ in the last digits."""


@dataclass(frozen=True)
class Verdict:
    """What an assignment is worth.

    Attributes
    ----------
    value : the assignment's value, or None where it violates something.
    violations : what it violates, a sentence each; empty where it is feasible.
    claimed_value : the value that the solution file claims, or None where it claims none.
    absolute_tolerance : how far floats may be apart near 0: terms of a sum cancel, factors of a product do not.
    """

    value: int | float | None
    violations: tuple[str, ...]
    claimed_value: int | float | None
    absolute_tolerance: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether the claim, where there is one, is the value: exactly for integers, else within the tolerance."""
        if self.claimed_value is None or self.value is None:
            return self.claimed_value is None
        if isinstance(self.value, int) and isinstance(self.claimed_value, int):
            return self.value == self.claimed_value
        if max(abs(self.value), abs(self.claimed_value)) > sys.float_info.max:  # an integer that no float is close to
            return self.value == self.claimed_value
        return math.isclose(self.value, self.claimed_value, rel_tol=RELATIVE_TOLERANCE, abs_tol=self.absolute_tolerance)

    @property
    def accepted(self) -> bool:
        """Feasible, and worth what was claimed."""
        return self.value is not None and self.agrees

    def to_json(self) -> dict[str, object]:
        """The verdict as JSON types."""
        return {
            "schema_version": 1,
            "accepted": self.accepted,
            "value": finite(self.value),
            "claimed_value": self.claimed_value,
            "violations": list(self.violations),
        }


def verify_solution(problem: Problem, solution: Solution) -> Verdict:
    """Judge a solution against a problem.

    Where the solution names another semiring than the problem's own, the problem is read in that one: the claim was
    made there. Raises :class:`oocbe.errors.FormatError` where the two do not have the same variables and values.
    """
    if solution.semiring is not None and solution.semiring != problem.semiring.name:
        problem = problem.in_semiring(semiring_by_name(solution.semiring))
    assignment = solution.assignment(problem)
    near_zero = 0.0
    if problem.semiring.combination is Combination.ADD:
        near_zero = RELATIVE_TOLERANCE * min(1.0, _magnitude(problem, assignment))
    return Verdict(problem.evaluate(assignment), violations_of(problem, assignment), solution.claimed_value, near_zero)


def _magnitude(problem: Problem, assignment: Sequence[int]) -> int | float:
    """Sum of the absolute values of what is added up."""
    return abs(problem.constant) + sum(abs(f.value_at(assignment) or 0) for f in problem.functions)


def judge(problem: Problem, solution: str | Path | Result | TaskResult | Mapping[str, str | int]) -> Verdict:
    """Judge what states an assignment; see :func:`oocbe.verify`, also for what is raised."""
    if isinstance(solution, str | Path):
        return verify_solution(problem, read_solution(solution))
    if isinstance(solution, Mapping):
        labels, claimed, semiring = solution, None, None
    else:
        found = solution.labels
        if found is None:
            raise UsageError(f"{solution.problem}: {solution.status}; the result has no assignment to verify")
        labels, claimed, semiring = found, solution.value, solution.semiring
        if isinstance(solution, TaskResult) and solution.task == "mpe":
            claimed = None  # a logarithm, and not what the assignment is worth
    index = assignment_of(problem, labels)
    named = {v.name: v.label(value) for v, value in zip(problem.variables, index, strict=True)}
    return verify_solution(problem, Solution("the result", named, {}, claimed, semiring))
