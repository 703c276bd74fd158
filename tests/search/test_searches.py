"""The searches of one problem together: when they are tried, what ends them, and what results and plans say of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import oocbe
from oocbe.api.solving import outlook, strategies
from oocbe.errors import TimeLimitError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.option_values import Gap
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search import bounded, presolve, searches, subsolver
from oocbe.search.depth_search import DepthSearch
from oocbe.search.searches import RowProblem, Searches
from oocbe.search.subsolver import FIRST_SECONDS, PARAMETERS, SharedBounds
from oocbe.stress import grid_network, random_network
from tests.helpers.bound_problems import anything, optimum
from tests.helpers.effort import examples

NO_GAP = SolveOptions().gap

A_STEP = replace(PARAMETERS, slice_seconds=1e-9)
"""Each slice is one step."""


@pytest.fixture(autouse=True)
def searches_alone(monkeypatch):
    """Without elimination of what reduction leaves, which would come first in problems as small as these."""


def test_it_ends_where_bounds_are_as_near_as_is_asked_for(monkeypatch):
    problem = random_network(12, 6, 0.9, tightness=0.0, seed=3)
    known = SharedBounds(problem, Gap(absolute=10), lambda *_: None)
    known.offer(problem.evaluate([0] * 12), (0,) * 12, "given")
    known.raise_lower(known.value - 10, "given")
    rounds = Searches(problem, SolveOptions(), known, Deadline())
    monkeypatch.setattr(DepthSearch, "work", lambda *_: pytest.fail("nodes were tried"))
    rounds.open()
    rounds.first(math.inf)


def test_the_deadline_ends_it():
    known = SharedBounds(grid_network(4, 3, seed=1), NO_GAP, lambda *_: None)
    rounds = Searches(known.problem, SolveOptions(), known, Deadline(0.0))
    with pytest.raises(TimeLimitError):
        rounds.first(FIRST_SECONDS)


@pytest.mark.parametrize("changed", [{"bounds": "lp"}, {"order": "min-fill"}])
def test_only_where_nothing_else_is_asked_for(changed):
    known = SharedBounds(grid_network(4, 3, seed=1), NO_GAP, lambda *_: None)
    rounds = Searches(known.problem, SolveOptions(**changed), known, Deadline())
    rounds.first(FIRST_SECONDS)
    assert rounds.seconds == 0
    assert known.lower is None


def latin_square(order: int, seed: int) -> Problem:
    """Preferences of cells, which differ from all others in their row and column."""
    random = np.random.default_rng(seed)
    cells = [(row, column) for row in range(order) for column in range(order)]
    pairs = [
        (a, b)
        for a, (row, column) in enumerate(cells)
        for b, (r, c) in enumerate(cells)
        if a < b and ((row == r) != (column == c))
    ]
    equal = np.repeat(np.arange(order)[:, None], 2, axis=1)
    return Problem(
        tuple(Variable(f"x{row}{column}", order) for row, column in cells),
        tuple(Function.from_array((v,), random.integers(0, 30, order)) for v in range(order**2)),
        tuple(Constraint(pair, equal) for pair in pairs),
        name="latin square",
    )


def test_bounds_of_unary_costs_below_hard_tables_join_early(monkeypatch):
    joined = {}

    def note(solvers, *_):
        joined.update({name: one.terms.after for name, one in solvers.members.items()})

    monkeypatch.setattr(subsolver.Portfolio, "run", note)
    square = latin_square(6, 1)
    dear = replace(square, functions=(*square.functions, Function((0, 8), [[1, 2]], [5], 0)))
    for problem, after in ((square, subsolver.HEAD_START), (dear, FIRST_SECONDS)):
        oocbe.solve(problem, incumbent_seconds=0)
        assert (joined["depth"], joined["bounds"]) == (0.0, after)


def test_rows_are_tried_where_hard_constraints_leave_no_value_free(monkeypatch):
    monkeypatch.setattr(searches, "DENSE", 2.0)
    problem = latin_square(4, seed=1)
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    Searches(problem, SolveOptions(), known, Deadline()).first(math.inf)
    assert known.is_closed
    assert known.value == oocbe.solve(problem, bounds="none").value
    free = replace(problem, constraints=tuple(Constraint(c.scope, c.tuples[1:]) for c in problem.constraints))
    capacity = LinearConstraint((0, 1), (np.arange(4), np.arange(4)), 3)
    for packing in (free, replace(free, linear_constraints=(capacity,))):
        rounds = Searches(packing, SolveOptions(), SharedBounds(packing, NO_GAP, lambda *_: None), Deadline())
        rounds.first(FIRST_SECONDS)
        assert rounds.seconds == 0


def search_first(monkeypatch):
    """Have a solve search the problem as it is before it eliminates."""
    monkeypatch.setattr(strategies, "is_easy", lambda *_: False)
    monkeypatch.setattr(strategies, "presolve", lambda *_: None)


@pytest.mark.parametrize("seed", range(examples(48)))
def test_a_solve_with_rows_has_the_value_of_elimination(seed, monkeypatch):
    search_first(monkeypatch)
    problem = anything(seed)
    result, plain = oocbe.solve(problem, order_seconds=0), oocbe.solve(problem, order_seconds=0, bounds="none")
    assert result.status == plain.status
    assert result.value == (plain.value if problem.is_integral else pytest.approx(plain.value))


def test_a_result_says_that_rows_have_closed_it(monkeypatch):
    search_first(monkeypatch)
    problem = random_network(8, 4, 0.8, tightness=0.0, seed=2)
    result = oocbe.solve(problem, order_seconds=0)
    assert result.status == "optimal"
    assert result.bounds.startswith("depth-first search: ")
    assert result.seconds["rows"] > 0
    assert result.total_rows > 0


def test_what_rows_have_found_is_known_to_a_search_with_bounds(monkeypatch):
    """Where elimination that needs no bounds does not end after all."""
    problem = random_network(8, 4, 0.8, tightness=0.0, seed=2)
    assignment = (0,) * 8
    value = problem.evaluate(assignment)

    def opening(problem, rows, options, known):
        known.offer(value, assignment, "rows")
        known.raise_lower(1, "rows")

    search_first(monkeypatch)
    monkeypatch.setattr(strategies, "opening_result", opening)
    monkeypatch.setattr(strategies.Solving, "_eliminate_easily", lambda *_: None)
    monkeypatch.setattr(bounded.BoundedSolve, "run", lambda _: None)
    result = oocbe.solve(problem, order_seconds=0)
    assert (result.status, result.value, result.assignment, result.bound) == ("limit", value, assignment, 1)


def dense(variables: int, domain: int, seed: int) -> Problem:
    """Costs between all pairs of variables, with a value of some assignment as the upper bound."""
    random = np.random.default_rng(seed)
    functions = tuple(
        Function.from_array((a, b), random.integers(0, 100, (domain, domain)))
        for a in range(variables)
        for b in range(a + 1, variables)
    )
    problem = Problem(tuple(Variable(f"x{v}", domain) for v in range(variables)), functions, name="dense")
    return replace(problem, upper_bound=problem.evaluate([0] * variables))


def test_memory_that_runs_out_ends_rows_and_not_the_solve(monkeypatch):
    problem = dense(6, 3, seed=3)
    tried = []

    def failing(made):
        tried.append(made)
        raise MemoryError("no more")

    monkeypatch.setattr(DepthSearch, "_begin", failing)
    search_first(monkeypatch)
    result = oocbe.solve(problem, backend="cpu", order_seconds=0)
    assert tried
    assert (result.status, result.value) == ("optimal", optimum(problem))


def test_a_plan_says_what_a_sample_shows(monkeypatch):
    problem = dense(6, 3, seed=3)
    assert "depth-first" not in oocbe.plan(problem, order_seconds=0).bounds
    monkeypatch.setattr(outlook, "FEW_ROWS", 0)
    assert oocbe.plan(problem, order_seconds=0).bounds.startswith("first depth-first search, which ends it (a sample")
    assert "depth-first" not in oocbe.plan(problem, order_seconds=0, bounds="lp").bounds
    assert not oocbe.plan(problem, order_seconds=0, bounds="none").bounds
    monkeypatch.setattr(presolve, "SAMPLE_SECONDS", 1e-9)
    monkeypatch.setattr(subsolver, "PARAMETERS", A_STEP)
    hard = random_network(12, 6, 0.9, tightness=0.0, seed=3)
    assert oocbe.plan(hard, order_seconds=0).bounds.startswith("first depth-first search (a sample of ")
    monkeypatch.setattr(DepthSearch, "expected", 4.0)
    assert oocbe.plan(hard, order_seconds=0).bounds.startswith("first depth-first search (4 s expected); then ")


def test_a_result_without_bounds_says_that_rows_were_tried(monkeypatch):
    search_first(monkeypatch)
    monkeypatch.setattr(searches, "HEAD_START", 1e-9)
    monkeypatch.setattr(subsolver, "PARAMETERS", A_STEP)
    monkeypatch.setattr(DepthSearch, "summary", "so and so many")
    monkeypatch.setattr(DepthSearch, "nodes", 1)
    result = oocbe.solve(random_network(8, 4, 0.8, tightness=0.0, seed=2), order_seconds=0)
    assert "solved without bounds, after so and so many" in result.notes
    assert result.seconds["rows"] > 0


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize(("size", "rows", "is_packing"), [(2, 1, False), (20, 10, True), (20, 200, False)])
def test_conflicts_of_few_of_many_values_are_packing(size, rows, is_packing, allowed):
    """A third of all pairs of tasks conflict, but long domains in few of their times: cliques bound these."""
    random = np.random.default_rng(1)
    pairs = [(a, b) for a in range(30) for b in range(a + 1, 30) if random.random() < 1 / 3]
    times = (size - 1) ** 2
    chosen = [random.choice(times, min(rows, times), replace=False) for _ in pairs]
    constraints = [
        Constraint(scope, np.column_stack(np.unravel_index(own, (size - 1, size - 1))) + 1)
        for scope, own in zip(pairs, chosen, strict=True)
    ]
    functions = tuple(Function((v,), [[0]], [10], 0) for v in range(30))
    if allowed:
        constraints = [Constraint(c.scope, np.argwhere(c.to_array([size] * 30)), allowed=True) for c in constraints]
    problem = Problem(tuple(Variable(f"x{v}", size) for v in range(30)), functions, tuple(constraints))
    assert RowProblem(problem).is_packing == is_packing
