"""Problems whose bound forbids assignments as ones without it, and the hard part of problems.

The hard part is the constraints that determine the feasible assignments, without their values.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.preparation.prepare import without_zeros
from oocbe.elimination.preparation.ranges import EXACT_SUM, FRACTION, are_fractions, rounding_margin
from oocbe.elimination.reformulation import negated
from oocbe.errors import UnsupportedError
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem, lists_all
from oocbe.model.semiring import MAX_SUM, SUM_PRODUCT, Combination, Marginalisation
from oocbe.runtime.deadline import looked


def without_upper_bound(problem: Problem) -> Problem:
    """A problem without its upper or lower bound: what exceeds it by itself becomes a hard constraint.

    The constraint has no variable where every sum exceeds the bound.

    Raises UnsupportedError: values that are each below the bound can still add up to it, or floats come so near to it
    that rounding decides.
    """
    if problem.lower_bound is not None:
        if problem.semiring != MAX_SUM:
            raise UnsupportedError(
                f"{problem.name}: a lower bound has a meaning in max-sum only, not {problem.semiring}"
            )
        try:
            return negated(without_upper_bound(negated(problem)))
        except UnsupportedError:
            raise _refusal(problem) from None
    bound = problem.upper_bound
    if bound is None:
        return problem
    if (
        problem.semiring.combination is not Combination.ADD
        or problem.semiring.marginalisation is not Marginalisation.MIN
    ):
        raise UnsupportedError(f"{problem.name}: an upper bound has a meaning in min-sum only, not {problem.semiring}")
    given = tuple(
        replace(f, default=None) if len(f.values) == math.prod(problem.sizes[v] for v in f.scope) else f
        for f in looked(problem.functions)
    )
    problem = replace(problem, functions=given)  # a default that nothing has is no sum's part
    least = problem.extremes.least.tolist()
    if sum(least, problem.constant) >= bound:
        # Nothing is below it: rounding never makes a sum of larger values the smaller one.
        nothing = Constraint((), np.zeros((0, 0), dtype=np.int64), allowed=True)
        return replace(problem, constraints=(*problem.constraints, nothing), upper_bound=None)
    margin = rounding_margin(problem)
    # The bound as a number of the kind that sums are.
    if problem.is_integral:
        bound = math.ceil(bound)
    elif are_fractions(problem):
        bound = math.ceil(min(bound, EXACT_SUM) / FRACTION) * FRACTION
    slack = bound - problem.constant - sum(least)
    # Floats of which one function alone has several values are added up as the problem itself does.
    varying = int((problem.extremes.greatest > problem.extremes.least).sum())
    is_alone = varying <= 1 and not problem.is_integral
    only_adds = min([problem.constant, *least]) >= 0
    functions: list[Function] = []
    constraints = list(problem.constraints)
    for f, low in looked(zip(problem.functions, least, strict=True)):
        listed = f.values if f.default is None else np.append(f.values, f.default)
        if is_alone:
            is_below = _sums(problem, f, listed) < bound
        else:
            # What reaches the bound by itself does so whatever is added, in any order and however it is rounded.
            is_out = only_adds & (listed >= bound)
            is_below = ~is_out & (listed - low < slack if margin else listed < low + slack)
            if margin and (~is_out & (np.abs(listed - low - slack) <= margin)).any():
                raise _refusal(problem)
        keep = is_below[: len(f.values)]
        default = None if f.default is None or not is_below[-1] else f.default
        if not keep.all() and default is not None:
            constraints.append(Constraint(f.scope, f.tuples[~keep], allowed=False))
        if keep.all() and default == f.default:
            functions.append(f)
        else:
            functions.append(Function(f.scope, f.tuples[keep], f.values[keep], default))
    found = replace(problem, functions=tuple(functions), constraints=tuple(constraints), upper_bound=None)
    if not is_alone and sum(found.extremes.greatest.tolist(), problem.constant) >= bound - margin:
        raise _refusal(problem)
    return found


def _sums(problem: Problem, varying: Function, values: NDArray[Any]) -> NDArray[Any]:
    """What assignments are worth by one function's values, as :meth:`Problem.evaluate` adds them up; all others have
    one value each."""
    total: Any = problem.constant
    for f, low in zip(problem.functions, problem.extremes.least.tolist(), strict=True):
        total = total + (values if f is varying else low)
    return np.asarray(total)


def _refusal(problem: Problem) -> UnsupportedError:
    bound, values = f"below its upper bound of {problem.upper_bound}", "smaller"
    if problem.lower_bound is not None:
        bound, values = f"above its lower bound of {problem.lower_bound}", "larger"
    return UnsupportedError(
        f"{problem.name}: only assignments {bound} count, and sums of {values} values can reach it, which this task "
        "cannot tell apart; use a problem without a bound, or a wider one"
    )


def what_forbids(problem: Problem) -> Problem:
    """The problem without the functions and constraints that every assignment satisfies: variables that share no other
    scope are counted separately.

    Zeros of products, and single values beyond a bound, become constraints.

    Raises UnsupportedError: an upper bound that sums can reach.
    """
    problem = without_zeros(without_upper_bound(problem))
    functions, constraints = problem.functions, problem.constraints
    forbids = ~(problem.extremes.has_default | lists_all(functions, problem.sizes))
    is_allowed = np.fromiter((c.allowed for c in constraints), dtype=np.bool_, count=len(constraints))
    has_rows = np.fromiter((len(c.tuples) > 0 for c in constraints), dtype=np.bool_, count=len(constraints))
    excludes = np.where(is_allowed, ~lists_all(constraints, problem.sizes), has_rows)
    if forbids.all() and excludes.all():
        return problem
    return replace(
        problem,
        functions=tuple(f for f, kept in zip(functions, forbids.tolist(), strict=True) if kept),
        constraints=tuple(c for c, kept in zip(constraints, excludes.tolist(), strict=True) if kept),
    )


def hard_part(problem: Problem) -> Problem:
    """The problem in which every feasible assignment is worth 1, as floating-point products; errors as above.

    Zeros of a product are forbidden by rows and constraints, never by values, which integer passes ignore.
    """
    problem = what_forbids(problem)
    functions = tuple(Function(f.scope, f.tuples, np.ones(len(f.values))) for f in looked(problem.functions))
    return replace(problem, functions=functions, constant=1.0, semiring=SUM_PRODUCT)
