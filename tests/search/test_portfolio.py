"""The scheduler by a clock of its own: no solver computes anything, and time passes where a solver says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.option_values import Gap
from oocbe.runtime.deadline import Deadline
from oocbe.search.subsolver import (
    PARAMETERS,
    TERMS,
    Parameters,
    Portfolio,
    SharedBounds,
    SubSolver,
    Terms,
)
from tests.helpers.fake_clock import Clock

LEAST, GREATEST = 0, 1000


def bounds() -> SharedBounds:
    variables = (Variable("x", 2),)
    known = SharedBounds(Problem(variables, (Function.from_array((0,), [LEAST, GREATEST]),)), Gap(), lambda *_: None)
    known.offer(GREATEST, (1,), "given")
    known.raise_lower(LEAST, "given")
    return known


class Fake(SubSolver):
    """A solver whose calls take the time that they are given, or ``takes``, and gain ``gains`` of the bound each."""

    expected = math.inf
    cost = 0.0

    def __init__(self, clock: Clock, known: SharedBounds, **given) -> None:
        super().__init__(known)
        self.clock, self.takes, self.gains = clock, None, lambda: 0
        self.calls: list[float] = []
        for name, value in given.items():
            setattr(self, name, value)

    def _step(self, seconds: float, deadline: Deadline) -> None:
        raise AssertionError

    def work(self, seconds: float, deadline: Deadline) -> bool:
        deadline.check()
        taken = seconds if self.takes is None else self.takes
        self.calls.append(seconds)
        self.seconds += taken
        self.clock.now += taken
        before, gain = self._known.lower, self.gains()
        if gain:
            self._prove((self.lower or 0) + gain, "a test")
        if self.cost:
            self.cost, self.is_over = 0.0, True
        return self._known.lower != before


class Setting:
    """A portfolio of fake solvers, and the names of those that have run."""

    def __init__(self, parameters: Parameters = PARAMETERS, *, deadline: Deadline | None = None) -> None:
        self.clock, self.known, self.log = Clock(), bounds(), []
        self.portfolio = Portfolio(self.known, deadline or Deadline(), parameters, self.clock.perf_counter)

    def add(self, name: str, terms: Terms = Terms(), **given) -> Fake:  # noqa: B008
        solver = Fake(self.clock, self.known, **given)
        work = solver.work
        solver.work = lambda *limits: self.log.append(name) or work(*limits)
        self.portfolio.add(name, solver, terms)
        return solver

    def run(self, seconds: float = math.inf, is_done: Callable[[], bool] = lambda: False, **given) -> None:
        self.portfolio.run(lambda: is_done() or self.clock.now >= seconds, **given)


@pytest.mark.parametrize("share", [0.5, 1.0, 4.0])
def test_time_is_divided_by_the_shares(share):
    setting = Setting()
    one, other = setting.add("one"), setting.add("other", Terms(share=share))
    setting.run(3.0)
    assert other.seconds / one.seconds == pytest.approx(share, rel=0.1)


def schedule(load: float) -> list[str]:
    """The solvers that run, in order, on a machine under ``load``."""
    setting = Setting(replace(PARAMETERS, slice_seconds=load * PARAMETERS.slice_seconds, idle_seconds=4 * load))
    setting.add("one", gains=lambda: 1)
    setting.add("two", Terms(share=0.5, after=load * 1.0))
    setting.add("three", Terms(after=load * 2.0), is_coarse=True, takes=load * 0.7)
    setting.add("four", Terms(share=0.25), cost=load * 0.5, takes=load * 0.5)
    setting.run(load * 20.0)
    return setting.log


def test_a_schedule_is_replayed_also_under_load():
    """It depends on what the solvers report, so a machine of half the speed runs the same sequence."""
    assert schedule(1.0) == schedule(1.0) == schedule(2.0)
    assert {"one", "two", "three", "four"} == {*schedule(1.0)}


def test_what_makes_no_progress_gets_less_time_and_is_taken_up_again_where_the_others_stagnate():
    setting = Setting(replace(PARAMETERS, idle_factor=0.1))
    stops = 60.0
    one = setting.add("one", gains=lambda: setting.clock.now < stops)
    other = setting.add("other")
    setting.run(stops)
    assert one.seconds > 5 * other.seconds
    before = one.seconds, other.seconds
    setting.run(20 * stops)
    assert other.seconds - before[1] > one.seconds - before[0], "it catches up"
    assert other.seconds == pytest.approx(one.seconds, rel=0.1)


def test_a_turn_ends_between_steps_and_the_next_one_continues():
    setting = Setting(deadline=Deadline(100.0))
    one, coarse = setting.add("one"), setting.add("coarse", Terms(after=2.0), is_coarse=True)
    for _ in range(4):
        setting.portfolio.turn_end = setting.clock.now + 0.51
        setting.run()
        assert setting.portfolio.is_turn_over
        setting.clock.now += 100.0  # other work
    assert 1.9 < one.seconds < 2.2
    assert coarse.calls == [PARAMETERS.coarse_seconds]


def test_pauses_between_turns_are_no_time_of_a_search():
    setting = Setting()
    late, other = setting.add("late", Terms(soon=4.0), expected=50.0), setting.add("other")
    for _ in range(4):
        setting.portfolio.turn_end = setting.clock.now + 1.0
        setting.run()
        setting.clock.now += 100.0
    assert late.seconds == pytest.approx(other.seconds, abs=0.1)


def test_an_indivisible_step_waits_until_the_others_have_used_its_time():
    setting = Setting()
    setting.add("search", gains=lambda: 1)
    setting.add("attempt", Terms(share=0.5), cost=3.0, takes=3.0)
    setting.run(12.0)
    assert setting.log.count("attempt") == 1
    assert setting.log.index("attempt") * PARAMETERS.slice_seconds == pytest.approx(6.0, rel=0.05)


def test_a_step_out_of_reach_is_never_made():
    setting = Setting()
    setting.add("attempt", cost=math.inf)
    setting.run()
    assert setting.log == []


def test_a_solver_that_is_near_its_end_runs_alone():
    setting = Setting()
    setting.add("one")
    near = setting.add("near", Terms(share=0.01), expected=1.0)
    setting.run(1.0)
    assert {*setting.log} == {"near"}
    near.expected = math.inf  # the estimate was wrong
    setting.run(2.0)
    assert setting.log[-1] == "one"


@pytest.mark.parametrize(("expected", "part"), [(100.0, 1.0), (8.0, 3.0)])
def test_a_solver_that_ends_soon_gets_more(expected, part):
    setting = Setting(replace(PARAMETERS, idle_factor=1.0))
    one = setting.add("one")
    other = setting.add("other", Terms(soon=3.0), expected=expected)
    setting.run(16.0)
    bonus = PARAMETERS.soon_seconds if expected < 50.0 else 0.0
    assert (other.seconds - bonus) / one.seconds == pytest.approx(part, rel=0.1)


def test_the_best_bound_gets_more_while_it_leads():
    setting = Setting()
    setting.add("one")
    leading = setting.add("leading", Terms(share=0.25, leading=16.0), gains=lambda: 1)
    setting.run(4.0)
    assert setting.log.count("leading") / setting.log.count("one") == pytest.approx(4.0, rel=0.1)
    setting.known.raise_lower(500, "another solver")
    leading.gains = lambda: 0
    before = leading.seconds
    setting.run(5.0)
    assert leading.seconds == before, "it had more than its share"


def test_a_search_that_profits_from_a_small_gap_gets_more_then():
    setting = Setting(replace(PARAMETERS, idle_factor=1.0))
    one, other = setting.add("one"), setting.add("other", Terms(close=3.0))
    setting.run(4.0)
    assert other.seconds / one.seconds == pytest.approx(1.0, rel=0.1)
    setting.known.raise_lower(950, "another solver")
    setting.run(24.0)
    assert other.seconds / one.seconds == pytest.approx(3.0, rel=0.1)


def test_subproblems_that_lead_leave_a_third_to_depth_first_search():
    setting = Setting(replace(PARAMETERS, idle_factor=1.0))
    depth = setting.add("depth", TERMS["depth"])
    setting.add("subproblems", TERMS["subproblems"], gains=lambda: 1)
    setting.run(30.0)
    assert depth.seconds >= 10.0


def test_coarse_steps_may_take_as_long_as_those_before():
    setting = Setting()
    setting.add("search")
    coarse = setting.add("coarse", Terms(after=1.0), is_coarse=True)
    setting.run(20.0)
    assert coarse.calls[0] == pytest.approx(1.0, abs=0.1), "until the search is due"
    assert all(later > before for before, later in pairwise(coarse.calls[1:]))
    assert len(coarse.calls) < 8


def test_a_solver_has_more_time_while_it_finds_assignments():
    setting = Setting(replace(PARAMETERS, idle_factor=1.0))
    finds = 5.0

    def find():
        if setting.clock.now < finds:
            setting.known.value -= 1
        return 0

    one = setting.add("one")
    finder = setting.add("finder", Terms(share=0.25, finding=16.0), gains=find)
    setting.run(finds)
    assert finder.seconds > 3 * one.seconds
    setting.run(50.0)
    assert finder.seconds == pytest.approx(one.seconds / 4, rel=0.5)


def test_coarse_steps_without_any_gain_get_less_time():
    shares = []
    for gain in (0, 1):
        setting = Setting(replace(PARAMETERS, idle_factor=1.0))
        setting.add("search")
        coarse = setting.add("coarse", is_coarse=True, gains=lambda gain=gain: gain)
        setting.run(30.0)
        shares.append(coarse.seconds / setting.clock.now)
    assert shares[0] < 0.25 < 0.4 < shares[1]


def test_a_step_comes_before_those_that_wait_for_it():
    setting = Setting()
    waiting = setting.add("waiting", Terms(waits_for="bounds"))
    bounds = setting.add("bounds", is_coarse=True, takes=3.0)
    setting.run(3.0)
    assert (bounds.calls, waiting.calls) == ([PARAMETERS.coarse_seconds], []), "a step as long as the first of all"
    setting.run(4.0)
    assert waiting.calls
    long = Setting()
    long.add("waiting", Terms(waits_for="bounds"))
    bounds = long.add("bounds", Terms(first_step=2.0), is_coarse=True)
    long.run(1.0)
    assert bounds.calls == [2.0]
    without = Setting()
    without.add("waiting", Terms(waits_for="bounds"))
    without.run(1.0)
    assert without.log, "it waits for no solver that is not there"


def test_a_late_search_claims_no_earlier_time():
    setting = Setting(replace(PARAMETERS, idle_factor=1.0))
    one = setting.add("one")
    late = setting.add("late", Terms(after=3.0))
    setting.run(7.0)
    assert (one.seconds, late.seconds) == pytest.approx((5.0, 2.0), abs=0.2)


def test_limits_of_each_solver():
    setting = Setting()
    one = setting.add("one")
    late = setting.add("late", Terms(after=0.5))
    setting.run(most=0.5)
    assert one.seconds == pytest.approx(0.5, abs=PARAMETERS.slice_seconds)
    assert late.seconds == 0


def test_it_ends_with_its_solvers_or_by_request():
    setting = Setting()
    one, other = setting.add("one"), setting.add("other")
    one.is_over = other.is_over = True
    setting.run()
    one.is_over = False
    setting.run(is_done=lambda: len(setting.log) == 3)
    assert setting.log == ["one"] * 3
