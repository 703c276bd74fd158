"""Results of tasks; counts, partition functions and all marginals of problems that are eliminated in one loop."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.narrow.narrow_problem import COUNTS, NarrowProblem, count_feasible, narrow_problem
from oocbe.elimination.preparation.ranges import INT64_LIMIT
from oocbe.elimination.preparation.upper_bound import what_forbids, without_upper_bound
from oocbe.elimination.reformulation import Stack
from oocbe.errors import UnsupportedError
from oocbe.model.problem import Problem
from oocbe.model.results.task_result import TaskResult
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.process_memory import peak_memory

if TYPE_CHECKING:
    from oocbe.api.tasks.tables import Tables
    from oocbe.propagation.value_removal import ReducedProblem


def task_result(task: str, problem: Problem, **more: Any) -> TaskResult:
    """A result without an answer; ``more`` : other attributes, and those that differ."""
    counts = dict.fromkeys(("width", "largest_message_rows", "total_rows"), 0)
    given: dict[str, Any] = {**counts, "status": "exact", "value": None, "order": (), "dtype": "", "backend": "cpu"}
    return TaskResult(
        task=task,
        problem=problem.name,
        semiring=problem.semiring.name,
        variables=problem.variables,
        peak_memory_bytes=peak_memory(),
        **{**given, "seconds": {}, **more},
    )


def finished(task: str, problem: Problem, tables: Tables, value: float | Fraction | None, **more: Any) -> TaskResult:
    """A result with the cost of the tables; the total is added to ``seconds``."""
    outcome = tables.outcome
    settings: dict[str, Any] = {
        "value": value,
        "width": outcome.width,
        "largest_message_rows": outcome.largest_rows,
        "total_rows": outcome.total_rows,
        "order": tables.choice.order,
        "dtype": tables.prepared.dtype.name,
        "backend": "cuda" if tables.engine.uses_device else "cpu",
        "seconds": dict(tables.seconds),
    }
    return task_result(task, problem, **{**settings, **more})


def finished_by_tree(
    task: str,
    problem: Problem,
    left: ReducedProblem,
    value: float,
    numbers: tuple[int, Sequence[int], Sequence[int]] = (0, (), ()),
    **more: Any,
) -> TaskResult:
    """A result from junction trees of a problem reduced by evidence.

    numbers : variables of the largest clique, less one; rows of each message; variables as they were eliminated.
    """
    width, separator_rows, order = numbers
    return task_result(
        task,
        problem,
        status="infeasible" if value == -math.inf else "exact",
        value=value,
        width=width,
        largest_message_rows=max(separator_rows, default=0),
        total_rows=sum(separator_rows),
        order=left.lift_order(order),
        dtype="float64",
        **more,
    )


def lifted(result: TaskResult, stack: Stack) -> TaskResult:
    """The result of the whole problem from that of the stack's; removed values are reported as a note.

    Values of fixed variables get the result's value or 1 as marginals, removed values NaN or 0.
    """
    certain, nothing = (result.value, math.nan) if result.task == "min-marginals" else (1.0, 0.0)
    marginals = result.marginals
    for entry in reversed(stack.entries) if result.status == "exact" and "marginals" in result.task else ():
        marginals = entry.lift_marginals(marginals, certain, nothing)
    return replace(
        result,
        variables=stack.original.variables,
        order=stack.lift_order(result.order),
        assignments=tuple((value, stack.lift(assignment)) for value, assignment in result.assignments),
        marginals=marginals,
        notes=(*result.notes, *filter(None, [stack.summary])),
        presolve=(*stack.steps, *result.presolve),
    )


TASKS_AT_ONCE = ("count", "logz", "marginals", "min-marginals")
"""Tasks that one loop answers; the search for its order ignores values."""

WEIGHTED = ("logz", "marginals")
"""Those among them of weights at a temperature."""


def never_of(dtype: np.dtype[Any]) -> Any:
    """The gap to the optimum of a value without a feasible assignment, in a dtype.

    Other gaps are smaller: at most twice the largest sum in size, which ``value_dtype`` keeps below 2^62.
    """
    return np.int64(INT64_LIMIT) if dtype.kind == "i" else np.float64(math.inf)


def with_values(best: int | float, gaps: Sequence[NDArray[Any]], never: Any, sense: str) -> tuple[NDArray[Any], ...]:
    """Min-marginals from gaps to the best value: Python integers, which are exact, or float64; NaN for ``never``."""
    sign, dtype = -1 if sense == "max" else 1, np.dtype(object if isinstance(never, np.integer) else np.float64)
    return tuple(
        np.array([math.nan if gap == never else best + sign * gap for gap in own.tolist()], dtype=dtype) for own in gaps
    )


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
        counts, needs_temperature, dtype = task == "count", task in WEIGHTED, narrow.tables.values.dtype
        more = dict[str, Any]()
        value: int | float | None
        if counts:
            value = count_feasible(narrow) or None
        elif task == "logz":
            value = narrow.solve()[0].value
        elif task == "min-marginals":
            never = never_of(dtype)
            value, gaps = narrow.gaps(never)
            more["marginals"] = () if value is None else with_values(value, gaps, never, problem.sense)
        else:
            value, more["marginals"] = narrow.marginals() or (None, ())
        nothing = {"count": 0, "min-marginals": None}.get(task, -math.inf)
        cells, order_seconds = narrow.message_cells, narrow.order_seconds
        return task_result(
            task,
            problem,
            status="infeasible" if value is None else "exact",
            value=nothing if value is None else value,
            width=narrow.width,
            largest_message_rows=int(cells.max(initial=0)),
            total_rows=int(cells.sum()),
            order=tuple(narrow.order.tolist()),
            dtype="int64" if counts else dtype.name,
            temperature=temperature if needs_temperature else None,
            seconds={"order": order_seconds, "forward": time.perf_counter() - begin - order_seconds},
            **more,
        )


def problem_at_once(task: str, problem: Problem, options: SolveOptions, temperature: float) -> NarrowProblem | None:
    """The problem that one loop eliminates for the task; None as for :func:`answered_at_once`, errors as well."""
    if task not in TASKS_AT_ONCE or (task == "count" and (options.float_counts or problem.counting is not None)):
        return None
    counts = task == "count"
    try:
        given = what_forbids(problem) if counts else without_upper_bound(problem)
        return narrow_problem(given, options, COUNTS if counts else temperature if task in WEIGHTED else None)
    except UnsupportedError:
        return None
