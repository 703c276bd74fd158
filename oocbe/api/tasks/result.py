"""Results of tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.model.problem import Problem
from oocbe.model.results.task_result import TaskResult
from oocbe.model.settings.machine import peak_memory
from oocbe.propagation.propagated import what_went

if TYPE_CHECKING:
    from oocbe.api.tasks.tables import Tables
    from oocbe.junction_trees.compiled import CompiledTree
    from oocbe.propagation.value_removal import ReducedProblem


def unfinished(task: str, problem: Problem, why: str, **more: Any) -> TaskResult:
    """The result after a signal, without an answer."""
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
    """A result with the cost of the tables; the total is added to ``seconds``."""
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


class TreeNumbers(NamedTuple):
    """Sizes of one or several junction trees, for a result.

    Attributes
    ----------
    width : variables of the largest clique, less one. separator_rows : rows of each message.
    order : variables as they were eliminated.
    """

    width: int
    separator_rows: Sequence[int]
    order: Sequence[int]

    @classmethod
    def of(cls, tree: CompiledTree) -> TreeNumbers:
        """The sizes of a tree in memory."""
        return cls(tree.width, [rows.separator_rows for rows in tree.rows], tree.order)


def finished_by_tree(
    task: str,
    problem: Problem,
    left: ReducedProblem,
    tree: TreeNumbers | None,
    value: float,
    seconds: dict[str, float],
    **more: Any,
) -> TaskResult:
    """A result from the junction tree of a problem reduced by evidence; ``tree`` : None if it was not needed."""
    separators = [] if tree is None else tree.separator_rows
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


def lifted(result: TaskResult, left: ReducedProblem) -> TaskResult:
    """The result of the whole problem from that of the propagated one; removed values are reported as a note."""
    if left.problem is left.original:
        return result
    return replace(
        result,
        variables=left.original.variables,
        order=left.lift_order(result.order),
        assignments=tuple((value, left.lift(assignment)) for value, assignment in result.assignments),
        marginals=_lifted_marginals(result, left),
        notes=(*result.notes, what_went(left)) if what_went(left) else result.notes,
    )


def _lifted_marginals(result: TaskResult, left: ReducedProblem) -> tuple[NDArray[Any], ...]:
    """Marginals of all variables. Values of fixed variables get the result's value or 1, removed values NaN or 0."""
    if result.task not in ("marginals", "min-marginals") or result.status != "exact":
        return ()
    is_best = result.task == "min-marginals"
    certain, nothing = (result.value, math.nan) if is_best else (1.0, 0.0)
    dtype = object if is_best and isinstance(result.value, int) else np.float64
    number = {v: i for i, v in enumerate(left.variables)}
    marginals = []
    for v, kept in enumerate(left.kept):
        found = np.full(left.original.variables[v].size, nothing, dtype=dtype)
        found[kept] = result.marginals[number[v]] if v in number else certain
        marginals.append(found)
    return tuple(marginals)


def unsatisfiable(task: str, problem: Problem, tables: Tables, value: float | None, **more: Any) -> TaskResult:
    """The result of an infeasible problem."""
    return finished(task, problem, tables, value, status="infeasible", **more)
