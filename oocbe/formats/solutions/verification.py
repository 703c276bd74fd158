"""Independent judgement of an assignment: is it feasible, what is it worth, and does that agree with the claim?

Nothing here uses the engine: the problem is evaluated function by function, from the file as it was read. What this
does not show is that no better assignment exists; that is the solve's proof.

UAI files (``.MPE``, ``.MAR`` and ``.PR``): a file has its kind in the first line, the number of samples in the second
where there are several, and then a line a sample: the number of variables and their most probable values; or the number
of variables and, of each, how many values it has and their probabilities; or the decimal logarithm of the partition
function. Other suffixes that are met beside these are refused by name: the tasks ``MMAP`` and ``MLC`` of the
competitions, and ``SUM``, which they never defined."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from oocbe.errors import UsageError
from oocbe.formats.solutions.solution_file import Solution, read_solution
from oocbe.model.names import assignment_of
from oocbe.model.problem import Problem, violations_of
from oocbe.model.results.numerals import finite
from oocbe.model.results.result import Result
from oocbe.model.results.task_result import TaskResult
from oocbe.model.semiring import Combination, semiring_by_name
from oocbe.runtime.urls import refuse_url

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
        labels, semiring = found, solution.semiring
        claimed = None if isinstance(solution.value, Fraction) else solution.value
        if isinstance(solution, TaskResult) and solution.task == "mpe":
            claimed = None  # a logarithm, and not what the assignment is worth
    index = assignment_of(problem, labels)
    named = {v.name: v.label(value) for v, value in zip(problem.variables, index, strict=True)}
    return verify_solution(problem, Solution("the result", named, {}, claimed, semiring))


TASKS = {".mpe": "mpe", ".mar": "marginals", ".pr": "logz"}
"""The task whose answer a file holds, by its suffix in any case."""

REFUSED = {
    ".sum": "no competition defines such a file; the sum over all assignments is in .PR, by --task logz",
    ".mmap": "marginal maximum a posteriori is no task of solve; the command oocbe uai answers it",
    ".mlc": "multi-label classification is no task here; .MPE has the most probable values of all variables",
}
"""Suffixes that are refused, in lower case, and why."""


def uai_text(kind: str, samples: Sequence[str]) -> str:
    """A file of samples that each are a line; kind : the suffix without its dot."""
    many = [str(len(samples))] if len(samples) > 1 else []
    return "\n".join([kind.upper(), *many, *samples]) + "\n"


def line_of_values(values: Sequence[int]) -> str:
    """The sample of ``.MPE``: value indices of all variables."""
    return " ".join(map(str, [len(values), *values]))


def line_of_pairs(values: Mapping[int, int]) -> str:
    """The sample of ``.MMAP``: variable and value, indices, of each variable of the query."""
    return " ".join(map(str, [len(values), *(number for pair in values.items() for number in pair)]))


def line_of_marginals(marginals: Sequence[Iterable[Any]]) -> str:
    """The sample of ``.MAR``: probabilities of each variable's values, to the last digit."""
    rows = [list(map(float, own)) for own in marginals]
    return " ".join([str(len(rows)), *(word for row in rows for word in [str(len(row)), *map(repr, row)])])


def line_of_logarithm(natural: float) -> str:
    """The sample of ``.PR``: the decimal logarithm of what has a natural one."""
    return repr(float(natural) / math.log(10))


def refuse_kind(flag: str, path: str | Path) -> None:
    """Refuse a file that an option names whose suffix is one of :data:`REFUSED`; UsageError, which says why."""
    suffix = Path(path).suffix
    why = REFUSED.get(suffix.lower())
    if why is not None:
        raise UsageError(f"{flag} {path}: {suffix} cannot be written: {why}")


def check_output(path: str | Path, task: str) -> None:
    """Refuse a file's suffix that is none of these formats, or has another task's answer; UsageError."""
    refuse_kind("--output", path)
    wanted = TASKS.get(Path(path).suffix.lower())
    if wanted is None:
        known = ", ".join(suffix.upper() for suffix in TASKS)
        raise UsageError(
            f"--output {path}: unknown suffix of a file format; known: {known}; --json prints all answers, and "
            "--output competition that of --task count"
        )
    if wanted != task:
        raise UsageError(f"--output {path}: this format holds the answer of --task {wanted}, not of {task}")


def write_task(result: TaskResult, path: str | Path) -> bool:
    """Write a task's answer in the format of the path's suffix; False if there is no answer to write."""
    kind = Path(path).suffix.lower()
    if kind == ".mpe":
        line = None if result.assignment is None else line_of_values(result.assignment)
    elif kind == ".mar":
        line = line_of_marginals(result.marginals) if result.marginals and result.status == "exact" else None
    else:
        line = None if result.value is None or result.status != "exact" else line_of_logarithm(float(result.value))
    if line is None:
        return False
    refuse_url(path, "an answer")
    Path(path).write_text(uai_text(kind[1:], [line]), encoding="utf-8")
    return True
