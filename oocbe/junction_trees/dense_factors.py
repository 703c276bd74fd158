"""Factors of a problem as dense arrays: an axis for each variable, and the logarithm of a common scale.

A variable that is no target and occurs in one factor only is *barren* if that factor sums to 1 over it for all values
of the other variables. Variable and factor can then be removed, and perhaps the factor's other variables
(Shachter 1986).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
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

    scope : variable indices. weights : float64, an axis for each variable of the scope, between 0 and 1.
    logarithm : natural, of the divisor of the weights.
    """

    scope: tuple[int, ...]
    weights: NDArray[np.float64]
    logarithm: float


LEAST_WEIGHT = 2.0**-1000
"""Smallest nonzero weight of a part relative to its greatest. Below it, a scaled weight may underflow to zero."""


def dense_factor(problem: Problem, part: Function | Constraint) -> DenseFactor | None:
    """A part's weights between 0 and 1 and their divisor's logarithm; None: some below :data:`LEAST_WEIGHT`."""
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


def relevant(
    scopes: Sequence[Collection[int]],
    factors: Iterable[int],
    asked: Collection[int],
    sums_to_one: Callable[[int, int], bool],
) -> tuple[set[int], list[int]]:
    """The factors that remain without barren variables, and these variables in order of their removal.

    scopes : variables of each factor. factors : numbers of the present factors. asked : variables to keep.
    sums_to_one : whether a factor, given by number, sums to 1 over a variable for all values of its others.
    """
    left = set(factors)
    uses: dict[int, set[int]] = {}
    for f in left:
        for v in scopes[f]:
            uses.setdefault(v, set()).add(f)
    gone: list[int] = []
    waiting = [v for v, own in uses.items() if len(own) == 1 and v not in asked]
    while waiting:
        v = waiting.pop()
        if len(uses[v]) != 1:
            continue
        (f,) = uses[v]
        if not sums_to_one(f, v):
            continue
        left.discard(f)
        gone.append(v)
        for u in scopes[f]:
            uses[u].discard(f)
            if u != v and len(uses[u]) == 1 and u not in asked:
                waiting.append(u)
    return left, gone


def components(scopes: Sequence[Collection[int]], factors: Iterable[int]) -> list[set[int]]:
    """Connected components of factors that share variables; each factor has a variable."""
    above: dict[int, int] = {}  # union-find: by variable, its parent; a root is its own

    def top(v: int) -> int:
        while above.setdefault(v, v) != v:
            above[v] = above[above[v]]
            v = above[v]
        return v

    known = sorted(factors)
    for f in known:
        first, *others = scopes[f]
        for v in others:
            above[top(v)] = top(first)
    found: dict[int, set[int]] = {}
    for f in known:
        found.setdefault(top(next(iter(scopes[f]))), set()).add(f)
    return list(found.values())
