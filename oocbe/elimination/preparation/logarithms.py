"""A problem whose values are multiplied and maximised as one whose costs are added and minimised: negative logarithms.

Products of thousands of probabilities leave the range of float64, their logarithms do not; and bounds, dominance and
mini-buckets work on sums. The price is rounding: a logarithm is off by half a unit in its last place.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from oocbe.elimination.preparation.negate import negated
from oocbe.elimination.preparation.zeros import without_zeros
from oocbe.errors import UnsupportedError
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import LOG_SUM_EXP, MAX_PRODUCT, MIN_SUM, Combination


def log_weights(problem: Problem) -> Problem:
    """A sum-product problem in log-sum-exp: the same feasible assignments, each worth the logarithm of its weight.

    Raises
    ------
    UnsupportedError : a negative value.
    """
    negative = in_logarithms(replace(problem, semiring=MAX_PRODUCT))
    return replace(negated(negative), semiring=LOG_SUM_EXP)


def in_logarithms(problem: Problem) -> Problem:
    """A max-product problem in min-sum: the same feasible assignments, each costing minus the logarithm of its value.

    Assignments with the value 0 become infeasible.

    Raises
    ------
    UnsupportedError : another semiring, or a negative value.
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
    for f in problem.functions:
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
    try:
        return math.nextafter(math.exp(logarithm) * (1 + 2.0**-50), math.inf)
    except OverflowError:
        return math.inf
