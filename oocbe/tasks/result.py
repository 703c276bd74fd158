"""From what the tables of a task found and took to its result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from oocbe.model.problem import Problem
from oocbe.results.task_result import TaskResult
from oocbe.settings.machine import peak_memory

if TYPE_CHECKING:
    from oocbe.elimination.preparation.restrict import Restriction
    from oocbe.junction_trees.compiled import CompiledTree
    from oocbe.tasks.tables import Tables


def unfinished(task: str, problem: Problem, why: str, **more: Any) -> TaskResult:
    """The result where a signal came before anything was known."""
    return TaskResult(
        task=task,
        status="interrupted",
        value=None,
        problem=problem.name,
        semiring=problem.semiring.name,
        variables=problem.variables,
        width=0,
        largest_message_rows=0,
        total_rows=0,
        order=(),
        dtype="",
        backend="cpu",
        seconds={},
        peak_memory_bytes=peak_memory(),
        passes=0,
        notes=(why,),
        **more,
    )


def finished(task: str, problem: Problem, tables: Tables, value: float | None, **more: Any) -> TaskResult:
    """A result with what the tables cost; ``seconds`` gets the total."""
    outcome = tables.outcome
    seconds = dict(tables.seconds)
    settings: dict[str, Any] = {
        "task": task,
        "status": "exact",
        "value": value,
        "problem": problem.name,
        "semiring": problem.semiring.name,
        "variables": problem.variables,
        "width": outcome.width,
        "largest_message_rows": outcome.largest_rows,
        "total_rows": outcome.total_rows,
        "order": tables.choice.order,
        "dtype": tables.prepared.dtype.name,
        "backend": "cuda" if tables.engine.uses_device else "cpu",
        "seconds": seconds,
        "peak_memory_bytes": peak_memory(),
    }
    return TaskResult(**{**settings, **more})


def finished_by_tree(
    task: str,
    problem: Problem,
    left: Restriction,
    tree: CompiledTree | None,
    value: float,
    seconds: dict[str, float],
    **more: Any,
) -> TaskResult:
    """A result from a junction tree of what evidence leaves of a problem; None: nothing is feasible without it."""
    separators = [] if tree is None else [rows.separator_rows for rows in tree.rows]
    fixed = [v for v, kept in enumerate(left.kept) if len(kept) <= 1]
    return TaskResult(
        task=task,
        status="infeasible" if value == -math.inf else "exact",
        value=value,
        problem=problem.name,
        semiring=problem.semiring.name,
        variables=problem.variables,
        width=0 if tree is None else tree.width,
        largest_message_rows=max(separators, default=0),
        total_rows=sum(separators),
        order=(*fixed, *(left.variables[v] for v in (() if tree is None else tree.order))),
        dtype="float64",
        backend="cpu",
        seconds=seconds,
        peak_memory_bytes=peak_memory(),
        **more,
    )


def unsatisfiable(task: str, problem: Problem, tables: Tables, value: float | None, **more: Any) -> TaskResult:
    """The result where nothing is feasible."""
    return finished(task, problem, tables, value, status="infeasible", **more)
