"""Counts, partition functions and marginals of problems that are eliminated in one loop."""

from __future__ import annotations

import math
import time
from typing import Any

from oocbe.api.tasks.result import task_result
from oocbe.elimination.narrow.narrow_problem import COUNTS, NarrowProblem, count_feasible, narrow_problem
from oocbe.elimination.preparation.upper_bound import what_forbids, without_upper_bound
from oocbe.errors import UnsupportedError
from oocbe.model.problem import Problem
from oocbe.model.results.task_result import TaskResult
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline

TASKS_AT_ONCE = ("count", "logz", "marginals")
"""Tasks that one loop answers; the search for its order ignores values."""


def answered_at_once(task: str, problem: Problem, options: SolveOptions, temperature: float) -> TaskResult | None:
    """The task's result; None if the problem is not suitable for one loop, or the task is another one.

    Also None for values that the task does not support: propagation may remove them, or later steps raise the error.

    Raises TimeLimitError: the limit passed; FormatError: the file named by ``options.order`` is no order of this
    problem.
    """
    begin = time.perf_counter()
    with Deadline(options.time_limit):
        narrow = problem_at_once(task, problem, options, temperature)
        if narrow is None:
            return None
        if task == "count":
            found = count_feasible(narrow)
            status = "exact" if found else "infeasible"
            return _result(task, problem, narrow, found, begin, status=status, dtype="int64")
        more: dict[str, Any] = {"temperature": temperature, "dtype": "float64"}
        if task == "logz":
            value = narrow.solve()[0].value
        else:
            value, more["marginals"] = narrow.marginals() or (None, ())
        more["status"] = "infeasible" if value is None else "exact"
        return _result(task, problem, narrow, -math.inf if value is None else float(value), begin, **more)


def problem_at_once(task: str, problem: Problem, options: SolveOptions, temperature: float) -> NarrowProblem | None:
    """The problem that one loop eliminates for the task; None as for :func:`answered_at_once`, errors as well."""
    if task not in TASKS_AT_ONCE or (task == "count" and (options.float_counts or problem.counting is not None)):
        return None
    counts = task == "count"
    try:
        given = what_forbids(problem) if counts else without_upper_bound(problem)
        return narrow_problem(given, options, COUNTS if counts else temperature)
    except UnsupportedError:
        return None


def _result(
    task: str, problem: Problem, narrow: NarrowProblem, value: int | float, begin: float, **more: Any
) -> TaskResult:
    cells, order_seconds = narrow.message_cells, narrow.order_seconds
    return task_result(
        task,
        problem,
        value=value,
        width=narrow.width,
        largest_message_rows=int(cells.max(initial=0)),
        total_rows=int(cells.sum()),
        order=tuple(narrow.order.tolist()),
        seconds={"order": order_seconds, "forward": time.perf_counter() - begin - order_seconds},
        **more,
    )
