"""The tasks: their names, and the problems whose tables answer them."""

from __future__ import annotations

from dataclasses import replace

from oocbe.errors import UnsupportedError, UsageError
from oocbe.model.problem import Problem
from oocbe.model.semiring import COUNTING, Combination
from oocbe.model.settings.option_values import parse_temperature

TASKS = ("mpe", "count", "count-optimal", "kbest", "logz", "marginals", "min-marginals")
"""Names of the tasks."""


def check_task(task: str, temperature: object) -> float:
    """The temperature; UsageError: an unknown task, or a temperature that is not above 0."""
    if task not in TASKS:
        raise UsageError(f"unknown task {task!r}; known: {', '.join(TASKS)}")
    return parse_temperature(temperature)


def check_semiring(task: str, problem: Problem) -> None:
    """Raise UnsupportedError unless a problem's semiring has a meaning for a task."""
    semiring, adds = problem.semiring, problem.semiring.combination is Combination.ADD
    if task == "mpe" and (adds or semiring.counts):
        raise UnsupportedError(f"{problem.name}: mpe is of factors that are multiplied, not {semiring}; use optimum")
    if task == "min-marginals" and not (adds and semiring.selects):
        raise UnsupportedError(f"{problem.name}: min-marginals are sums that are compared, not {semiring}")
    if task in ("count-optimal", "kbest") and not semiring.selects:
        raise UnsupportedError(f"{problem.name}: the {semiring} semiring has no best assignments")


def problem_of_task(task: str, problem: Problem, temperature: float = 1.0) -> Problem:
    """The problem whose tables answer a task."""
    from oocbe.elimination.preparation.temperature import at_temperature
    from oocbe.elimination.preparation.upper_bound import hard_part, without_upper_bound

    if task == "count":
        return replace(hard_part(problem), semiring=COUNTING)
    if task == "min-marginals":
        return without_upper_bound(problem)
    return at_temperature(problem, temperature) if task in ("logz", "marginals") else problem
