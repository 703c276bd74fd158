"""Penalties that no optimal assignment needs to pay are forbidden; those that one may need stay."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import oocbe
from oocbe.elimination.preparation.packing import is_packing
from oocbe.elimination.preparation.penalties import forbid_penalties
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, SUM_PRODUCT
from oocbe.model.settings.options import SolveOptions
from tests.helpers.bound_problems import anything, costly_photographs
from tests.helpers.effort import examples

AUTO = SolveOptions()
PAIR = tuple(Variable(name, 2) for name in "ab")


def values_of(problem: Problem) -> dict[tuple[int, ...], int | float]:
    """What every feasible assignment is worth."""
    every = product(*map(range, problem.sizes))
    return {a: value for a in every if (value := problem.evaluate(a)) is not None}


def maximised(problem: Problem) -> Problem:
    """The same with all values negated."""
    functions = [
        replace(f, values=-f.values, default=None if f.default is None else -f.default) for f in problem.functions
    ]
    return replace(problem, functions=tuple(functions), constant=-problem.constant, semiring=MAX_SUM, upper_bound=None)


def listed(problem: Problem) -> Problem:
    """The same with every row of every function listed."""
    full = [Function.from_array(f.scope, f.to_array(problem.sizes)[0]) for f in problem.functions]
    return replace(problem, functions=tuple(full))


@pytest.mark.parametrize("make", [costly_photographs, anything])
def test_the_optimum_stays_and_what_is_left_keeps_its_value(make):
    made = 0
    for seed in range(examples(40)):
        whole = make(seed)
        for problem in (whole, maximised(whole)):
            left = forbid_penalties(problem, AUTO).problem
            if left is problem:
                continue
            made += 1
            before, after = values_of(problem), values_of(left)
            best = max if problem.semiring == MAX_SUM else min
            assert after.items() <= before.items() if problem.is_integral else after.keys() <= before.keys()
            assert bool(before) == bool(after)
            if before:
                assert best(after.values()) == pytest.approx(best(before.values()), rel=1e-9, abs=1e-9)
    assert made >= (examples(32) if make is costly_photographs else 0)


@pytest.mark.parametrize("form", [lambda p: p, listed, maximised, lambda p: maximised(listed(p))])
@pytest.mark.parametrize(("penalty", "is_forbidden"), [(4, True), (3, True), (2, False)])
def test_a_penalty_is_forbidden_where_avoiding_it_costs_no_more(form, penalty, is_forbidden):
    weights = (Function((0,), [[0]], [3], 0), Function((1,), [[0]], [9], 0))
    problem = form(Problem(PAIR, (*weights, Function((0, 1), [[1, 1]], [penalty], 0))))
    left = forbid_penalties(problem, AUTO).problem
    assert ((1, 1) not in values_of(left)) is is_forbidden
    assert oocbe.solve(problem).value == (-1 if problem.semiring == MAX_SUM else 1) * min(penalty, 3)


def test_nothing_is_harmless_that_something_else_is_against():
    weights = (Function((0,), [[0]], [3], 0), Function((1,), [[0]], [9], 0))
    whole = (*weights, Function((0, 1), [[1, 1]], [50], 0))
    capacity = LinearConstraint((0, 1), (np.array([1, 0]), np.array([1, 0])), 0)
    against = [
        Problem(PAIR, whole, (Constraint((0, 1), [[0, 0], [0, 1], [1, 0]]),)),
        Problem(PAIR, whole, (Constraint((0,), [[0]]), Constraint((1,), [[0]]))),
        Problem(PAIR, whole, (Constraint((0, 1), [[1, 1]], allowed=True),)),
        Problem(PAIR, whole, (), (capacity,)),
        Problem(PAIR, (*whole, Function((0,), [[1]], [0]), Function((1,), [[1]], [0]))),
        Problem(PAIR, (*whole, Function((0, 1), [[0, 0], [0, 1], [1, 0]], [60] * 3, 0))),
    ]
    for problem in against:
        assert forbid_penalties(problem, AUTO).problem is problem
        assert oocbe.solve(problem).value == 50


def test_only_questions_for_one_optimal_assignment_forbid_any():
    problem = Problem(PAIR, (Function((0,), [[0]], [3], 0), Function((0, 1), [[1, 1]], [3], 0)))
    assert forbid_penalties(problem, AUTO).problem is not problem
    assert forbid_penalties(problem, replace(AUTO, dominance=False)).problem is problem
    assert forbid_penalties(problem, replace(AUTO, tables="complete")).problem is problem
    sums = replace(problem, semiring=SUM_PRODUCT)
    assert forbid_penalties(sums, AUTO).problem is sums
    assert oocbe.count(problem).value == 4
    assert len(oocbe.k_best(problem, 4).assignments) == 4


def test_values_near_the_end_of_int64_stay_as_they_are():
    problem = Problem(PAIR, (Function((0,), [[0]], [-(2**60)], 0), Function((0, 1), [[1, 1]], [2**60], 0)))
    assert forbid_penalties(problem, AUTO).problem is problem
    assert oocbe.solve(problem).value == -(2**60)


def test_penalties_that_mean_constraints_make_a_problem_of_packing():
    whole = costly_photographs(3)
    costs = [replace(f, values=np.full_like(f.values, 10**7)) if len(f.scope) > 1 else f for f in whole.functions]
    problem = replace(whole, functions=tuple(costs))
    assert not is_packing(problem)
    assert is_packing(forbid_penalties(problem, AUTO).problem)


def test_a_table_of_more_assignments_than_floats_can_count():
    wide = Function(tuple(range(1100)), np.array([[0] * 1100, [1] * 1100]), np.array([0, 5]))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(1100)), (wide,))
    assert forbid_penalties(problem, AUTO).problem is problem
