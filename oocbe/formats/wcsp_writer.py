"""Weighted CSPs in toulbar2's ``wcsp`` format, the writing side (:mod:`oocbe.formats.wcsp` describes the format)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError, ValueRangeError
from oocbe.model.model_checks import INT64
from oocbe.model.parts import Function, LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM


def render(problem: Problem) -> str:
    """The problem as a wcsp; variable names and value labels have no place in it.

    ``top`` is the problem's upper bound, or else one more than any feasible assignment can cost.

    Raises
    ------
    UnsupportedError : not a min-sum problem of integers, or one with negative costs.
    ValueRangeError : ``top`` leaves 64 bits.
    """
    if problem.semiring != MIN_SUM:
        raise UnsupportedError(
            f"{problem.name}: the wcsp format holds costs to add and minimise, not a {problem.semiring} problem; "
            "write products as uai, which toulbar2 reads as well"
        )
    if not problem.is_integral:
        raise UnsupportedError(f"{problem.name}: the wcsp format holds integers; scale and round the costs first")
    _refuse_negative(problem)
    top = _top(problem)
    bodies = [
        _render_table(f.scope, f.tuples, f.values, top if f.default is None else int(f.default))
        for f in problem.functions
    ]
    for c in problem.constraints:
        listed, default = (0, top) if c.allowed else (top, 0)
        bodies.append(_render_table(c.scope, c.tuples, np.full(len(c.tuples), listed, dtype=np.int64), default))
    bodies += [_render_linear(c, top) for c in problem.linear_constraints]
    if problem.constant:
        bodies.append(f"0 {problem.constant} 0")
    name = "_".join(problem.name.split()) or "problem"
    header = f"{name} {len(problem.variables)} {max(problem.sizes, default=0)} {len(bodies)} {top}"
    return "\n".join([header, " ".join(map(str, problem.sizes)), *bodies]) + "\n"


def _top(problem: Problem) -> int:
    if problem.upper_bound is None or math.isinf(problem.upper_bound):
        top = 1 + int(problem.constant) + sum(max(_costs(f), default=0) for f in problem.functions)
    else:
        top = math.ceil(problem.upper_bound)  # for integers, below 10.5 is below 11
    if not -(2**63) <= top < 2**63:
        raise ValueRangeError(f"{problem.name}: the upper bound {top} needs more than 64 bits")
    return top


def _refuse_negative(problem: Problem) -> None:
    # The format's definition asks for costs of at least 0, and toulbar2 gives wrong answers for some files without.
    parts = [(f"function {number}", min(_costs(f), default=0)) for number, f in enumerate(problem.functions)]
    for what, lowest in [*parts, ("the constant", int(problem.constant))]:
        if lowest < 0:
            raise UnsupportedError(
                f"{problem.name}: {what} has the cost {lowest}, the wcsp format holds costs of at least 0; "
                "shift the costs up first, and the optimum down again"
            )


def _costs(function: Function) -> list[int]:
    """The extremes of a function's costs, its default among them."""
    listed = [int(function.values.min()), int(function.values.max())] if len(function.values) else []
    return listed if function.default is None else [*listed, int(function.default)]


def _render_table(
    scope: tuple[int, ...], tuples: NDArray[np.int64], costs: NDArray[np.int64] | NDArray[np.float64], default: int
) -> str:
    if not scope:
        # The format's functions of arity 0 have a default only; a listed empty tuple is that default. They are added
        # up: of a top below 0, where nothing is feasible anyway, two would not reach it.
        return f"0 {max(0, int(costs[0]) if len(costs) else default)} 0"
    heading = f"{len(scope)} {' '.join(map(str, scope))} {default} {len(tuples)}"
    rows = np.column_stack([tuples, costs.astype(np.int64)]).tolist()
    return "\n".join([heading, *(" ".join(map(str, row)) for row in rows)])


def _render_linear(linear: LinearConstraint, top: int) -> str:
    """A ``knapsackp``, which asks for at least its capacity: all signs turn."""
    if not linear.scope:
        return f"0 {0 if linear.capacity >= 0 else max(0, top)} 0"
    largest = max([-int(own.min()) for own in linear.coefficients])
    if largest > INT64.max or not INT64.min <= -linear.capacity <= INT64.max:
        raise ValueRangeError(
            f"{linear.name}: turned into a lower limit, a coefficient or the capacity of {linear.capacity} needs more "
            "than the 64 bits that the wcsp format is read in; divide the constraint by a common factor"
        )
    weights = []
    for coefficients in linear.coefficients:
        values = np.flatnonzero(coefficients)
        pairs = [f"{value} {-int(coefficients[value])}" for value in values.tolist()]
        weights.append(" ".join([str(len(pairs)), *pairs]))
    scope = " ".join(map(str, linear.scope))
    return f"{len(linear.scope)} {scope} -1 knapsackp {-linear.capacity} {' '.join(weights)}"
