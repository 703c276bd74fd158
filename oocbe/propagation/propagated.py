"""Presolve by propagation, before the search for orders: the first step of a solve, a plan and a task.

It removes infeasible values only, so it is valid for all semirings and tasks. It is tried on every problem, because a
check of the rows of all tables (see :func:`~oocbe.propagation.value_removal.remove_values`) excludes most problems in
which nothing can be removed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from oocbe.elimination.orders.order import is_order_file
from oocbe.elimination.preparation.penalties import Penalties, forbid_penalties
from oocbe.elimination.reformulation import Stack
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.dominated_values import UndominatedProblem, without_dominated
from oocbe.propagation.value_removal import ReducedProblem, may_lose_values, remove_values
from oocbe.runtime.deadline import suppressed_limit, unlimited
from oocbe.runtime.tracing.recorder import ELIMINATION, span


def presolved(stack: Stack, options: SolveOptions) -> Stack:
    """The stack with propagation; unless it keeps counts, with penalties forbidden and without dominated values."""
    if stack.admits(Penalties):
        stack = stack.then(forbid_penalties(stack.problem, options))
    stack = stack.then(propagated(stack.problem, options))
    return stack.then(without_dominated(stack.problem, options)) if stack.admits(UndominatedProblem) else stack


def propagated(problem: Problem, options: SolveOptions) -> ReducedProblem:
    """The problem without values and variables that propagation removes or fixes.

    It is unchanged where no value is removed, where an order file names all its variables, and where a limit comes
    first (later steps report it). A run directory holds the reduced problem, so propagation has no limit there.
    """
    left = untouched = ReducedProblem.of_all(problem)
    if not tuning().propagates or is_order_file(options.order):
        return untouched
    limit: AbstractContextManager[None] = nullcontext() if options.workdir is None else unlimited()
    with span(ELIMINATION, "propagation") as timed, limit:
        with suppressed_limit():
            # remove_values makes the same test, except where it can fix variables of one value.
            if 1 not in problem.sizes or may_lose_values(problem):
                left = remove_values(problem, ())
            if left.removed and not left.is_infeasible:
                left = replace(left, problem=_without_enforced(problem, left.problem))
        timed.note(values_removed=left.removed, variables_fixed=len(problem.variables) - len(left.variables))
    if left.is_infeasible:
        return replace(untouched, problem=left.problem, is_infeasible=True)
    return left if left.removed else untouched


def _without_enforced(problem: Problem, left: Problem) -> Problem:
    """The reduced problem without the linear constraints that could bind before propagation and cannot now."""
    pairs = zip(left.linear_constraints, problem.linear_constraints, strict=True)
    return replace(left, linear_constraints=tuple(now for now, before in pairs if now.can_bind or not before.can_bind))
