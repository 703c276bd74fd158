"""A problem's hard part: the constraints that determine the feasible assignments, without their values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oocbe.elimination.preparation.upper_bound import without_upper_bound
from oocbe.elimination.preparation.zeros import without_zeros
from oocbe.model.extremes import lists_all
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import SUM_PRODUCT
from oocbe.runtime.deadline import looked


def what_forbids(problem: Problem) -> Problem:
    """The problem without the functions and constraints that every assignment satisfies: variables that share no other
    scope are counted separately.

    Zeros of products, and single values beyond a bound, become constraints.

    Raises
    ------
    UnsupportedError : an upper bound that sums can reach.
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
