"""Maximum products as sums of logarithms, for which there are bounds, unlike for products."""

from __future__ import annotations

from oocbe.elimination.orders.order_choice import OrderChoice
from oocbe.elimination.plan.plan import easy_orders
from oocbe.elimination.refusals import has_logarithms
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline, suppressed_limit
from oocbe.search.row_results import FEW_ROWS

UNBOUNDED = "bounds know sums and not products: solved by sums of logarithms"
OUT_OF_RANGE = "products underflow or overflow float64 on the way: solved by sums of their logarithms"
"""Reason for the use of logarithms, for a result's notes."""


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
    choices: list[OrderChoice] = []
    with suppressed_limit(), Deadline(options.time_limit):
        choices = easy_orders(problem, options)
    return not choices or sum(choices[0].predicted_rows) > FEW_ROWS
