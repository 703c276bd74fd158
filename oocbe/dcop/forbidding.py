"""Detection of costs that stand for "forbidden", and their conversion to hard constraints.

Files of pyDcop use 10,000 or the like for forbidden assignments, which makes their tables dense without need. Where no
assignment without the largest cost can be as bad as one with it, forbidding that cost keeps the optimum, unless the
problem becomes infeasible; then the original problem is solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import Marginalisation
from oocbe.runtime.deadline import looked

CLEAR = 10
"""Least ratio of a cost that stands for infinity to all other costs; smaller ones are ordinary costs."""

MARGIN = 1e-9
"""Least relative difference between sums of floats, far above their rounding errors."""


def forbidding(problem: Problem) -> tuple[Problem, int | float] | None:
    """The problem with its largest cost (or least utility) forbidden, and that value; None for an ordinary cost.

    For problems whose values are added and minimised or maximised. The optimum is kept while the result is feasible.
    """
    sign = -1 if problem.semiring.marginalisation is Marginalisation.MAX else 1
    listed = [_values(f, sign) for f in looked(problem.functions)]
    largest = max((max(values) for values in listed if values), default=0)
    if not any(listed) or largest <= 0:
        return None
    soft = [[value for value in values if value < largest] for values in listed]
    if any(values and not others for values, others in zip(listed, soft, strict=True)):
        return None
    if largest < CLEAR * max(abs(value) for values in soft for value in values):
        return None
    least = [min(values, default=0) for values in soft]
    most = [max(values, default=0) for values in soft]
    with_one = largest + sum(least) - max(low for low, values in zip(least, listed, strict=True) if largest in values)
    margin = 0 if problem.is_integral else MARGIN * (abs(largest) + sum(map(abs, least)) + sum(map(abs, most)))
    if with_one <= sum(most) + margin:
        return None
    functions: list[Function] = []
    constraints: list[Constraint] = []
    for f in looked(problem.functions):
        found, more = _without(f, sign, largest)
        functions.append(found)
        constraints += more
    forbidden = replace(problem, functions=tuple(functions), constraints=(*problem.constraints, *constraints))
    return forbidden, sign * largest


def _values(f: Function, sign: int) -> list[int | float]:
    """Least, largest and second largest value, as costs."""
    distinct = np.unique(f.values)
    found: list[int | float] = [sign * value.item() for value in (*distinct[:2], *distinct[-2:])]
    return found if f.default is None else [*found, sign * f.default]


def _without(f: Function, sign: int, largest: float) -> tuple[Function, Sequence[Constraint]]:
    """The function without rows of the largest cost, and a constraint that forbids them where it has a default."""
    is_hard = f.values == sign * largest
    kept = replace(f, tuples=f.tuples[~is_hard], values=f.values[~is_hard])
    if f.default is None:
        return kept, ()
    if sign * f.default == largest:
        return replace(kept, default=None), ()
    return kept, (Constraint(f.scope, f.tuples[is_hard]),) if is_hard.any() else ()
