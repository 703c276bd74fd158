"""Sums of floats that are integer multiples of one step, as sums of integers.

Costs are often floats such as 0, 2.5 and 100.0. Sums of integers need no tolerance for rounding: a bound of 2.0001
proves 3 instead of 2.0001, bounds of linear programs are rounded up, penalties are distinguished from constraints, and
tables have numbers of 32 bits. If all values are multiples of 2**-20 and their sums are small, float sums are exact,
and both problems are equivalent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.order import OrderChoice
from oocbe.elimination.plan.plan import easy_orders
from oocbe.elimination.preparation.ranges import EXACT_SUM, FRACTION, are_fractions
from oocbe.elimination.reformulation import Number, Reformulation
from oocbe.elimination.refusals import has_logarithms
from oocbe.elimination.row_pruning.dominance import applies_to
from oocbe.errors import TimeLimitError
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline, suppressed_limit
from oocbe.search.row_results import FEW_ROWS


@dataclass(frozen=True)
class IntegerScaling(Reformulation):
    """A problem of floats as one of integers, in units of a step: the greatest common divisor of all values."""

    step: float = 1.0

    @classmethod
    def of(cls, problem: Problem) -> Reformulation:
        """Unchanged for products, integers, floats without a step or with rounded sums, and after the time limit."""
        unchanged = Reformulation(problem, problem)
        if not applies_to(problem.semiring) or not are_fractions(problem):
            return unchanged
        common = abs(int(problem.constant / FRACTION))
        for f in problem.functions:
            common = math.gcd(common, int(np.gcd.reduce(_steps(f.values, FRACTION))), int((f.default or 0) / FRACTION))
        step = FRACTION * (common or 1)
        top = problem.upper_bound
        try:
            functions = []
            for f in problem.functions:
                default = None if f.default is None else int(f.default / step)
                functions.append(Function(f.scope, f.tuples, _steps(f.values, step), default))
            made = replace(
                problem,
                functions=tuple(functions),
                constant=int(problem.constant / step),
                upper_bound=None if top is None else _least_from(top, step),
            )
        except TimeLimitError:
            return unchanged
        return cls(problem, made, step, name="integer scaling")

    def options(self, options: SolveOptions) -> SolveOptions:
        """The options with differences of values and upper bounds in steps."""
        ub, gap = options.ub, options.gap
        ub = None if ub is None else _least_from(ub, self.step)
        return replace(options, ub=ub, gap=replace(gap, absolute=gap.absolute / self.step))

    def bounds(self, bound: Number, value: Number) -> tuple[Number, Number]:
        """The floats."""
        return None if bound is None else bound * self.step, None if value is None else value * self.step


def _steps(values: Any, step: float) -> NDArray[np.int64]:
    """Values in units of a step, of which they are multiples."""
    return np.asarray(np.asarray(values, dtype=np.float64) / step).astype(np.int64)


def _least_from(bound: float, step: float) -> int:
    """The least number of steps that reaches a bound: fewer steps are less than the bound. All sums are smaller in
    magnitude than :data:`EXACT_SUM`."""
    return math.ceil(max(-EXACT_SUM, min(bound, EXACT_SUM)) / step)


UNBOUNDED = "bounds exist for sums only: solved by sums of logarithms"
OUT_OF_RANGE = "products underflow or overflow float64 on the way: solved by sums of their logarithms"
"""Reason for the use of logarithms, for a result's notes."""


def allows_logarithms(problem: Problem, options: SolveOptions) -> bool:
    """Whether the logarithms of a problem of products may be solved in its place.

    Products of integers are exact, and are not converted. If an order, no bounds or a resumable run is requested, the
    given problem is eliminated.
    """
    semiring = problem.semiring
    if not semiring.selects or semiring.combination is not Combination.MULTIPLY or problem.is_integral:
        return False
    is_free = options.bounds == options.order == options.tables == "auto" and options.workdir is None
    return is_free and bool(problem.variables) and has_logarithms(problem)


def prefers_logarithms(problem: Problem, options: SolveOptions) -> bool:
    """Whether to use logarithms at once: if they are allowed, unless elimination of the products is fast."""
    if not allows_logarithms(problem, options):
        return False
    choices: list[OrderChoice] = []
    with suppressed_limit(), Deadline(options.time_limit):
        choices = easy_orders(problem, options)
    return not choices or sum(choices[0].predicted_rows) > FEW_ROWS
