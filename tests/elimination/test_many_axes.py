"""Scopes over more variables than an array has axes, most of them with one value: solved like narrow ones."""

from __future__ import annotations

import numpy as np
import pytest

import oocbe
from oocbe import MAX_PRODUCT, MAX_SUM, MIN_SUM, Constraint, Function, LinearConstraint, Problem, Variable
from oocbe.api.tasks.verbs import run_task

COUNT = 70
VARIABLES = tuple(Variable(f"x{v}", size) for v, size in enumerate([1] * (COUNT - 2) + [2, 3]))
SCOPE = tuple(range(COUNT))
TUPLES = np.array([[0] * (COUNT - 2) + [a, b] for a in range(2) for b in range(3)])
FAST = {"order_seconds": 0, "backend": "cpu", "incumbent_seconds": 0.01}


def wide_problem(semiring, default) -> Problem:
    """Worth 3, 4, 5, default or nothing, forbidden, default or nothing; at most 2 by the linear constraint."""
    function = Function(SCOPE, TUPLES[:3], np.array([3, 4, 5]), default)
    forbidden = Constraint(SCOPE, TUPLES[4:5])
    coefficients = tuple(np.arange(v.size) for v in VARIABLES)
    linear = LinearConstraint(SCOPE, coefficients, 2)
    return Problem(VARIABLES, (function,), (forbidden,), (linear,), semiring=semiring, name="wide")


@pytest.mark.parametrize("bounds", ["auto", "none", "constant", "lp", "local-polytope"])
@pytest.mark.parametrize("default", [None, 2])
def test_wide_parts_are_solved(default, bounds):
    assert oocbe.solve(wide_problem(MIN_SUM, default), bounds=bounds, **FAST).value == (default or 3)
    assert oocbe.solve(wide_problem(MAX_SUM, default), bounds=bounds, **FAST).value == 5


@pytest.mark.parametrize("default", [None, 2])
def test_tasks_take_wide_parts(default):
    problem = wide_problem(MIN_SUM, default)
    unlimited = Problem(VARIABLES, problem.functions, problem.constraints, name="wide")
    assert run_task("count", problem, **FAST).value == (3 if default is None else 4)
    assert run_task("count-optimal", unlimited, **FAST).value == (1 if default is None else 2)
    assert len(run_task("kbest", unlimited, **FAST).assignments) == (3 if default is None else 5)
    marginals = run_task("marginals", unlimited, **FAST).marginals
    assert [m.tolist() for m in marginals[:2]] == [[1.0], [1.0]]


@pytest.mark.parametrize("cost_shifting", [False, True])
def test_mini_buckets_take_wide_parts(cost_shifting):
    problem = Problem(VARIABLES, wide_problem(MAX_PRODUCT, 2).functions, semiring=MAX_PRODUCT, name="wide")
    entry = oocbe.bound(problem, [1], cost_shifting=cost_shifting, **FAST).entries[0]
    assert entry.bound >= 5
    assert entry.incumbent == 5


def test_wide_parts_of_many_values_are_refused_with_their_size():
    variables = tuple(Variable(f"x{v}", 2) for v in range(COUNT))
    function = Function(SCOPE, np.zeros((1, COUNT), dtype=np.int64), np.array([3]), default=1)
    with pytest.raises(oocbe.UnsupportedError, match=r"a function over 70 variables leaves 1180591620717411303424"):
        oocbe.solve(Problem(variables, (function,), name="wide"), bounds="none", **FAST)


@pytest.mark.parametrize("count", [63, 64, 65])
def test_at_the_limit_of_arrays(count):
    variables = tuple(Variable(f"x{v}", 1) for v in range(count))
    function = Function(tuple(range(count)), np.zeros((1, count), dtype=np.int64), np.array([7]), None)
    problem = Problem(variables, (function,), name="wide")
    assert oocbe.solve(problem, bounds="lp", **FAST).value == 7
