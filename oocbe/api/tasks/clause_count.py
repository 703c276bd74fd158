"""Counts of clauses: preprocessing, then elimination or a search, whichever the predicted rows favour.

Preprocessing (:mod:`oocbe.counting.presolve`) makes many problems small enough for elimination. Beyond
``tuning().searched_rows`` predicted rows, a search with a cache of components (:mod:`oocbe.counting.counter`) counts:
its time depends on the components that occur, and not on the assignments of separators. An order, a form of tables, a
device or workers that a user chooses belong to elimination, and exclude both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from oocbe.api.tasks.result import task_result
from oocbe.counting.clauses import formula_of, problem_of
from oocbe.counting.counter import count_formula, depth_scores
from oocbe.counting.formula import Formula
from oocbe.counting.presolve import Presolved, presolve
from oocbe.elimination.buckets.resources import message_memory
from oocbe.elimination.orders.order import OrderChoice, search_orders
from oocbe.elimination.preparation.upper_bound import what_forbids
from oocbe.model.problem import Problem
from oocbe.model.results.progress_curve import PresolveStep
from oocbe.model.results.task_result import TaskResult
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline, suppressed_limit

PRESOLVE_SECONDS, PRESOLVE_SHARE = 60.0, 0.2
"""Time limit of preprocessing, in seconds, and as a share of the time that is left."""


def count_clauses(
    problem: Problem,
    options: SolveOptions,
    eliminate: Callable[[Problem, Sequence[int]], TaskResult] | None = None,
    weights: Mapping[int, Sequence[int]] = MappingProxyType({}),
    hidden: Collection[int] = (),
    model_found: Callable[[], None] | None = None,
) -> TaskResult | None:
    """The number of feasible assignments of a problem whose parts are clauses; None for other problems and options.

    eliminate : counts the preprocessed problem, with this order, by elimination; None: the search counts.
    weights : by variable, integers for its values; others weigh 1. hidden : variables that are projected out.
    model_found : called as soon as there is a model, before the count.
    Raises TimeLimitError: the limit passed; ResourceError: the memory does not suffice; UnsupportedError: an upper
    bound that sums can reach.
    """
    if _is_excluded(options):
        return None
    with Deadline(options.time_limit) as deadline:
        begin = time.perf_counter()
        formula = formula_of(what_forbids(problem))
        if formula is None:
            return None
        formula = _weighted(formula, weights, hidden)
        most = min(PRESOLVE_SECONDS, PRESOLVE_SHARE * deadline.remaining)
        is_found = model_found is None
        if model_found is not None:  # before the preprocessing, which takes longer for many clauses
            with Deadline(most), suppressed_limit():
                if is_found := _has_model(formula, options):
                    model_found()
        presolved = presolve(formula, most)
        reduced = problem_of(presolved.formula, problem.name)
        between = time.perf_counter()
        choice = _order(reduced, options, deadline)
        seconds = {"presolve": between - begin, "order": time.perf_counter() - between}
        if not is_found and model_found is not None and _has_model(presolved.formula, options):
            model_found()
        if eliminate is not None and choice is not None and choice.cost() <= tuning().searched_rows:
            found = eliminate(reduced, choice.order)
            value = int(found.value or 0) * presolved.formula.multiplier
        else:
            found = _searched(presolved.formula, problem, options, choice)
            value = int(found.value or 0)
        has_negative = formula.weights is not None and any(min(pair) < 0 for pair in formula.weights)
        is_feasible = value != 0 or (has_negative and _has_model(formula, options))
    return replace(
        found,
        semiring=problem.semiring.name,
        variables=problem.variables,
        status="exact" if is_feasible else "infeasible",
        value=value,
        log10=None,
        order=_lifted(presolved, found.order, len(problem.variables)),
        seconds={**found.seconds, **seconds},
        presolve=(_step(formula, presolved.formula),),
    )


def clauses_left(
    problem: Problem,
    options: SolveOptions,
    seconds: float,
    weights: Mapping[int, Sequence[int]] = MappingProxyType({}),
    hidden: Collection[int] = (),
) -> tuple[Problem, PresolveStep] | None:
    """The problem after preprocessing, and the step of it; None where :func:`count_clauses` does not count."""
    if _is_excluded(options) or (formula := formula_of(what_forbids(problem))) is None:
        return None
    with Deadline(None):  # loops are compiled beyond the seconds
        left = presolve(_weighted(formula, weights, hidden), seconds).formula
    return problem_of(left, problem.name), _step(formula, left)


def _is_excluded(options: SolveOptions) -> bool:
    return options.order != "auto" or options.tables != "auto" or options.backend == "cuda" or options.has_workers


def _weighted(formula: Formula, weights: Mapping[int, Sequence[int]], hidden: Collection[int]) -> Formula:
    """The formula with weights and hidden variables."""
    shown = formula.shown.copy()
    shown[list(hidden)] = False
    if not weights:
        return replace(formula, shown=shown)
    pairs = [(1, 1)] * formula.variables
    for v, (of_false, of_true) in weights.items():
        pairs[v] = of_true, of_false
    return replace(formula, shown=shown, weights=tuple(pairs))


def _has_model(formula: Formula, options: SolveOptions) -> bool:
    """Whether a formula whose count is 0 has a model: negative weights may cancel out."""
    hidden = replace(formula, shown=np.zeros_like(formula.shown), weights=None)
    return count_formula(hidden, np.zeros(formula.variables), message_memory(options)).value != 0


def _order(reduced: Problem, options: SolveOptions, deadline: Deadline) -> OrderChoice | None:
    """The best order found; None for no variables."""
    if not reduced.variables or any(not c.scope for c in reduced.constraints):
        return None
    return search_orders(reduced, "auto", options.order_seconds, options.seed, deadline=deadline)[0]


def _searched(formula: Formula, problem: Problem, options: SolveOptions, choice: OrderChoice | None) -> TaskResult:
    """The count by search."""
    begin = time.perf_counter()
    if choice is None:
        scores = np.zeros(formula.variables)
    else:
        scores = depth_scores(choice.order, choice.separators)
    counted = count_formula(formula, scores, message_memory(options))
    notes = []
    if counted.decisions:
        notes.append(
            f"counted by a search: {counted.decisions:,} decisions, {counted.conflicts:,} conflicts; "
            f"{counted.hits:,} components were in its cache"
        )
    return task_result(
        "count",
        problem,
        value=counted.value,
        width=0 if choice is None else max(map(len, choice.separators), default=0),
        dtype="int64",
        seconds={"forward": time.perf_counter() - begin},
        notes=tuple(notes),
    )


def _lifted(presolved: Presolved, order: Sequence[int], variables: int) -> tuple[int, ...]:
    """An order of all variables, those removed by preprocessing first; a search has no order, and gives theirs."""
    if not order:
        return tuple(range(variables))
    removed = sorted(set(range(variables)).difference(presolved.variables))
    return (*removed, *(presolved.variables[v] for v in order))


def _step(before: Formula, after: Formula) -> PresolveStep:
    variables, clauses = before.variables - after.variables, len(before.clauses) - len(after.clauses)
    return PresolveStep("clauses", variables, 2 * variables, clauses, clauses)
