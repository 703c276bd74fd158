"""Assignments are evaluated again before they leave a solve: a wrong one on any path ends as an internal error."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import oocbe
from oocbe.api.solving import strategies as solving
from oocbe.bounds.mini_buckets import mini_buckets_bound
from oocbe.cli.main import app
from oocbe.elimination.solution_check import check_solution, value_of_assignment
from oocbe.errors import InternalError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, MIN_SUM
from oocbe.model.settings.option_values import Gap
from oocbe.model.settings.options import SolveOptions
from oocbe.search import bounded
from oocbe.search.subsolver import SharedBounds
from tests.helpers.effort import examples

FAST = {"order_seconds": 0, "backend": "cpu", "incumbent_seconds": 0}
CHAIN = tuple(Variable(name, 3) for name in "abcd")
COSTS = [[4, 1, 5], [9, 2, 6], [5, 3, 7]]


def chain(semiring=MIN_SUM, scale=1, **more) -> Problem:
    """Four variables in a row; the optimum is unique enough that another assignment has another value."""
    tables = [np.array(COSTS) * scale + shift for shift in (1, 2, 4)]
    functions = tuple(Function.from_array((v, v + 1), table) for v, table in enumerate(tables))
    return Problem(CHAIN, functions, semiring=semiring, name="chain", **more)


def worst(problem: Problem) -> tuple[int, ...]:
    """A feasible assignment that is not optimal."""
    values = {a: problem.evaluate(a) for a in itertools.product(range(3), repeat=4)}
    sign = -1 if problem.sense == "max" else 1
    return max((a for a, value in values.items() if value is not None), key=lambda a: sign * values[a])


@pytest.fixture
def wrong_pass(monkeypatch):
    """Makes every backward pass return the assignment given."""

    def use(assignment: tuple[int, ...]) -> None:
        for module in (solving, bounded):
            monkeypatch.setattr(module, "backward_pass", lambda *_: assignment)
        monkeypatch.setattr(mini_buckets_bound, "greedy_assignment", lambda *_: assignment)

    return use


@pytest.mark.parametrize("semiring", [MIN_SUM, MAX_SUM, MAX_PRODUCT])
@pytest.mark.parametrize("scale", [1, 0.7])
@pytest.mark.parametrize("bounds", ["none", "constant", "auto"])
def test_a_wrong_assignment_of_a_solve(semiring, scale, bounds, wrong_pass):
    problem = chain(semiring, scale)
    assert oocbe.solve(problem, bounds=bounds, **FAST).status == "optimal"
    wrong_pass(worst(problem))
    with pytest.raises(InternalError, match=r"chain: .* gave an assignment with the value .* evaluates it to"):
        oocbe.solve(problem, bounds=bounds, **FAST)


def test_an_infeasible_assignment_of_a_solve(wrong_pass):
    problem = chain()
    best = oocbe.solve(problem, **FAST).assignment
    problem = replace(problem, constraints=(Constraint((0, 3), np.array([[best[0], best[3]]])),))
    wrong_pass(best)
    with pytest.raises(InternalError, match="that is infeasible: constraint 0 forbids a="):
        oocbe.solve(problem, bounds="none", **FAST)


@pytest.mark.parametrize("scale", [1, 0.7])
@pytest.mark.parametrize("semiring", [MIN_SUM, MAX_PRODUCT])
def test_a_wrong_assignment_of_mini_buckets(semiring, scale, wrong_pass):
    problem = chain(semiring, scale)
    assert oocbe.bound(problem, 4, **FAST).status == "optimal"
    wrong_pass(worst(problem))
    with pytest.raises(InternalError, match="mini-buckets with z = 4"):
        oocbe.bound(problem, 4, **FAST)


def test_a_wrong_assignment_of_the_most_probable_explanation(wrong_pass):
    problem = chain(MAX_PRODUCT, 0.5)
    wrong_pass(worst(problem))
    with pytest.raises(InternalError, match="evaluates it to"):
        oocbe.most_probable_explanation(problem, bounds="none", **FAST)


def test_wrong_prefixes_of_the_best_assignments(monkeypatch):
    problem = chain()
    chosen = np.array([worst(problem)]), np.zeros(1, dtype=np.int64)
    monkeypatch.setattr("oocbe.api.tasks.k_best._prefixes", lambda *_: chosen)
    with pytest.raises(InternalError, match="evaluates it to"):
        oocbe.k_best(problem, 1, **FAST)


def test_a_wrong_value_is_not_taken_as_known():
    problem = chain()
    best = oocbe.solve(problem, **FAST)
    known = SharedBounds(problem, Gap(0, False), lambda *_: None)
    with pytest.raises(InternalError, match="a search gave an assignment"):
        known.offer(best.value - 1, best.assignment, "a search")
    assert known.assignment is None
    known.offer(best.value, best.assignment, "a search")
    assert known.value == best.value


def test_commands_end_with_exit_code_1(tmp_path, wrong_pass):
    file = tmp_path / "chain.wcsp"
    problem = chain()
    oocbe.write(problem, file)
    wrong_pass(worst(problem))
    done = CliRunner().invoke(app, ["solve", str(file), "--bounds", "none", "--order-seconds", "0"])
    assert done.exit_code == 1
    assert "internal error, please report it: InternalError" in done.stderr and done.stdout == ""


EXTREME = st.sampled_from([1e-300, 1e300, 3.0, 0.1, 1e-5, 5e-324])


@settings(max_examples=examples(80))
@given(st.lists(EXTREME, min_size=1, max_size=9))
def test_products_are_evaluated_without_leaving_the_range_on_the_way(factors):
    functions = tuple(Function.from_array((0,), [factor, 1.0]) for factor in factors)
    problem = Problem((Variable("x", 2),), functions, semiring=MAX_PRODUCT)
    exact = math.prod(map(Fraction, factors))
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.inf
    assert value_of_assignment(problem, (0,)) == pytest.approx(expected, rel=1e-13, abs=1e-323)
    check_solution(problem, expected, (0,), "brute force")
    if 1e-290 < expected < 1e290:
        with pytest.raises(InternalError):
            check_solution(problem, expected * (1 + 1e-9), (0,), "brute force")


def test_rounding_is_no_contradiction_and_a_digit_is():
    costs = (0.1, 0.2, 0.3, 1e9)
    functions = tuple(Function.from_array((0,), [cost, 0.0]) for cost in costs)
    capacity = LinearConstraint((0,), (np.array([0, 5]),), 4)
    problem = Problem((Variable("x", 2),), functions, linear_constraints=(capacity,), name="rounded")
    check_solution(problem, sum(reversed(costs)), (0,), "another order")
    for value in (1e9, 1e9 + 0.7, None):
        with pytest.raises(InternalError, match="another order"):
            check_solution(problem, value, (0,), "another order")
    with pytest.raises(InternalError, match="exceeds the capacity of 4"):
        check_solution(problem, 0.0, (1,), "another order")
    check_solution(problem, None, None, "nothing")


def test_an_assignment_that_reaches_the_upper_bound_by_the_order_of_floats_does_not_count():
    """The sum rounded once is below the bound that the problem's own sum, in its order, is equal to."""
    costs = (688.8437030500962, -91903.12436384449, -0.281446068743747, 93.55999898403428)
    functions = tuple(Function.from_array((0,), [cost, 1e6]) for cost in costs)
    problem = Problem((Variable("a", 2),), functions)
    own = problem.evaluate((0,))
    below = math.fsum(costs)
    assert below < own
    limited = problem.below(own)
    known = SharedBounds(limited, SolveOptions().gap, lambda *_: None)
    known.offer(below, (0,), "a search")
    assert known.value is None
    known = SharedBounds(problem.below(own + 1), SolveOptions().gap, lambda *_: None)
    known.offer(below, (0,), "a search")
    assert known.value == below
    assert oocbe.solve(limited).status == "infeasible"
