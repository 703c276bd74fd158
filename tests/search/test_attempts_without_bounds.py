"""Attempts at elimination without bounds in the middle of a search with bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.api.solving import strategies as solving
from oocbe.bounds.row_tables import ScopeTables
from oocbe.errors import DiskError, TimeLimitError
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.model.settings.tuning import tuned, tuning
from oocbe.runtime.deadline import Deadline
from oocbe.search import bounded, subsolver
from oocbe.search.elimination_attempts import EliminationAttempts
from oocbe.search.subsolver import SharedBounds, Terms
from oocbe.stress import grid_network, scale_free_network
from tests.helpers.effort import examples
from tests.helpers.small_problems import brute_force, check, make_problem, structures

AT_ONCE = Terms(share=1e9, waits_for="bounds")
"""Terms of attempts that come before everything else but a first bound."""

AT_ONCE_NUMBERS = {"least_attempt_seconds": 0.0, "search_share": 0.0}
"""Numbers with which orders and a first bound take no time."""


@pytest.fixture
def impatient(monkeypatch):
    """Bounds give up their first round at once, and attempts are due from the beginning."""
    monkeypatch.setattr(bounded, "QUICK_CAP", 1)
    monkeypatch.setattr(bounded.MiniBucketRounds, "is_available", False)
    monkeypatch.setitem(subsolver.TERMS, "plain", AT_ONCE)
    monkeypatch.setattr(solving, "needs_no_bounds", lambda *_: False)
    monkeypatch.setattr(ScopeTables, "of", lambda *_, **__: None)  # else rows end it first
    with tuned(**AT_ONCE_NUMBERS, attempt_allowance=1e9):
        yield


SETTINGS = {"order_seconds": 0, "incumbent_seconds": 0.002, "bound_seconds": 0.05}


def hard(count=9, size=4, seed=0) -> Problem:
    """A clique of random costs: no bound comes near the optimum."""
    random = np.random.default_rng(seed)
    pairs = [(u, v) for u in range(count) for v in range(u + 1, count)]
    functions = tuple(Function.from_array(p, random.integers(0, 100, (size, size))) for p in pairs)
    return Problem(tuple(Variable(f"x{v}", size) for v in range(count)), functions, name="clique")


def tried(result) -> bool:
    return any("solved without bounds" in note for note in result.notes)


def test_the_attempt_solves_what_bounds_leave_open(impatient):
    problem = hard()
    expected = oocbe.solve(problem, bounds="none", order_seconds=0)
    result = oocbe.solve(problem, **SETTINGS)
    assert tried(result)
    assert (result.status, result.value) == ("optimal", expected.value)
    assert problem.evaluate(result.assignment) == result.value
    assert sorted(result.order) == list(range(9))
    assert result.seconds["bounds"] > 0
    assert not tried(oocbe.solve(problem, **SETTINGS, bounds="constant")), "bounds were asked for"


@settings(max_examples=examples(40))
@given(structures((MIN_SUM, MAX_SUM)), st.booleans())
def test_the_optimum_is_the_same(structure, gives_up):
    """Whether the attempts end or are given up, each for the next one to have longer."""
    problem = make_problem(structure)
    expected = brute_force(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded, "QUICK_CAP", 1)
        patch.setattr(bounded, "CAP_FACTOR", 2)
        patch.setitem(subsolver.TERMS, "plain", AT_ONCE)
        patch.setattr(solving, "needs_no_bounds", lambda *_: False)
        patch.setattr(ScopeTables, "of", lambda *_, **__: None)  # else rows end it first
        with tuned(**AT_ONCE_NUMBERS, attempt_allowance=8.0 if gives_up else 1e9):
            result = oocbe.solve(problem, **SETTINGS)
    if expected is None:
        assert (result.status, result.value) == ("infeasible", None)
        return
    assert result.status == "optimal"
    check(problem, result.value, result.assignment, expected)


@pytest.mark.parametrize("is_ahead", [False, True])
def test_elimination_below_a_threshold_waits_where_others_have_a_better_bound(impatient, monkeypatch, is_ahead):
    """Rosters took 2 to 9 s in it at once, while the searches' own root bound was the better one."""
    problem = hard()
    expected = oocbe.solve(problem, bounds="none", order_seconds=0).value
    own, costs = bounded.BoundedSolve._step, []

    def step(search, seconds, deadline):
        if is_ahead:
            search._known.raise_lower(expected - 1, "given")
        own(search, seconds, deadline)
        costs.append(search.cost)

    monkeypatch.setattr(bounded.BoundedSolve, "_step", step)
    assert oocbe.solve(problem, **SETTINGS).value == expected
    assert max(costs) == (bounded.ELIMINATION_SECONDS if is_ahead else 0.0)


def attempts_at(problem, eliminate=None, **options):
    known = SharedBounds(problem, oocbe.SolveOptions().gap, lambda *_: None)
    return EliminationAttempts(lambda: problem, MIN_SUM, oocbe.SolveOptions(**options), known, eliminate)


@pytest.mark.parametrize(("limit", "steps", "is_attempted"), [(5.0, 2, False), (50.0, 3, False), (500.0, 3, True)])
def test_no_attempt_begins_that_the_time_limit_ends(monkeypatch, limit, steps, is_attempted):
    """Of an expected 100 s: neither is a longer search for orders worthwhile if an eighth of that is left."""
    monkeypatch.setattr(EliminationAttempts, "_expected", lambda *_: 100.0)
    begun = []
    attempts = attempts_at(hard(), lambda *given: begun.append(given), order_seconds=0.01)
    for _ in range(steps):
        assert not attempts.is_over
        attempts.work(0.0, Deadline(limit))
    assert attempts.is_over
    assert bool(begun) == is_attempted


def test_attempts_are_possible_again_under_a_later_deadline(monkeypatch):
    monkeypatch.setattr(EliminationAttempts, "_expected", lambda *_: 100.0)
    begun = []
    attempts = attempts_at(hard(), lambda *given: begun.append(given), order_seconds=0.01)
    for limit, most in ((50.0, 3), (500.0, 1)):
        attempts.reopen()
        for _ in range(most):
            attempts.work(0.0, Deadline(limit))
        assert attempts.is_over
    assert begun
    attempts.reopen()
    assert attempts.is_over


def test_later_attempts_may_take_longer():
    allowed, kept = [], []

    def eliminate(choices, deadline):
        allowed.append(deadline.remaining)
        if len(allowed) < 3:
            raise TimeLimitError("the time limit was reached")
        return oocbe.solve(problem, bounds="none", order_seconds=0)

    problem = hard()
    with solving.Deadline() as deadline:
        made = attempts_at(problem, eliminate, order_seconds=0)
        made.keep = kept.append
        assert made.root_seconds(20.0) == tuning().least_attempt_seconds
        made.work(0.0, deadline)
        assert (allowed, made.cost > 0.0) == ([], True), "orders come first"
        for _ in range(3):
            assert made.is_available and made.result is None
            made.work(0.0, deadline)
        assert made.cost == pytest.approx(64 * allowed[0], rel=0.1), "the time limit of the next attempt"
    assert made.result.status == "optimal" and made.is_over
    assert [None if content is None else content["allowance"] for content in kept] == [
        pytest.approx(allowed[0], rel=0.1),
        None,
        pytest.approx(allowed[1], rel=0.1),
        None,
        pytest.approx(allowed[2], rel=0.1),
        None,
    ]
    assert allowed[1] == pytest.approx(4 * allowed[0], rel=0.1)
    assert allowed[2] == pytest.approx(16 * allowed[0], rel=0.1)


def test_the_first_bound_is_given_little_where_rows_are_far_fewer_than_cells():
    made = attempts_at(scale_free_network(10, 100, seed=0))
    assert tuning().search_share * made._complete_seconds > 2 * tuning().least_attempt_seconds
    assert made.root_seconds(20.0) == tuning().least_attempt_seconds


def test_expectations_beyond_reach_are_not_tried():
    with solving.Deadline() as deadline:
        made = attempts_at(grid_network(16, 10, seed=1), order_seconds=0)
        assert made.root_seconds(20.0) == 20.0
        made.work(math.inf, deadline)
    assert made.is_over and made.result is None


def test_a_full_disk_ends_the_attempts_only(impatient, monkeypatch):
    def refuse(run, choices, seconds):
        raise DiskError("full")

    monkeypatch.setattr(solving.Solving, "_eliminate", refuse)
    problem = hard(6, 3)
    result = oocbe.solve(problem, **SETTINGS)
    assert result.status == "optimal"
    assert not tried(result)


def test_a_run_that_ended_in_an_attempt_is_resumed(impatient, tmp_path):
    """Interrupted in the attempt, then resumed: it goes on from the messages that were published."""

    class Interrupting(oocbe.Observer):
        plain = False

        def started(self, plan):
            self.plain = plan.bounds == ""

        def bucket_done(self, number, total, name, rows, size):
            if self.plain and number == 5:
                raise KeyboardInterrupt

    problem = hard()
    with pytest.raises(KeyboardInterrupt):
        oocbe.solve(problem, **SETTINGS, workdir=tmp_path, observer=Interrupting())
    assert list(tmp_path.glob("order-*/message-*.json"))
    result = oocbe.solve(problem, **SETTINGS, workdir=tmp_path, resume=True)
    assert tried(result)
    assert result.value == oocbe.solve(problem, bounds="none", order_seconds=0).value
    assert any("resumed" in note for note in result.notes)
