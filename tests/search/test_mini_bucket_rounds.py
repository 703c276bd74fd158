"""Mini-buckets beside a search with bounds: their bounds and assignments count, and prove nothing wrong."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.api.solving import solve as solving
from oocbe.bounds.mini_buckets import mini_buckets_bound
from oocbe.bounds.row_tables import ScopeTables
from oocbe.errors import ResourceError, TimeLimitError
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.model.settings.option_values import Gap
from oocbe.search import bounded, mini_bucket_rounds
from oocbe.search.mini_bucket_rounds import MiniBucketRounds
from oocbe.search.shared_bounds import SharedBounds
from oocbe.stress import grid_network
from tests.helpers.effort import examples
from tests.helpers.fake_clock import Clock
from tests.helpers.small_problems import brute_force, check, make_problem, structures


def rounds(monkeypatch, problem, deadline=None, **options):
    clock = Clock()
    monkeypatch.setattr(mini_bucket_rounds, "working_time", clock.perf_counter)
    heard = []
    known = SharedBounds(problem, Gap(), lambda lower, value, why, _: heard.append((lower, value, why)))
    return clock, heard, known, MiniBucketRounds(problem, oocbe.SolveOptions(**options), deadline or solving.Deadline())


@pytest.mark.parametrize("pieces", [{}, {"piece_rows": 1, "streams": 1}])
def test_passes_wait_for_their_part_of_the_time(monkeypatch, pieces):
    """The pieces of a solve are none of theirs: mini-buckets are joined in memory as a whole."""
    problem = grid_network(6, 3, tightness=0.0, seed=1)
    clock, heard, known, made = rounds(monkeypatch, problem, **pieces)
    made.improve(known)
    assert heard == []
    clock.now = 1.0
    monkeypatch.setattr(mini_bucket_rounds, "LONGEST_SHARE", 1e9)  # of this clock; passes end by the machine's
    made.improve(known)
    optimum = oocbe.solve(problem).value
    assert known.lower <= optimum <= known.value
    assert problem.evaluate(known.assignment) == known.value
    assert all("mini-buckets with z = " in why for _, _, why in heard)
    assert known.is_closed, "no time passes, so z grows to the induced width"


@settings(max_examples=examples(40))
@given(structures((MIN_SUM, MAX_SUM)), st.sampled_from([1, 2, 4]))
def test_the_optimum_is_the_same(structure, least):
    problem = make_problem(structure)
    expected = brute_force(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded, "QUICK_CAP", 1)
        patch.setattr(mini_bucket_rounds, "LEAST_Z", least)
        for name in ("TIME_SHARE", "LONGEST_SHARE"):
            patch.setattr(mini_bucket_rounds, name, 1e9)
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
    with monkeypatch.context() as patch:
        patch.setattr(mini_bucket_rounds, "TIME_SHARE", 0.0)
        assert "mini-buckets" not in oocbe.solve(problem, order_seconds=0, incumbent_seconds=0, bound_seconds=0).seconds
    for name in ("TIME_SHARE", "LONGEST_SHARE"):
        monkeypatch.setattr(mini_bucket_rounds, name, 1e9)
    seconds = oocbe.solve(problem, order_seconds=0, incumbent_seconds=0, bound_seconds=0).seconds
    assert 0 < seconds["mini-buckets"] <= seconds["total"]
    assert sum(spent for phase, spent in seconds.items() if phase != "total") <= seconds["total"]


def test_a_pass_that_takes_too_long_is_tried_again_where_there_is_time_for_much_more(monkeypatch):
    """A search of an hour is not to go without them since a pass was too long for its first seconds."""
    tried = []

    def with_z(bounding, z, deadline):
        tried.append((z, deadline.remaining))
        clock.now += 50.0
        raise TimeLimitError("the time limit was reached")

    monkeypatch.setattr(mini_buckets_bound.Bounding, "with_z", with_z)
    clock, heard, known, made = rounds(monkeypatch, grid_network(4, 3, seed=1))
    clock.now = 100.0
    made.improve(known)
    clock.now = 2249.0  # a fifth of it is less than 50 seconds and 8 times as much
    made.improve(known)
    assert [z for z, _ in tried] == [mini_bucket_rounds.LEAST_Z]
    assert 40 < tried[0][1] <= 50
    clock.now = 2251.0
    made.improve(known)
    assert [z for z, _ in tried] == [mini_bucket_rounds.LEAST_Z] * 2
    assert 390 < tried[1][1] <= 0.2 * 2251 - 50
    assert heard == []


def test_a_pass_without_room_is_the_last_one(monkeypatch):
    tried = []

    def with_z(bounding, z, deadline):
        tried.append(z)
        raise ResourceError("no memory for a table")

    monkeypatch.setattr(mini_buckets_bound.Bounding, "with_z", with_z)
    clock, heard, known, made = rounds(monkeypatch, grid_network(4, 3, seed=1))
    for clock.now in (100.0, 1e6):
        made.improve(known)
    assert tried == [mini_bucket_rounds.LEAST_Z]
    assert heard == []


def test_the_deadline_of_the_search_ends_it(monkeypatch):
    deadline = solving.Deadline(0.0)
    clock, _, known, made = rounds(monkeypatch, grid_network(4, 3, seed=1), deadline)
    clock.now = 100.0
    with deadline, pytest.raises(TimeLimitError):
        made.improve(known)
