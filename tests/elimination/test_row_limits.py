"""Rows that a plan predicts where tables list few assignments over many variables."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.elimination.orders.order import judge_order
from oocbe.elimination.orders.primal_graph import row_limits
from oocbe.elimination.plan.plan import make_plan
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from tests.helpers.effort import examples


def sparse_problem(seed: int, count: int, arity: int, functions: int, rows: int) -> Problem:
    """Tables of few rows, all of them satisfied by one assignment."""
    random = np.random.default_rng(seed)
    made = []
    for f in range(functions):
        start = f * (count - arity) // max(1, functions - 1)
        scope = tuple(range(start, start + arity))
        tuples = np.unique(np.vstack([np.zeros(arity, int), random.integers(0, 2, size=(rows, arity))]), axis=0)
        made.append(Function(scope, tuples, random.integers(0, 9, size=len(tuples))))
    return Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), tuple(made))


@settings(max_examples=examples(40))
@given(st.integers(0, 10**6), st.integers(3, 6), st.integers(1, 5), st.integers(1, 12))
def test_no_message_has_more_rows_than_its_limit(seed, arity, functions, rows):
    """The join of all inputs of a bucket, by brute force, stays below what their rows permit."""
    problem = sparse_problem(seed, 10, arity, functions, rows)
    order = np.random.default_rng(seed).permutation(10).tolist()
    choice = judge_order(problem, order, "given", seed)
    complete = [2.0 ** len(s) for s in choice.separators]
    limits = row_limits(problem, problem.functions, order, choice.separators, complete)
    grid = np.stack(np.meshgrid(*[[0, 1]] * 10, indexing="ij"), axis=-1).reshape(-1, 10)
    position = {v: place for place, v in enumerate(order)}
    for place, separator in enumerate(choice.separators):
        # Functions below a bucket are those from which the elimination leads to it.
        below, reached = [], {place}
        for earlier in reversed(range(place)):
            onward = min((position[u] for u in choice.separators[earlier]), default=None)
            if onward in reached:
                reached.add(earlier)
        below = [f for f in problem.functions if min(position[v] for v in f.scope) in reached]
        keep = np.ones(len(grid), bool)
        for f in below:
            codes = grid[:, f.scope] @ (1 << np.arange(len(f.scope)))
            keep &= np.isin(codes, f.tuples @ (1 << np.arange(len(f.scope))))
        found = len(np.unique(grid[keep][:, separator], axis=0)) if separator else int(keep.any())
        assert found <= limits[place] * (1 + 1e-9)


def test_the_plan_predicts_what_tables_over_many_variables_list():
    plan = make_plan(sparse_problem(1, 120, 80, 2, 200), SolveOptions(semiring=oocbe.model.semiring.COUNTING))
    assert plan.largest.predicted_rows <= 201**2


def test_nothing_is_refused_for_rows_that_hidden_tables_may_forbid(tmp_path):
    """Sparse tables over three variables leave next to nothing of what the estimate predicts."""
    random = np.random.default_rng(4)
    count = 30
    made = []
    for _ in range(120):
        scope = tuple(sorted(random.choice(count, 3, replace=False).tolist()))
        tuples = np.unique(np.vstack([np.zeros(3, int), random.integers(0, 4, size=(6, 3))]), axis=0)
        made.append(Function(scope, tuples, np.zeros(len(tuples), int)))
    problem = Problem(tuple(Variable(f"x{v}", 4) for v in range(count)), tuple(made))
    options = {"semiring": "counting", "order_seconds": 0, "max_disk": 1 << 20}
    plan = make_plan(problem, SolveOptions(semiring=oocbe.model.semiring.COUNTING, order_seconds=0, max_disk=1 << 20))
    assert plan.least_disk_bytes > plan.disk
    assert plan.disk_refusal == ""
    assert oocbe.solve(problem, **options).value >= 1
    assert math.isfinite(plan.largest.predicted_rows)


@pytest.mark.parametrize("allowed", [True, False])
def test_lists_of_forbidden_tuples_limit_nothing(allowed):
    constraint = oocbe.Constraint((0, 1, 2), np.array([[0, 0, 0]]), allowed)
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(3)), (), (constraint,))
    limits = row_limits(problem, problem.constraints, [0, 1, 2], [(1, 2), (2,), ()], [4.0, 2.0, 1.0])
    assert limits == ([1.0, 1.0, 1.0] if allowed else [4.0, 2.0, 1.0])
