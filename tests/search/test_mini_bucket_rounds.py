"""Mini-buckets beside a search with bounds: their bounds and assignments count, and prove nothing wrong."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.api.solving import strategies as solving
from oocbe.bounds.mini_buckets import mini_buckets_bound
from oocbe.bounds.row_tables import ScopeTables
from oocbe.errors import ResourceError, TimeLimitError
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.model.settings.option_values import Gap
from oocbe.runtime.deadline import Deadline
from oocbe.search import bounded, subsolver
from oocbe.search.bounded import MiniBucketRounds
from oocbe.search.elimination_attempts import EliminationAttempts
from oocbe.search.subsolver import SharedBounds, Terms
from oocbe.stress import grid_network
from tests.helpers.effort import examples
from tests.helpers.fake_clock import Clock
from tests.helpers.small_problems import brute_force, check, make_problem, structures

AT_ONCE = Terms(share=1e9, waits_for="bounds")
"""Terms of passes that come before everything else but a first bound."""


def rounds(problem, **options):
    heard = []
    known = SharedBounds(problem, Gap(), lambda lower, value, why, _: heard.append((lower, value, why)))
    return heard, known, MiniBucketRounds(problem, oocbe.SolveOptions(**options), known)


@pytest.mark.parametrize("pieces", [{}, {"piece_rows": 1, "streams": 1}])
def test_passes_close_a_problem_of_small_width(pieces):
    """The pieces of a solve are none of theirs: mini-buckets are joined in memory as a whole."""
    problem = grid_network(6, 3, tightness=0.0, seed=1)
    heard, known, made = rounds(problem, **pieces)
    made.work(math.inf, Deadline())
    optimum = oocbe.solve(problem).value
    assert known.lower <= optimum <= known.value
    assert problem.evaluate(known.assignment) == known.value
    assert all("mini-buckets with z = " in why for _, _, why in heard)
    assert known.is_closed, "z grows to the induced width"
    assert made.is_over


@settings(max_examples=examples(40))
@given(structures((MIN_SUM, MAX_SUM)), st.sampled_from([1, 2, 4]))
def test_the_optimum_is_the_same(structure, least):
    problem = make_problem(structure)
    expected = brute_force(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded, "QUICK_CAP", 1)
        patch.setattr(bounded, "LEAST_Z", least)
        patch.setitem(subsolver.TERMS, "mini-buckets", AT_ONCE)
        patch.setattr(solving, "needs_no_bounds", lambda *_: False)
        patch.setattr(ScopeTables, "of", lambda *_, **__: None)  # else rows end it first
        result = oocbe.solve(problem, order_seconds=0, incumbent_seconds=0, bound_seconds=0.01)
    if expected is None:
        assert (result.status, result.value) == ("infeasible", None)
        return
    assert result.status == "optimal"
    check(problem, result.value, result.assignment, expected)


def test_their_time_is_told_apart(monkeypatch):
    problem = grid_network(5, 3, tightness=0.0, seed=1)
    monkeypatch.setattr(solving, "needs_no_bounds", lambda *_: False)
    monkeypatch.setattr(ScopeTables, "of", lambda *_, **__: None)  # else rows end it first
    monkeypatch.setattr(EliminationAttempts, "is_available", False)
    options = {"order_seconds": 0, "incumbent_seconds": 0, "bound_seconds": 0}
    with monkeypatch.context() as patch:
        patch.setattr(MiniBucketRounds, "is_available", False)
        assert "mini-buckets" not in oocbe.solve(problem, **options).seconds
    monkeypatch.setitem(subsolver.TERMS, "mini-buckets", AT_ONCE)
    seconds = oocbe.solve(problem, **options).seconds
    assert 0 < seconds["mini-buckets"] <= seconds["total"]
    assert sum(spent for phase, spent in seconds.items() if phase != "total") <= seconds["total"]


def test_a_pass_that_takes_too_long_is_tried_again_where_there_is_time_for_much_more(monkeypatch):
    """A search of an hour is not to go without them since a pass was too long for its first seconds."""
    tried, clock = [], Clock()
    monkeypatch.setattr(bounded, "working_time", clock.perf_counter)

    def with_z(bounding, z, deadline):
        tried.append((z, deadline.remaining))
        clock.now += 50.0
        raise TimeLimitError("the time limit was reached")

    monkeypatch.setattr(mini_buckets_bound.Bounding, "with_z", with_z)
    heard, _, made = rounds(grid_network(4, 3, seed=1))
    assert made.cost == bounded.FIRST_COST
    for _ in range(2):
        made.work(0.0, Deadline())
        assert made.cost == bounded.GROWTH * 50.0
    assert [z for z, _ in tried] == [bounded.LEAST_Z] * 2
    first, second = (limit for _, limit in tried)
    assert 0.0 < first <= 0.8 and 3000.0 < second <= 3200.0
    assert heard == [] and not made.is_over


def test_a_pass_without_room_is_the_last_one(monkeypatch):
    def with_z(bounding, z, deadline):
        raise ResourceError("no memory for a table")

    monkeypatch.setattr(mini_buckets_bound.Bounding, "with_z", with_z)
    heard, _, made = rounds(grid_network(4, 3, seed=1))
    made.work(0.0, Deadline())
    assert made.is_over and heard == []


def test_the_deadline_of_the_search_ends_it():
    deadline = Deadline(0.0)
    _, _, made = rounds(grid_network(4, 3, seed=1))
    with deadline, pytest.raises(TimeLimitError):
        made.work(math.inf, deadline)
