"""A problem whose values are multiplied and maximised as one whose costs are added and minimised: negative logarithms.

Products of thousands of probabilities leave the range of float64, their logarithms do not; and bounds, dominance and
mini-buckets work on sums. The price is rounding: a logarithm is off by half a unit in its last place.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.problem import Constraint, Function, Problem
from oocbe.semiring import MIN_SUM, Combination


def in_logarithms(problem: Problem) -> Problem:
    """A max-product problem in min-sum: the same feasible assignments, each costing minus the logarithm of its value.

    What has the value 0 becomes infeasible.

    Raises
    ------
    UnsupportedError : another semiring, or a negative value.
    """
    if not problem.semiring.selects or problem.semiring.combination is not Combination.MULTIPLY:
        raise UnsupportedError(f"{problem.name}: only max-product has logarithms to add, not {problem.semiring}")
    functions: list[Function] = []
    constraints = list(problem.constraints)
    for number, f in enumerate(problem.functions):
        default = None if not f.default else f.default
        if f.values.min(initial=0) < 0 or (default is not None and default < 0):
            raise UnsupportedError(f"{problem.name}: function {number} has a negative value, which has no logarithm")
        possible = f.values > 0
        if default is not None and not possible.all():
            constraints.append(Constraint(f.scope, f.tuples[~possible]))
        cost = None if default is None else -math.log(default)
        functions.append(Function(f.scope, f.tuples[possible], -np.log(f.values[possible].astype(np.float64)), cost))
    if problem.constant < 0:
        raise UnsupportedError(f"{problem.name}: the constant is negative, which has no logarithm")
    if problem.constant == 0:
        constraints.append(Constraint((), np.zeros((0, 0), dtype=np.int64), allowed=True))
    constant = -math.log(problem.constant) if problem.constant else 0.0
    return replace(
        problem,
        functions=tuple(functions),
        constraints=tuple(constraints),
        constant=constant + 0.0,
        semiring=MIN_SUM,
        upper_bound=None,
    )
