"""Time limits: what they cover, and that nothing is left of them."""

import sys
import threading
import time
from functools import partial

import numpy as np
import pytest

import oocbe
from oocbe.bounds.estimators import constant_source
from oocbe.bounds.forbidden import cost_limits, removed_values
from oocbe.bounds.mini_buckets import mini_buckets_bound
from oocbe.bounds.mini_buckets.mini_buckets import shape_of
from oocbe.bounds.row_tables import ScopeTables
from oocbe.elimination.plan import plan
from oocbe.elimination.preparation.packing import is_packing
from oocbe.elimination.preparation.penalties import forbid_penalties
from oocbe.elimination.row_pruning.row_bounds import FixedPoint
from oocbe.errors import TimeLimitError, UnsupportedError
from oocbe.junction_trees import compiled
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.compilation import Compilation
from oocbe.runtime.deadline import Deadline, current, keeping
from tests.helpers.bound_sources import bound_sources

FAST = {"order_seconds": 0.0, "backend": "cpu"}


def cycle(count=6, semiring=MAX_SUM):
    functions = tuple(Function.from_array((v, (v + 1) % count), [[0, 3], [2, 1]]) for v in range(count))
    return Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), functions, semiring=semiring, name="cycle")


def timers():
    return [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def ended(thread):
    thread.join(10.0)
    return not thread.is_alive()


@pytest.mark.parametrize("seconds", [1e10, 1e300, float("inf")])
def test_limits_longer_than_a_timer_can_wait(seconds):
    before = len(timers())
    with Deadline(seconds) as deadline:
        assert not deadline.passed
        assert deadline.remaining > 1e9
        deadline.check()
    assert len(timers()) == before
    if seconds < 1e300:
        assert oocbe.solve(cycle(), time_limit=seconds, **FAST).value == oocbe.solve(cycle(), **FAST).value


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_prompt_or_a_notebook_says_that_it_compiles(is_asked, monkeypatch, capsys):
    """Once for each process; a first call took a minute without a word."""
    (monkeypatch.setattr if is_asked else monkeypatch.delattr)(sys, "ps1", *["> "][:is_asked], raising=False)
    compilation = Compilation()
    for _ in range(2):
        compilation.begin()
        compilation.end()
    assert capsys.readouterr().err.count("compiling, once for this machine") == is_asked


def test_a_limit_that_has_come():
    with Deadline(0.0) as deadline:
        assert deadline.passed
        with pytest.raises(TimeLimitError):
            deadline.check()


@pytest.mark.parametrize("nested", [False, True])
def test_a_limit_that_comes_while_loops_are_compiled_says_what_to_do(monkeypatch, nested):
    compiling = Compilation()
    monkeypatch.setattr("oocbe.runtime.compilation.compilation", compiling)
    with Deadline(0.0) as outer:
        compiling.begin()  # and is not done when the moment has come
        time.sleep(0.02)
        with Deadline(0.0) as inner, pytest.raises(TimeLimitError, match=r" s went into compiling .*`oocbe warm-up`"):
            (inner if nested else outer).check()
    compiling.end()


def test_a_limit_says_nothing_of_compiling_that_hardly_took_a_part_of_it(monkeypatch):
    compiling = Compilation()
    monkeypatch.setattr("oocbe.runtime.compilation.compilation", compiling)
    compiling.begin()
    compiling.end()
    with Deadline(0.0) as deadline:
        time.sleep(0.02)
        assert deadline.reason == "the time limit was reached"


TASKS = {
    "count": oocbe.count,
    "count-optimal": oocbe.count_optimal,
    "kbest": lambda problem, **options: oocbe.k_best(problem, 2, **options),
    "logz": oocbe.log_partition,
    "marginals": oocbe.marginals,
    "min-marginals": oocbe.min_marginals,
    "bound": lambda problem, **options: oocbe.bound(problem, 2, **options),
}


@pytest.mark.parametrize("task", TASKS)
def test_tasks_leave_no_timer(task):
    before = timers()
    TASKS[task](cycle(), time_limit=3600.0, **FAST)
    assert all(ended(timer) for timer in timers() if timer not in before)


def test_no_deadline_leaves_a_timer():
    """Also without a block; one thread for each solve was left until its limit."""
    before = timers()
    with Deadline(3600.0):
        Deadline()
    assert all(ended(timer) for timer in timers() if timer not in before)


def test_tasks_that_fail_leave_no_timer(monkeypatch):
    def fail(*args, **more):
        raise UnsupportedError("no")

    before = timers()
    monkeypatch.setattr("oocbe.api.tasks.tables.Race.rounds", fail)
    with pytest.raises(UnsupportedError, match="no"):
        oocbe.count(cycle(), time_limit=3600.0, tables="incomplete", **FAST)
    assert all(ended(timer) for timer in timers() if timer not in before)


@pytest.mark.parametrize("task", TASKS)
def test_the_search_for_an_order_is_within_the_limit(task, monkeypatch):
    """It gets the seconds that are left and the deadline, however long it was allowed to take."""
    asked = []

    def recorded(module):
        search = module.search_orders

        def record(problem, wanted, seconds, seed, **more):
            asked.append((seconds, more.get("longest", 0.0), more.get("deadline")))
            return search(problem, wanted, 0.0, seed)

        monkeypatch.setattr(module, "search_orders", record)

    recorded(plan)
    recorded(mini_buckets_bound)
    recorded(compiled)
    TASKS[task](cycle(), time_limit=60.0, order_seconds=1000.0, backend="cpu", tables="incomplete")
    seconds, longest, deadline = asked[0]
    assert seconds <= 60 and longest <= 60
    assert deadline is not None and deadline.remaining <= 60


def test_no_order_is_tried_after_the_limit(monkeypatch):
    monkeypatch.setattr(time, "monotonic", iter(np.arange(0.0, 1e6, 50.0).tolist()).__next__)
    with pytest.raises(TimeLimitError):
        plan.candidate_orders(cycle(), SolveOptions(bounds="none"), Deadline(100.0))


def test_a_plan_looks_at_the_deadline():
    problem = cycle(40)
    choice = plan.easy_orders(problem, SolveOptions(order_seconds=0.0))[0]
    assert len(plan.plan_for(problem, problem.semiring, choice).buckets) == 40
    with Deadline(0.0), pytest.raises(TimeLimitError):
        plan.plan_for(problem, problem.semiring, choice)


@pytest.mark.parametrize(
    "step",
    [
        FixedPoint.of,
        cost_limits,
        removed_values,
        constant_source,
        partial(bound_sources, seconds=1.0),
        ScopeTables.of,
        partial(is_packing, are_penalties_hard=True),
        lambda problem: shape_of([f.scope for f in problem.functions], range(3), 2),
    ],
)
def test_what_goes_over_all_functions_looks_at_the_deadline(step):
    """A problem may have a million of them, and each step is some microseconds of each."""
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(3)),
        tuple(Function.from_array((v, (v + 1) % 3), np.array([[0, 3], [3, 1]])) for v in range(3)),
        upper_bound=9,
    )
    step(problem)
    with Deadline(0.0), pytest.raises(TimeLimitError):
        step(problem)
    with Deadline(0.0):
        assert forbid_penalties(problem, SolveOptions()).problem is problem


def test_steps_before_a_search_keep_it_some_of_the_time():
    with Deadline(100.0) as outer:
        with keeping(30.0):
            assert 60 < current().remaining <= 70
        with keeping(1000.0):
            assert 15 < current().remaining <= 20
        with keeping(0.0):
            assert current() is outer
    with keeping(30.0):
        assert current() is None
