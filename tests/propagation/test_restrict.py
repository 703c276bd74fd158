"""Problems with values removed: every assignment that is left keeps its value, and every one that is gone was bad."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.elimination.row_pruning.pruner import RowPruner
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.propagation.value_removal import remove_values
from tests.helpers.bound_sources import ExactSource
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
    source = ExactSource(problem, structure["seed"], upper_bound)
    made = remove_values(problem, source.fixed_values(upper_bound))
    if made.is_infeasible:
        assert expected is None
        return
    order = np.random.default_rng(structure["seed"]).permutation(len(made.problem.variables)).tolist()
    pruner = RowPruner(made.problem, made.source(source), upper_bound)
    value, assignment = eliminate(made.problem, order, pruner=pruner)
    if expected is None:
        assert value is None or (not made.problem.variables and value >= upper_bound)
        return
    check(problem, value, made.lift(assignment), expected)


def test_bounds_carry_over_where_only_variables_with_one_value_go():
    """No value is removed, but the numbers of the variables change."""
    problem = Problem(
        (Variable("a", 1), Variable("b", 2), Variable("c", 3)), (Function.from_array((1, 2), [[5, 6, 7]] * 2),)
    )
    source = ExactSource(problem, 1, 100)
    made = remove_values(problem, [])
    assert not made.is_infeasible
    assert made.problem.sizes == (2, 3)
    bound = made.source(source).for_message(0b01, [1])
    assert all(len(table) == 3 for table in bound.tables.values())
    assert made.lift((1, 2)) == (0, 1, 2)
