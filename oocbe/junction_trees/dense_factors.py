"""Factors of a problem as dense arrays: an axis for each variable, and the logarithm of a common scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import LOG_SUM_EXP

MOST_CELLS = 1 << 20
"""Maximum number of cells of a factor that is made dense for a set of observed variables."""

ROUNDINGS = 4
"""Tolerance of the test that conditional probabilities sum to 1, in roundings of each number."""

LARGEST_LOGARITHM = 700.0
"""Largest logarithm whose exponential is computed; it is finite in float64."""


@dataclass(frozen=True, eq=False)
class DenseFactor:
    """A function or constraint as a dense array.

    Attributes
    ----------
    scope : variable indices. weights : float64, an axis for each variable of the scope, between 0 and 1.
    logarithm : natural, of the divisor of the weights.
    """

    scope: tuple[int, ...]
    weights: NDArray[np.float64]
    logarithm: float


LEAST_WEIGHT = 2.0**-1000
"""Smallest nonzero weight of a part relative to its greatest. Below it, a scaled weight may underflow to zero."""


def dense_factor(problem: Problem, part: Function | Constraint) -> DenseFactor | None:
    """A part's weights between 0 and 1, and the logarithm of their divisor.

    None if the smallest nonzero weight relative to the greatest is below :data:`LEAST_WEIGHT`.
    """
    if isinstance(part, Constraint):
        return DenseFactor(part.scope, part.to_array(problem.sizes).astype(np.float64), 0.0)
    values, feasible = part.to_array(problem.sizes)
    if not feasible.any():
        return DenseFactor(part.scope, np.zeros(values.shape), 0.0)
    if problem.semiring == LOG_SUM_EXP:
        greatest = float(values[feasible].max())
        weights, logarithm = np.where(feasible, np.exp(np.minimum(values - greatest, 0.0)), 0.0), greatest
    else:
        exponent = math.frexp(float(values[feasible].max()))[1]
        weights = np.where(feasible, np.ldexp(values.astype(np.float64), -exponent), 0.0)
        logarithm = exponent * math.log(2)
        feasible = feasible & (values != 0)
    if feasible.any() and weights[feasible].min() < LEAST_WEIGHT:
        return None
    return DenseFactor(part.scope, weights, logarithm)


def adds_up_to_one(weights: NDArray[np.float64], axis: int, logarithm: float) -> bool:
    """Whether weights, given with the logarithm of their scale, sum to 1 along an axis everywhere."""
    if abs(logarithm) > LARGEST_LOGARITHM:  # the greatest weight is between a half and 1
        return False
    sums = weights.sum(axis=axis) * math.exp(logarithm)
    margin = ROUNDINGS * weights.shape[axis] * float(np.finfo(np.float64).eps)
    return bool((np.abs(sums - 1.0) <= margin).all())
