"""The search by rows with bounds of their own: the optimum, whatever the beam cuts off, and when it is tried."""

from __future__ import annotations

import math
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import oocbe
from oocbe.api.solving import outlook, solve
from oocbe.bounds.row_ascent import RowAscent
from oocbe.bounds.row_reduction import reduced
from oocbe.bounds.row_tables import ScopeTables
from oocbe.errors import TimeLimitError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.option_values import Gap
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search import bounded, portfolio, row_results, row_search, searches
from oocbe.search.depth_search import DepthSearch
from oocbe.search.elimination_attempts import ReducedElimination
from oocbe.search.portfolio import FIRST_SECONDS, PARAMETERS, Terms
from oocbe.search.row_search import BeamPass, RowSearch, WeightedPrimalGraph
from oocbe.search.searches import Searches
from oocbe.search.shared_bounds import SharedBounds
from oocbe.stress import grid_network, random_network
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, optimum, photographs
from tests.helpers.effort import examples

NO_GAP = SolveOptions().gap

A_STEP = replace(PARAMETERS, slice_seconds=1e-9)
"""Each slice is one step."""


@pytest.fixture(autouse=True)
def rows_alone(monkeypatch):
    """Without elimination of what reduction leaves, which would come before rows in problems as small as these, and
    without a search depth first, which would end them."""
    monkeypatch.setattr(ReducedElimination, "is_available", False)
    monkeypatch.setattr(DepthSearch, "is_over", property(lambda _: True, lambda *_: None), raising=False)


def search(problem: Problem, memory: int = 1 << 30) -> tuple[SharedBounds, RowSearch]:
    """Run a search to its end; every bound and value that it reports on the way is checked."""
    best = optimum(problem)
    tables = ScopeTables.of(problem)
    assert tables is not None
    tolerance = 4 * tables.rounding
    ceiling = math.inf if problem.upper_bound is None else problem.upper_bound

    def check(lower, value, why, assignment):
        assert value is None or value >= best - tolerance, (problem.name, why, value, best)
        # Where nothing counts, all that is known is that nothing is below the upper bound.
        assert lower is None or lower <= min(best, ceiling) + tolerance or best == math.inf, (problem.name, why, lower)

    known = SharedBounds(problem, NO_GAP, check)
    made = RowSearch(reduced(tables), known, memory)
    made.work(math.inf, Deadline())
    return known, made


@pytest.mark.parametrize("make", [anything, photographs, costly_photographs, hidden_solution])
@pytest.mark.parametrize("width", [1, 64])
def test_the_optimum_whatever_the_beam_cuts_off(make, width, monkeypatch):
    monkeypatch.setattr(row_search, "FIRST_WIDTH", width)
    monkeypatch.setattr(row_search, "WIDER", 3)
    monkeypatch.setattr(row_search, "CHOICE", 2)
    for seed in range(examples(150)):
        problem = make(seed)
        best = optimum(problem)
        known, made = search(problem)
        assert made.is_over
        assert known.is_closed, problem.name
        if best == math.inf:
            assert known.value is None
        else:
            assert known.value == pytest.approx(best, rel=1e-9, abs=1e-9)
            if problem.is_integral:
                assert known.value == best


@pytest.mark.parametrize("is_narrow", [False, True])
def test_rows_that_agree_on_their_separator_are_merged(is_narrow):
    problem = grid_network(4, 3, tightness=0.0, seed=5)
    tables = ScopeTables.of(problem)
    best = oocbe.solve(problem).value
    ascent = RowAscent(tables, best + 10_000)  # rules nothing out
    walk = BeamPass(ascent, WeightedPrimalGraph(tables, 100.0), 10**6, 0, is_narrow)
    with pytest.raises(StopIteration) as end:
        steps = walk.steps()
        while True:
            next(steps)
    walked = end.value.value
    assert (walked.value, walked.cut, walked.ruled_out) == (best, None, 0)
    assert problem.evaluate(walked.assignment) == best
    if is_narrow:
        assert walked.largest <= 3**5  # of 3**16 assignments: a column and one more
        assert walked.expected == walked.tried


def test_a_cut_bounds_the_optimum():
    problem = random_network(9, 5, 0.8, tightness=0.0, seed=3)
    tables, best = ScopeTables.of(problem), oocbe.solve(problem).value
    ascent = RowAscent(tables, best + 500)
    walk = BeamPass(ascent, WeightedPrimalGraph(tables, 100.0), 2, 2, is_narrow=False)
    with pytest.raises(StopIteration) as end:
        steps = walk.steps()
        while True:
            next(steps)
    walked = end.value.value
    assert walked.cut is not None
    assert walked.cut <= best <= walked.value
    assert walked.expected > walked.tried


def test_memory_ends_the_search():
    problem = random_network(9, 5, 0.8, tightness=0.0, seed=3)
    known, made = search_without_check(problem, memory=1 << 12)
    assert made.is_over
    assert known.lower <= oocbe.solve(problem).value


def search_without_check(problem: Problem, memory: int) -> tuple[SharedBounds, RowSearch]:
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    made = RowSearch(reduced(ScopeTables.of(problem)), known, memory)
    made.work(math.inf, Deadline())
    return known, made


def test_more_values_than_a_byte_holds():
    costs = np.abs(np.arange(300)[:, None] * 7 % 300 - np.arange(200)[None, :] * 3 % 300) + 1
    own = np.arange(300)[::-1]
    problem = Problem(
        (Variable("a", 300), Variable("b", 200)),
        (Function.from_array((0, 1), costs), Function.from_array((0,), own)),
    )
    known, _ = search_without_check(problem, 1 << 30)
    assert known.value == (costs + own[:, None]).min()


def test_it_ends_where_bounds_are_as_near_as_is_asked_for(monkeypatch):
    problem = random_network(12, 6, 0.9, tightness=0.0, seed=3)
    known = SharedBounds(problem, Gap(absolute=10), lambda *_: None)
    known.offer(problem.evaluate([0] * 12), (0,) * 12, "given")
    known.raise_lower(known.value - 10, "given")
    rounds = Searches(problem, SolveOptions(), known, Deadline())
    monkeypatch.setattr(RowSearch, "work", lambda *_: pytest.fail("rows were tried"))
    rounds.open()
    rounds.first(math.inf)


def test_the_deadline_ends_it():
    known = SharedBounds(grid_network(4, 3, seed=1), NO_GAP, lambda *_: None)
    rounds = Searches(known.problem, SolveOptions(), known, Deadline(0.0))
    with pytest.raises(TimeLimitError):
        rounds.first(FIRST_SECONDS)


def test_a_hopeless_search_says_so(monkeypatch):
    monkeypatch.setattr(row_search, "HOPELESS_SECONDS", 0.0)
    monkeypatch.setattr(row_search, "FEW_RULED_OUT", 2.0)
    monkeypatch.setattr(row_search, "FIRST_WIDTH", 1)
    problem = random_network(9, 5, 0.8, tightness=0.0, seed=3)
    known, tables = SharedBounds(problem, NO_GAP, lambda *_: None), ScopeTables.of(problem)
    best = oocbe.solve(problem)
    known.offer(best.value, best.assignment, "given")  # no pass finds a better one
    made = RowSearch(reduced(tables), known, 1 << 30)
    while not made.is_hopeless:
        made.work(0.0, Deadline())
    assert not known.is_closed


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


@pytest.mark.parametrize("seed", range(12))
def test_a_solve_with_rows_has_the_value_of_elimination(seed, monkeypatch):
    monkeypatch.setattr(row_results, "FEW_ROWS", -1.0)
    problem = anything(seed)
    result, plain = oocbe.solve(problem, order_seconds=0), oocbe.solve(problem, order_seconds=0, bounds="none")
    assert result.status == plain.status
    assert result.value == (plain.value if problem.is_integral else pytest.approx(plain.value))


def test_a_result_says_that_rows_have_closed_it(monkeypatch):
    monkeypatch.setattr(row_results, "FEW_ROWS", -1.0)
    problem = random_network(8, 4, 0.8, tightness=0.0, seed=2)
    result = oocbe.solve(problem, order_seconds=0)
    assert result.status == "optimal"
    assert result.bounds.startswith("rows with bounds of their own: ")
    assert result.seconds["rows"] > 0
    assert result.total_rows >= result.largest_message_rows > 0


def test_what_rows_have_found_is_known_to_a_search_with_bounds(monkeypatch):
    """Where elimination that needs no bounds does not end after all."""
    problem = random_network(8, 4, 0.8, tightness=0.0, seed=2)
    assignment = (0,) * 8
    value = problem.evaluate(assignment)

    def by_rows(problem, rows, choice, options, known, *_):
        known.offer(value, assignment, "rows")
        known.raise_lower(1, "rows")

    monkeypatch.setattr(solve, "result_by_rows", by_rows)
    monkeypatch.setattr(solve._Solving, "_eliminate_easily", lambda *_: None)
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

    def failing(walk):
        tried.append(walk)
        raise MemoryError("no more")
        yield

    monkeypatch.setattr(row_search.BeamPass, "steps", failing)
    monkeypatch.setattr(row_results, "FEW_ROWS", 0)
    result = oocbe.solve(problem, backend="cpu", order_seconds=0)
    assert tried
    assert (result.status, result.value) == ("optimal", optimum(problem))


def test_rows_that_wait_count_as_memory_for_messages(monkeypatch):
    """A walk that holds little stays, one that holds much is given up, and the search ends all the same."""
    monkeypatch.setattr(portfolio, "PARAMETERS", A_STEP)
    problem = dense(9, 5, seed=1)
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    rounds = Searches(problem, SolveOptions(), known, Deadline())
    assert rounds.make_room(1000) == 1000
    rounds.lay_out()
    rounds.portfolio.members = {"beam": rounds.portfolio.members["beam"]}
    given_up = 0
    while not known.is_closed:
        rounds.portfolio.run(partial(next, iter((False, True))))
        held = (1 << 40) - rounds.make_room(1 << 40)
        if held and given_up < 5:
            assert rounds.make_room(8 * held) == 7 * held
            assert rounds.make_room(8 * held - 8) == 8 * held - 8
            given_up += 1
    assert given_up == 5
    assert known.value == optimum(problem)


def test_a_walk_keeps_within_its_memory(monkeypatch):
    monkeypatch.setattr(row_search, "FIRST_WIDTH", 1 << 20)
    problem = dense(14, 8, seed=1)
    tables = ScopeTables.of(problem)
    assert tables is not None
    memory = 8 << 20
    made = RowSearch(reduced(tables), SharedBounds(problem, NO_GAP, lambda *_: None), memory)
    tracemalloc.start()
    try:
        with suppress(TimeLimitError):
            made.work(math.inf, Deadline(6.0))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.largest > 100
    assert peak <= 4 * memory  # a block of rows on their way is made whatever the memory


def test_a_plan_says_what_a_sample_of_rows_shows(monkeypatch):
    problem = dense(6, 3, seed=3)
    assert "rows with" not in oocbe.plan(problem, order_seconds=0).bounds
    monkeypatch.setattr(outlook, "FEW_ROWS", 0)
    assert oocbe.plan(problem, order_seconds=0).bounds.startswith("first rows with bounds of their own, which end it")
    assert "rows with" not in oocbe.plan(problem, order_seconds=0, bounds="lp").bounds
    assert not oocbe.plan(problem, order_seconds=0, bounds="none").bounds
    monkeypatch.setattr(row_results, "SAMPLE_SECONDS", 1e-9)
    monkeypatch.setitem(portfolio.TERMS, "beam", Terms())
    monkeypatch.setattr(portfolio, "PARAMETERS", A_STEP)
    hard = random_network(12, 6, 0.9, tightness=0.0, seed=3)
    assert oocbe.plan(hard, order_seconds=0).bounds.startswith("first rows with bounds of their own (")


@pytest.mark.parametrize(("is_hopeless", "said"), [(True, "comes at once"), (False, "4 s expected for all")])
def test_what_rows_show_is_told(is_hopeless, said):
    known = SharedBounds(grid_network(4, 3, seed=1), NO_GAP, lambda *_: None)
    rounds = Searches(known.problem, SolveOptions(), known, Deadline())
    assert (rounds.summary, rounds.forecast_summary) == ("", "")
    rounds.first(FIRST_SECONDS)
    search = rounds._beam
    search.nodes, search.ruled_out, search.walking = 1000, 250, 0.05
    search.is_hopeless, search.foreseen = is_hopeless, 4.0
    assert rounds.forecast_summary.startswith("of 1,000 tried 25% were ruled out by them, 50 µs a row, ")
    assert said in rounds.forecast_summary


def test_a_result_without_bounds_says_that_rows_were_tried(monkeypatch):
    monkeypatch.setattr(row_results, "FEW_ROWS", -1.0)
    monkeypatch.setattr(row_results, "EASY_SECONDS", 1e-9)
    monkeypatch.setitem(portfolio.TERMS, "beam", Terms())
    monkeypatch.setattr(portfolio, "PARAMETERS", A_STEP)
    monkeypatch.setattr(RowSearch, "summary", "so and so many")
    monkeypatch.setattr(RowSearch, "_rounds", slow_steps)
    result = oocbe.solve(random_network(8, 4, 0.8, tightness=0.0, seed=2), order_seconds=0)
    assert "solved without bounds, after so and so many" in result.notes
    assert result.seconds["rows"] > 0


def slow_steps(search):
    search.nodes += 1
    yield
