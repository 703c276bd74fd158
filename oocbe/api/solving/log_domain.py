"""Maximum products as sums of logarithms, for which there are bounds, unlike for products."""

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
"""Reason for the use of logarithms, for a result's notes."""

SHORTEST_LIMIT = 1e-3
"""Minimum time limit of an attempt, in seconds, after an earlier one that used up the time limit."""


def prefers_logarithms(problem: Problem, options: SolveOptions) -> bool:
    """Whether to use logarithms: for floats, unless elimination of the products is fast.

    Products of integers are exact, and are not converted. If an order, no bounds or a resumable run is requested, the
    given problem is eliminated.
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

    observer : of the problem. begin : of the solve. solved : solver function. why : reason for logarithms.
    """
    sums, given = as_sums(problem, options, time.perf_counter() - begin)
    return as_products(problem, sums, solved(sums, given, telling_products(observer, problem)), why)


def telling_products(observer: ForwardingObserver, problem: Problem) -> ForwardingObserver:
    """An observer of the sums of a product problem that converts to products for the given observer."""
    return observer if not problem.semiring.selects else _TellingProducts(observer)


def as_products(problem: Problem, logarithms: Problem, result: Result, why: str) -> Result:
    """The result of a product problem from that of its logarithms; why : reason for logarithms, a note."""
    result = result_of_logarithms(problem, result, rounding_margin(logarithms), why)
    check_solution(problem, result.value, result.assignment, "elimination of logarithms")
    return result


def as_sums(problem: Problem, options: SolveOptions, spent: float) -> tuple[Problem, SolveOptions]:
    """A product problem by its logarithms, in min-sum or log-sum-exp, and options with the remaining time.

    A relative gap of products is a difference of logarithms. An absolute gap of products is not, so that bound and
    value must then be equal.

    spent : seconds used of the time limit.
    """
    with unlimited():  # partial results at a limit refer to them
        logarithms = in_logarithms(problem) if problem.semiring.selects else log_weights(problem)
    limit = None if options.time_limit is None else max(SHORTEST_LIMIT, options.time_limit - spent)
    gap = Gap(absolute=math.log1p(options.gap.relative))
    return logarithms, replace(options, semiring=None, time_limit=limit, gap=gap)


class _TellingProducts(ForwardingObserver):
    """Forwards events of minimum sums of negative logarithms to an observer of maximum products."""

    def bounds_changed(
        self,
        lower: int | float | None,
        value: int | float | None,
        why: str,
        assignment: tuple[int, ...] | None,
    ) -> None:
        """Forward the event as products."""
        found = None if value is None else exponential(-value)
        bound = None if lower is None else max(exponential_above(-lower), found or 0.0)
        self._target.bounds_changed(bound, found, why, assignment)


def result_of_logarithms(problem: Problem, result: Result, tolerance: float, why: str) -> Result:
    """A product problem's result from that of its logarithms, in min-sum or log-sum-exp.

    tolerance : maximum difference to the logarithm of the greatest product. why : reason for logarithms, a note.
    """
    sign = -1 if problem.semiring.selects else 1
    value = None if result.value is None else exponential(sign * result.value)
    if result.assignment is not None:
        value = value_of_assignment(problem, result.assignment)
    bound = None
    if result.bound is not None:
        # Sums of logarithms may be off by the tolerance, and the value of the assignment is computed separately.
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
