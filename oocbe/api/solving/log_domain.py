"""Whether a greatest product is searched for among sums of logarithms, which have bounds, and products have none."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from oocbe.elimination.observer import ForwardingObserver
from oocbe.elimination.outcome import outside_of_floats
from oocbe.elimination.plan.plan import easy_orders
from oocbe.elimination.preparation.logarithms import exponential, exponential_above, in_logarithms, log_weights
from oocbe.elimination.preparation.ranges import rounding_margin
from oocbe.elimination.refusals import has_logarithms
from oocbe.elimination.solution_check import check_solution, value_of_assignment
from oocbe.errors import RequestedEndError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.semiring import Combination
from oocbe.model.settings.option_values import Gap
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline, unlimited
from oocbe.search.row_results import FEW_ROWS

UNBOUNDED = "bounds know sums and not products: solved by sums of logarithms"
OUT_OF_RANGE = "products underflow or overflow float64 on the way: solved by sums of their logarithms"
"""Why logarithms are taken, for a result's notes."""

SHORTEST_LIMIT = 1e-3
"""Seconds that an attempt has at least, where one before it has used up the time limit."""


def prefers_logarithms(problem: Problem, options: SolveOptions) -> bool:
    """Whether to search among sums: for floats, where elimination of products is not over in a moment.

    Products of integers are exact and stay so, and who asks for an order, for no bounds or for a run that can be
    resumed gets elimination of what was given.
    """
    semiring = problem.semiring
    if not semiring.selects or semiring.combination is not Combination.MULTIPLY or problem.is_integral:
        return False
    is_free = options.bounds == options.order == options.tables == "auto" and options.workdir is None
    if not is_free or not problem.variables or not has_logarithms(problem):
        return False
    try:
        with Deadline(options.time_limit):
            choices = easy_orders(problem, options)
    except RequestedEndError:
        raise
    except TimeLimitError:
        return True
    return not choices or sum(choices[0].predicted_rows) > FEW_ROWS


def by_sums(
    problem: Problem,
    options: SolveOptions,
    observer: ForwardingObserver,
    begin: float,
    solved: Callable[[Problem, SolveOptions, ForwardingObserver], Result],
    why: str,
) -> Result:
    """The result of a product problem by its logarithms.

    observer : about the problem. begin : of the solve. solved : solves what it is given. why : logarithms are taken.
    """
    sums, given = as_sums(problem, options, time.perf_counter() - begin)
    return as_products(problem, sums, solved(sums, given, telling_products(observer, problem)), why)


def telling_products(observer: ForwardingObserver, problem: Problem) -> ForwardingObserver:
    """Who is to be told about the sums of a product problem, so that the observer hears of products."""
    return observer if not problem.semiring.selects else _TellingProducts(observer)


def as_products(problem: Problem, logarithms: Problem, result: Result, why: str) -> Result:
    """The result of a product problem from that of its logarithms; why : they were solved, a note."""
    result = result_of_logarithms(problem, result, rounding_margin(logarithms), why)
    check_solution(problem, result.value, result.assignment, "elimination of logarithms")
    return result


def as_sums(problem: Problem, options: SolveOptions, spent: float) -> tuple[Problem, SolveOptions]:
    """A product problem by its logarithms, in min-sum or log-sum-exp, and options with the time that is left.

    A part of a product, as a gap, is a difference of logarithms; a difference of products is none, so that then
    bound and value must meet.

    spent : seconds of the time limit.
    """
    with unlimited():  # what is known when a limit comes is told of them
        logarithms = in_logarithms(problem) if problem.semiring.selects else log_weights(problem)
    limit = None if options.time_limit is None else max(SHORTEST_LIMIT, options.time_limit - spent)
    gap = Gap(absolute=math.log1p(options.gap.relative))
    return logarithms, replace(options, semiring=None, time_limit=limit, gap=gap)


class _TellingProducts(ForwardingObserver):
    """Tells an observer of greatest products what is told about least sums of their negative logarithms."""

    def bounds_changed(
        self,
        lower: int | float | None,
        value: int | float | None,
        why: str,
        assignment: tuple[int, ...] | None,
    ) -> None:
        """Passed on as products."""
        found = None if value is None else exponential(-value)
        bound = None if lower is None else max(exponential_above(-lower), found or 0.0)
        self._told.bounds_changed(bound, found, why, assignment)


def result_of_logarithms(problem: Problem, result: Result, tolerance: float, why: str) -> Result:
    """A product problem's result from that of its logarithms, added up in min-sum or in log-sum-exp.

    tolerance : how far below the greatest product's logarithm the one found may be. why : they were solved, a note.
    """
    sign = -1 if problem.semiring.selects else 1
    value = None if result.value is None else exponential(sign * result.value)
    if result.assignment is not None:
        value = value_of_assignment(problem, result.assignment)
    bound = None
    if result.bound is not None:
        # Sums of logarithms may be off by the tolerance, and what the assignment is worth has been computed elsewhere.
        bound = max(exponential_above(sign * result.bound + tolerance), value or 0.0)
    notes = [why]
    if problem.semiring.selects and tolerance:
        notes[0] += f", so that no product is greater by more than one part in {1 / tolerance:.3g}"
    if value is not None and result.value is not None and (value == 0 or math.isinf(value)):
        notes.append(outside_of_floats(sign * result.value))
    return replace(
        result,
        value=value,
        bound=bound,
        problem=problem.name,
        semiring=problem.semiring.name,
        sense=problem.sense,
        notes=(*notes, *result.notes),
    )
