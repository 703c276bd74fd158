"""Problems with values removed: every assignment that is left keeps its value, and every one that is gone was bad."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.bounds.estimators import constant_source
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.propagation.value_removal import remove_values
from tests.helpers.bound_problems import check_message, random_message
from tests.helpers.bound_sources import bound_sources
from tests.helpers.effort import examples
from tests.helpers.small_problems import (
    all_values,
    brute_force,
    check,
    eliminate,
    make_problem,
    structures,
    without_bound,
)


@settings(max_examples=examples(200))
@given(structures((MIN_SUM,), largest_domain=4), st.floats(0, 0.7))
def test_values_are_kept(structure, share):
    problem = without_bound(make_problem(structure))
    random = np.random.default_rng(structure["seed"])
    pairs = [(v, value) for v, size in enumerate(problem.sizes) for value in range(size)]
    removed = [pair for pair in pairs if random.random() < share]
    made = remove_values(problem, removed)
    total, feasible = all_values(problem)
    left = feasible.copy()
    for v, value in removed:
        np.moveaxis(left, v, 0)[value] = False
    if made.is_infeasible:
        assert not left.any()
        return
    seen = np.zeros_like(left)
    for assignment in itertools.product(*map(range, made.problem.sizes)):
        lifted = made.lift(assignment)
        value = made.problem.evaluate(assignment)
        assert (value is not None) == left[lifted]
        assert value is None or abs(value - total[lifted]) < 1e-9
        seen[lifted] = True
    assert not (left & ~seen).any()


@settings(max_examples=examples(200))
@given(structures((MIN_SUM,), largest_domain=4), st.sampled_from([1, 3, 20]))
def test_bounds_and_fixed_values_carry_over(structure, above):
    problem = without_bound(make_problem(structure))
    expected = brute_force(problem)
    upper_bound = (0 if expected is None else expected) + above
    for source in bound_sources(problem.below(upper_bound), 0.01):
        made = remove_values(problem, source.fixed_values(upper_bound))
        if made.is_infeasible:
            assert expected is None
            continue
        left = made.problem.below(upper_bound)
        bounds = source.restricted(left, made.kept)
        random = np.random.default_rng(structure["seed"])
        if left.variables:
            assert source.root <= bounds.root + 1e-9
            order = random.permutation(len(left.variables)).tolist()
            check_message(left, bounds, *random_message(left, structure["seed"]))
            value, assignment = eliminate(left, order, bounds=bounds)
            if expected is not None:
                check(problem, value, made.lift(assignment), expected)
            else:
                assert value is None


def test_bounds_of_floats_hold_for_the_integers_left():
    """Multipliers are fractions, and rounding towards 0 would raise a negative bound."""
    random = np.random.default_rng(0)
    names, scopes = "abcd", ((1, 2), (2, 3), (1, 3))
    for seed in range(20):
        functions = [Function.from_array(scope, random.integers(-4, 4, size=(3, 3))) for scope in scopes]
        functions.append(Function((0,), [[0]], [-0.5], 0))
        problem = Problem(tuple(Variable(name, 3) for name in names), tuple(functions))
        made = remove_values(problem, [(0, 0), (0, 2)])
        assert made.problem.is_integral and not problem.is_integral
        for source in bound_sources(problem, 0.1):
            check_message(made.problem, source.restricted(made.problem, made.kept), *random_message(made.problem, seed))


def test_bounds_carry_over_where_only_variables_with_one_value_go():
    """No value is removed, but the numbers of the variables change."""
    functions = (Function.from_array((1, 2), [[5, 6, 7]] * 2), Function.from_array((2,), [1, 0, 4]))
    problem = Problem((Variable("a", 1), Variable("b", 2), Variable("c", 3)), functions)
    made = remove_values(problem, [])
    assert not made.is_infeasible
    assert made.problem.sizes == (2, 3)
    bound = constant_source(problem).restricted(made.problem, made.kept).for_message(0b01, [1])
    assert {v: len(table) for v, table in bound.tables.items()} == {1: 3}
    assert made.lift((1, 2)) == (0, 1, 2)
