"""The plan of a solve, with a forecast, from a sample, of the search before elimination; the plans of tasks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from oocbe.api.solving.components import Components
from oocbe.api.solving.strategies import IntegerScaling, prefers_logarithms
from oocbe.api.tasks.count import ScaledWeights, asks_weights, clauses_left, forbid_zero_weights, tables_of_count
from oocbe.api.tasks.questions import check_semiring, check_task, problem_of_task
from oocbe.api.tasks.result import problem_at_once
from oocbe.api.tasks.tables import check_constraints, keeping_rows
from oocbe.elimination.narrow.narrow_plan import narrow_plan
from oocbe.elimination.narrow.narrow_problem import narrow_problem
from oocbe.elimination.plan.plan import Plan, make_plan, plan_of
from oocbe.elimination.preparation.logarithms import Logarithms, in_logarithms
from oocbe.elimination.reformulation import Negation, Stack, reduce_arity
from oocbe.elimination.solution_check import check_linear, checked
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, Combination
from oocbe.model.settings.option_values import COMPLETE
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.propagated import presolved
from oocbe.runtime.compilation import Stopwatch, working_time
from oocbe.runtime.deadline import Deadline, suppressed_limit
from oocbe.search.presolve import FEW_ROWS, is_easy, presolve, rows_to_come

Found = TypeVar("Found")

PREPARATION_SECONDS = 1.0
"""Time limit of propagation and reduction together, in seconds, in addition to that of the search for an order."""


def plan_solve(problem: Problem, options: SolveOptions) -> Plan:
    """Propagate, reduce, choose an order, predict its cost, and sample the search; errors as for :func:`make_plan`.

    Unlike a solve, a plan skips the steps of propagation and reduction that exceed their time limit.
    """
    semiring = options.semiring or problem.semiring
    whole = reduce_arity(checked(problem, semiring, options).in_semiring(semiring))
    narrow = narrow_problem(whole, options)
    if narrow is not None and not narrow.is_long:
        return narrow_plan(narrow, options)
    preparation = _Preparation(options)
    stack = preparation.presolved(whole)
    if not preparation.summary:  # else a solve propagates more
        check_linear(stack.problem, semiring)
    if stack.problem.sizes != whole.sizes:
        narrow = narrow_problem(stack.problem, options)
    if narrow is not None:
        return replace(narrow_plan(narrow, options), **_about(stack))
    if prefers_logarithms(stack.problem, options):
        stack = stack.then(Logarithms.of(stack.problem))
        options = stack.entries[-1].options(options)
    scaling = IntegerScaling.of(stack.problem)
    stack, options = stack.then(scaling), scaling.options(options)
    target = stack.problem
    is_bounded = options.bounds == "auto" and options.tables != COMPLETE and target.semiring.optimises_sums
    if is_bounded and not is_easy(target) and (found := preparation.run(lambda: presolve(target, options))):
        stack = stack.then(found)
    plan = replace(make_plan(stack.problem, options), **_about(stack, preparation.summary, _range_note(target)))
    if not is_bounded or sum(plan.choice.predicted_rows) <= FEW_ROWS:
        return plan
    if apart := Components.of(stack.problem, options):
        return replace(plan, bounds=f"{apart.summary}, one after another")
    rows = rows_to_come(Negation.of(stack.problem).problem, options)
    return replace(plan, bounds=f"first {rows}; then {plan.bounds}") if rows else plan


def plan_task(problem: Problem, task: str, options: SolveOptions, temperature: float = 1.0) -> Plan:
    """The plan of a task, see :func:`oocbe.api.tasks.verbs.run_task`, with every feasible row; of the optimum as above.

    Raises UsageError: an unknown task; UnsupportedError: a problem that the task does not accept.
    """
    temperature = check_task("mpe" if task == "optimum" else task, temperature)
    if task == "optimum":
        return plan_solve(problem, options)
    is_weighted = asks_weights(task, problem, options)
    whole = reduce_arity(problem.in_semiring(options.semiring or problem.semiring))
    check_semiring(task, whole)
    if task == "mpe":
        return plan_solve(in_logarithms(whole.in_semiring(MAX_PRODUCT)), replace(options, semiring=None))
    if (narrow := problem_at_once(task, whole, options, temperature)) is not None:
        return narrow_plan(narrow, options)
    if is_weighted:
        whole = forbid_zero_weights(whole)
    preparation = _Preparation(options)
    stack = preparation.presolved(whole, keeps_counts=True)
    about = _about(stack, preparation.summary)
    if (narrow := problem_at_once(task, stack.problem, options, temperature)) is not None:
        return replace(narrow_plan(narrow, options), **about)
    weights = ScaledWeights.of(stack) if is_weighted else None
    if task == "count" and not options.float_counts:
        asked = () if weights is None else (weights.values, weights.hidden)
        left = clauses_left(stack.problem, options, PREPARATION_SECONDS, *asked)
        if left is not None and left[0].variables:
            target = problem_of_task(task, left[0], temperature)
            about["presolve"] = (*stack.steps, left[1])
            plan = replace(make_plan(target, keeping_rows(options, target)), **about)
            if is_weighted or plan.choice.cost() > tuning().searched_rows:
                plan = replace(plan, bounds="a search with a cache of components counts", is_certain=False)
            return plan
    if weights is not None:
        target, orders = tables_of_count(stack.problem, weights, options)
    else:
        target, orders = problem_of_task(task, stack.problem, temperature), None
    check_constraints(target, task in ("count", "logz"))
    kept = keeping_rows(options, target)
    plan = make_plan(target, kept) if orders is None else plan_of(target, orders(target, kept)[0], kept)
    return replace(plan, **about)


def _about(stack: Stack, *notes: str) -> dict[str, Any]:
    """Fields of a plan about what was done before."""
    return {"propagation": "; ".join(filter(None, (stack.summary, *notes))), "presolve": stack.steps}


def _range_note(problem: Problem) -> str:
    """A note where products of integers may leave 64 bits: a solve refuses those that do as it computes them."""
    semiring, bits = problem.semiring, sum(map(math.log2, problem.sizes))
    if not semiring.counts:
        bits += sum(map(math.log2, filter(None, problem.extremes.magnitudes())))
    exact = semiring.combination is Combination.MULTIPLY and (semiring.counts or problem.is_integral)
    return "products of integers may leave 64 bits, which a solve refuses" if exact and bits >= 63 else ""


class _Preparation:
    """The steps before the search for an order, with a time limit that excludes compilation.
    ``summary`` is a note of the plan if the time limit was exceeded; else empty."""

    def __init__(self, options: SolveOptions) -> None:
        self._options = options
        self._seconds = PREPARATION_SECONDS + options.order_seconds
        self._end = working_time() + self._seconds
        self.summary = ""

    def presolved(self, problem: Problem, *, keeps_counts: bool = False) -> Stack:
        """The problem without redundant penalties and values; unchanged after the time limit."""
        whole = Stack(problem, keeps_counts=keeps_counts)
        if len(problem.functions) + len(problem.constraints) < tuning().many_parts:
            return presolved(whole, self._options)
        return self.run(lambda: presolved(whole, self._options)) or whole

    def run(self, step: Callable[[], Found]) -> Found | None:
        """The result of a step; None after the time limit."""
        while True:
            watch, found = Stopwatch(), None
            with Deadline(max(0.0, self._end - working_time())) as deadline, suppressed_limit():
                found = step()
            if not deadline.passed:
                return found
            if not watch.compiled:  # else the next run finds the compiled code
                break
        seconds = f"{self._seconds:.3g} s"
        self.summary = f"propagated and reduced in part, which a solve does before, as that takes longer than {seconds}"
        return found
