"""A problem whose values are multiplied and maximised as one whose costs are added and minimised: negative logarithms.

Products of thousands of probabilities leave the range of float64, their logarithms do not; and bounds, dominance and
mini-buckets work on sums. The price is rounding: a logarithm is off by half a unit in its last place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from oocbe.elimination.outcome import outside_of_floats
from oocbe.elimination.preparation.prepare import without_zeros
from oocbe.elimination.preparation.ranges import rounding_margin
from oocbe.elimination.reformulation import Number, Reformulation, negated
from oocbe.elimination.solution_check import check_solution, value_of_assignment
from oocbe.errors import UnsupportedError
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.semiring import LOG_SUM_EXP, MAX_PRODUCT, MIN_SUM, Combination
from oocbe.model.settings.option_values import Gap
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import looked

OUT_OF_RANGE = "products underflow or overflow float64 on the way: solved by sums of their logarithms"
"""Reason for the use of logarithms, for a result's notes."""


def in_logarithms(problem: Problem) -> Problem:
    """A max-product problem in min-sum: the same feasible assignments, each costing minus the logarithm of its value.

    Assignments with the value 0 become infeasible.

    Raises UnsupportedError: another semiring, or a negative value.
    """
    if not problem.semiring.selects or problem.semiring.combination is not Combination.MULTIPLY:
        raise UnsupportedError(f"{problem.name}: only max-product has logarithms to add, not {problem.semiring}")
    for number, f in enumerate(problem.functions):
        if f.values.min(initial=0) < 0 or (f.default or 0) < 0:
            raise UnsupportedError(f"{problem.name}: function {number} has a negative value, which has no logarithm")
    if problem.constant < 0:
        raise UnsupportedError(f"{problem.name}: the constant is negative, which has no logarithm")
    problem = without_zeros(problem)
    functions: list[Function] = []
    for f in looked(problem.functions):
        cost = None if f.default is None else -math.log(f.default)
        functions.append(Function(f.scope, f.tuples, -np.log(f.values.astype(np.float64)), cost))
    return replace(
        problem,
        functions=tuple(functions),
        constant=-math.log(problem.constant) + 0.0,
        semiring=MIN_SUM,
        upper_bound=None,
    )


def exponential(logarithm: float) -> float:
    """Exponential; infinite beyond float64."""
    try:
        return math.exp(logarithm)
    except OverflowError:
        return math.inf


def exponential_above(logarithm: float) -> float:
    """Exponential, rounded up by more than its maximum error."""
    return math.nextafter(exponential(logarithm) * (1 + 2.0**-50), math.inf)


@dataclass(frozen=True)
class Logarithms(Reformulation):
    """A product problem by its logarithms, in min-sum or log-sum-exp. why : reason for them, a note of results."""

    why: str = ""

    @classmethod
    def of(cls, problem: Problem, why: str = "") -> Logarithms:
        """The logarithms of a problem; errors as for :func:`in_logarithms`, and TimeLimitError."""
        if problem.semiring.selects:
            return cls(problem, in_logarithms(problem), why, name="logarithms")
        costs = in_logarithms(replace(problem, semiring=MAX_PRODUCT))
        return cls(problem, replace(negated(costs), semiring=LOG_SUM_EXP), why, name="logarithms")

    @cached_property
    def tolerance(self) -> float:
        """Maximum difference to the logarithm of the greatest product."""
        return rounding_margin(self.problem)

    def options(self, options: SolveOptions) -> SolveOptions:
        """The options for sums.

        A relative gap of products is a difference of logarithms. An absolute gap of products is not, so that bound and
        value must then be equal.
        """
        return replace(options, semiring=None, gap=Gap(absolute=math.log1p(options.gap.relative)))

    def bounds(self, bound: Number, value: Number) -> tuple[Number, Number]:
        """The products; a bound is rounded up."""
        sign = -1 if self.original.semiring.selects else 1
        value = None if value is None else exponential(sign * value)
        return None if bound is None else max(exponential_above(sign * bound), value or 0.0), value

    def result(self, result: Result) -> Result:
        """The result of the products; its bound has room for the rounding of sums."""
        problem, sum_found = self.original, result.value
        room = -self.tolerance if problem.semiring.selects else self.tolerance
        bound = None if result.bound is None else result.bound + room
        result = super().result(replace(result, bound=bound))
        value, bound, notes = result.value, result.bound, [self.why]
        if result.assignment is not None:
            value = value_of_assignment(problem, result.assignment)
        if problem.semiring.selects and self.tolerance:
            notes[0] += f", so that no product is greater by more than one part in {1 / self.tolerance:.3g}"
        if value is not None and sum_found is not None and (value == 0 or math.isinf(value)):
            notes.append(outside_of_floats(-sum_found if problem.semiring.selects else sum_found))
        check_solution(problem, value, result.assignment, f"postsolve of {self.name}")
        bound = None if bound is None else max(bound, value or 0.0)
        return replace(result, value=value, bound=bound, notes=(*notes, *result.notes))
