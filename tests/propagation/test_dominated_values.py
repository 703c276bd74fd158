"""Long domains lose values that another value dominates; the optimum stays, and tasks that need all rows keep them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oocbe
from oocbe import Constraint, Function, LinearConstraint, Problem, Variable
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.propagation import dominated_values
from oocbe.propagation.dominated_values import UndominatedProblem, without_dominated
from tests.helpers.small_problems import all_values, brute_force


def conflicts(seed: int, sizes: list[int], semiring=MIN_SUM, is_integral: bool = True) -> Problem:
    """Costs of values, and intervals of values of two variables that exclude one another, as of observations."""
    rng = np.random.default_rng(seed)
    functions, constraints = [], []
    for v, size in enumerate(sizes):
        values = rng.integers(-2, 3, size)
        functions.append(Function.from_array((v,), values if is_integral else values / 4))
    for u in range(len(sizes)):
        for v in range(u):
            width, shift = rng.integers(1, 5), rng.integers(-6, 6)
            rows = [(x, y) for x, y in product(range(sizes[v]), range(sizes[u])) if 0 <= x - y + shift < width]
            if rows and rng.random() < 0.8:
                constraints.append(Constraint((v, u), np.array(rows)))
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    return Problem(variables, tuple(functions), tuple(constraints), semiring=semiring, name="conflicts")


@given(st.integers(0, 1 << 32), st.sampled_from([MIN_SUM, MAX_SUM]), st.booleans(), st.integers(0, 3))
def test_the_optimum_stays(seed, semiring, is_integral, kind):
    rng = np.random.default_rng(seed)
    problem = conflicts(seed, [17, *rng.integers(1, 6, 3).tolist()], semiring, is_integral)
    if kind == 1:
        permitted = Constraint((0, 1), np.array([(x, 0) for x in range(0, 17, 2)]), allowed=True)
        problem = replace(problem, constraints=(*problem.constraints, permitted))
    elif kind == 2:
        table = rng.integers(0, 3, [problem.sizes[v] for v in (0, 2)])
        problem = replace(problem, functions=(*problem.functions, Function.from_array((0, 2), table)))
    left = without_dominated(problem, SolveOptions())
    assert brute_force(left.problem) == brute_force(problem)
    result = oocbe.solve(problem)
    assert result.value == brute_force(problem)
    if result.assignment is not None:
        assert problem.evaluate(result.assignment) == result.value


def test_few_of_many_times_are_left_and_the_result_says_so():
    problem = conflicts(3, [60, 50, 40])
    left = without_dominated(problem, SolveOptions())
    assert isinstance(left, UndominatedProblem)
    assert sum(map(len, left.kept)) < 20
    (step,) = (step for step in oocbe.solve(problem).presolve if step.name == "dominated values")
    assert step.values >= left.removed > 130


@pytest.mark.parametrize("options", [{"dominance": False}, {"tables": "complete"}])
def test_values_stay_where_every_assignment_is_needed(options):
    problem = conflicts(3, [60, 50, 40])
    assert without_dominated(problem, SolveOptions(**options)).problem is problem
    kept = [best for best, _ in oocbe.k_best(problem, 5).assignments]
    values, feasible = all_values(problem)
    assert kept == sorted(values[feasible].tolist())[:5]


def test_values_that_a_linear_constraint_counts_stay():
    problem = conflicts(3, [60, 50, 40])
    limited = replace(problem, linear_constraints=(LinearConstraint((0, 1), (np.arange(60), np.arange(50)), 20),))
    left = without_dominated(limited, SolveOptions())
    assert (*map(len, left.kept[:2]),) == (60, 50)


@pytest.mark.parametrize("limit", ["MOST_CELLS", "MOST_WORK"])
def test_very_many_values_and_conflicts_are_left_alone(monkeypatch, limit):
    monkeypatch.setattr(dominated_values, limit, 1)
    problem = conflicts(3, [60, 50, 40])
    assert without_dominated(problem, SolveOptions()).problem is problem
