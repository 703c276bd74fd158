"""Upper bounds at rounding distance from the optimum: result, evaluation and judge say the same."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import oocbe
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM
from tests.helpers.effort import in_turns

STEPS = (-3, -1, 0, 1, 2, 5)
"""Floats between the optimum and the bound."""


def costs(seed: int) -> Problem:
    """Floats over pairs and triples, whose sums in another order differ in the last digits."""
    random = np.random.default_rng(seed)
    scopes = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2, 4), (1, 3), (2,), (3,), (0, 1)]
    functions = tuple(Function.from_array(scope, random.normal(size=[3] * len(scope)) * 10) for scope in scopes)
    forbidden = (Constraint((0, 3), [[0, 0], [1, 2]]),) if seed % 2 else ()
    variables = tuple(Variable(f"x{v}", 3) for v in range(5))
    return Problem(variables, functions, forbidden, constant=float(random.normal()), name=f"costs {seed}")


def stepped(number: float, steps: int) -> float:
    for _ in range(abs(steps)):
        number = math.nextafter(number, math.copysign(math.inf, steps))
    return number


@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_the_course_lists_no_value_that_does_not_count(steps):
    """Of sums to maximise above a lower bound; the greatest one is a step above it, on it, or a step below."""
    random = np.random.default_rng(3)
    tables = [
        Function.from_array(pair, random.integers(-99, 99, (4, 4))) for pair in itertools.combinations(range(11), 2)
    ]
    problem = Problem(tuple(Variable(f"x{v}", 4) for v in range(11)), tuple(tables), semiring=MAX_SUM)
    best = oocbe.solve(problem, order_seconds=0).value
    result = oocbe.solve(replace(problem, lower_bound=best + steps), order_seconds=0)
    assert (result.status, result.value) == (("optimal", best) if steps < 0 else ("infeasible", None))
    assert {known.value for known in result.anytime} <= {None, result.value}
    assert all(known.value is None or known.bound is None or known.bound >= known.value for known in result.anytime)


@pytest.mark.parametrize(("bounds", "is_option"), in_turns(("auto", "none", "constant", "lp"), (False, True)))
def test_bounds_at_rounding_distance(bounds, is_option):
    agreed = {True: 0, False: 0}
    for seed in range(2):
        problem = costs(seed)
        values = [problem.evaluate(a) for a in itertools.product(*map(range, problem.sizes))]
        best = min(value for value in values if value is not None)
        for steps in STEPS:
            limit = stepped(best, steps)
            bounded = problem if is_option else problem.below(limit)
            given = {"ub": limit} if is_option else {}
            result = oocbe.solve(
                bounded, bounds=bounds, order_seconds=0, incumbent_seconds=0, bound_seconds=0.05, seed=seed, **given
            )
            agreed[best < limit] += 1
            if best < limit:
                assert (result.status, result.value, result.bound) == ("optimal", best, best)
                assert bounded.evaluate(result.assignment) == best
                assert oocbe.verify(bounded, result).accepted
            else:
                status, bound = ("nothing-better", limit) if is_option else ("infeasible", None)
                assert (result.status, result.value, result.assignment) == (status, None, None)
                assert result.bound == bound
    assert min(agreed.values()) > 0


@pytest.mark.parametrize("semiring", ["min-sum", "max-sum"])
def test_the_value_is_that_which_the_problem_evaluates_to(semiring):
    for seed in range(20):
        problem = costs(seed)
        result = oocbe.solve(problem, semiring=semiring, order_seconds=0, incumbent_seconds=0)
        assert result.value == result.bound == problem.evaluate(result.assignment)
