"""Problems whose upper bound forbids assignments as ones without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oocbe.errors import UnsupportedError
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination, Marginalisation


def without_upper_bound(problem: Problem) -> Problem:
    """A problem without its upper bound: what exceeds it by itself becomes a hard constraint.

    Raises
    ------
    UnsupportedError : values that are each below the bound can still add up to it.
    """
    bound = problem.upper_bound
    if bound is None:
        return problem
    if (
        problem.semiring.combination is not Combination.ADD
        or problem.semiring.marginalisation is not Marginalisation.MIN
    ):
        raise UnsupportedError(f"{problem.name}: an upper bound has a meaning in min-sum only, not {problem.semiring}")
    least = [_extreme(f, min) for f in problem.functions]
    slack = bound - problem.constant - sum(least)
    functions: list[Function] = []
    constraints = list(problem.constraints)
    for f, low in zip(problem.functions, least, strict=True):
        keep = f.values - low < slack
        default = None if f.default is None or f.default - low >= slack else f.default
        if not keep.all() and default is not None:
            constraints.append(Constraint(f.scope, f.tuples[~keep], allowed=False))
        if keep.all() and default == f.default:
            functions.append(f)
        else:
            functions.append(Function(f.scope, f.tuples[keep], f.values[keep], default))
    if problem.constant + sum(_extreme(f, max) for f in functions) >= bound:
        raise UnsupportedError(
            f"{problem.name}: only assignments below its upper bound of {bound} count, and sums of smaller values can "
            "reach it, which this task cannot tell apart; use a problem without an upper bound, or a larger one"
        )
    return replace(problem, functions=tuple(functions), constraints=tuple(constraints), upper_bound=None)


def _extreme(f: Function, choose: Callable[[list[int | float]], int | float]) -> int | float:
    entries = f.values.tolist() if f.default is None else [*f.values.tolist(), f.default]
    return choose(entries) if entries else 0
