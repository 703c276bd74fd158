"""Results of tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from oocbe.elimination.reformulation import Stack
from oocbe.model.problem import Problem
from oocbe.model.results.task_result import TaskResult
from oocbe.model.settings.machine import peak_memory

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
        order=left.lift_order(() if tree is None else tree.order),
        dtype="float64",
        backend="cpu",
        seconds=seconds,
        peak_memory_bytes=peak_memory(),
        **more,
    )


def lifted(result: TaskResult, stack: Stack) -> TaskResult:
    """The result of the whole problem from that of the stack's; removed values are reported as a note.

    Values of fixed variables get the result's value or 1 as marginals, removed values NaN or 0.
    """
    if not stack.entries:
        return result
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
    )


def unsatisfiable(task: str, problem: Problem, tables: Tables, value: float | None, **more: Any) -> TaskResult:
    """The result of an infeasible problem."""
    return finished(task, problem, tables, value, status="infeasible", **more)
