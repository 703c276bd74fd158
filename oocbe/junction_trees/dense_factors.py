"""Factors of a problem written out: an array of weights with an axis a variable, and a logarithm beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import LOG_SUM_EXP

MOST_CELLS = 1 << 20
"""Cells of a factor that is written out for a set of observed variables."""

ROUNDINGS = 4
"""Roundings by which each number of conditional probabilities may be off, for their sum to be 1."""


LARGEST_LOGARITHM = 700.0
"""Whose exponential is a float64."""


@dataclass(frozen=True, eq=False)
class DenseFactor:
    """A function or constraint, written out.

    Attributes
    ----------
    scope : variable indices. weights : float64, an axis a variable of the scope, between 0 and 1.
    logarithm : natural, of what the weights were divided by.
    """

    scope: tuple[int, ...]
    weights: NDArray[np.float64]
    logarithm: float


LEAST_WEIGHT = 2.0**-1000
"""Of a part's weights beside its greatest: less comes near the end of float64, where a weight becomes a zero."""


def dense_factor(problem: Problem, part: Function | Constraint) -> DenseFactor | None:
    """A part's weights between 0 and 1, and the logarithm of what they were divided by.

    None where the least weight is so far below the greatest that no float64 holds both.
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
    """Whether weights, whose scale's logarithm is given, add up to 1 along an axis, wherever along the others."""
    if abs(logarithm) > LARGEST_LOGARITHM:  # the greatest weight is between a half and 1
        return False
    sums = weights.sum(axis=axis) * math.exp(logarithm)
    margin = ROUNDINGS * weights.shape[axis] * float(np.finfo(np.float64).eps)
    return bool((np.abs(sums - 1.0) <= margin).all())
