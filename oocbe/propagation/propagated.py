"""Presolve by propagation, before the search for orders: the first step of a solve, a plan and a task.

It removes infeasible values only, so it is valid for all semirings and tasks. It is tried on every problem, because a
check of the rows of all tables (see :func:`~oocbe.propagation.value_removal.remove_values`) excludes most problems in
which nothing can be removed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np

from oocbe.elimination.orders.order import is_order_file
from oocbe.errors import RequestedEndError, TimeLimitError
from oocbe.model.parts import Constraint
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.value_removal import ReducedProblem, may_lose_values, remove_values
from oocbe.runtime.deadline import unlimited
from oocbe.runtime.tracing.recorder import ELIMINATION, span


def propagated(problem: Problem, options: SolveOptions) -> tuple[Problem, ReducedProblem]:
    """The problem without values and variables that propagation removes or fixes, and the postsolve data.

    It is unchanged where no value is removed, where an order file names all its variables, and where a limit comes
    first (later steps report it). A run directory holds the reduced problem, so propagation has no limit there.
    """
    untouched = ReducedProblem.of_all(problem)
    if not tuning().propagates or is_order_file(options.order):
        return problem, untouched
    limit: AbstractContextManager[None] = nullcontext() if options.workdir is None else unlimited()
    with span(ELIMINATION, "propagation") as timed, limit:
        try:
            left = remove_values(problem, ()) if may_lose_values(problem) else untouched
        except RequestedEndError:
            raise
        except TimeLimitError:
            return problem, untouched
        timed.note(values_removed=left.removed, variables_fixed=len(problem.variables) - len(left.variables))
    if left.problem is None:
        found = _infeasible(problem)
        return found, replace(untouched, problem=found)
    if not left.removed:
        return problem, untouched
    found = _without_enforced(problem, left.problem)
    return found, replace(left, problem=found)


def _without_enforced(problem: Problem, left: Problem) -> Problem:
    """The reduced problem without the linear constraints that could bind before propagation and cannot now."""
    pairs = zip(left.linear_constraints, problem.linear_constraints, strict=True)
    return replace(left, linear_constraints=tuple(now for now, before in pairs if now.can_bind or not before.can_bind))


def _infeasible(problem: Problem) -> Problem:
    """A trivially infeasible problem over the same variables."""
    nothing = Constraint((), np.zeros((0, 0), dtype=np.int64), allowed=True)
    return replace(problem, functions=(), constraints=(nothing,), linear_constraints=())


def what_went(left: ReducedProblem) -> str:
    """A sentence about the removals of propagation; empty where there is nothing to report."""
    if left.problem is left.original:
        return ""
    if not left.removed:
        return "propagation found that nothing is feasible"
    fixed = len(left.original.variables) - len(left.variables)
    return (
        f"propagation removed {left.removed:,} of {sum(left.original.sizes):,} values before the search for an order"
        + (f"; {fixed:,} variable{'s have' if fixed > 1 else ' has'} one value left" if fixed else "")
    )
