"""Ctrl-C in a program that uses the library: work winds down, and what is known is not lost."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from contextlib import suppress

import numpy as np
import pytest

import oocbe
from oocbe.bounds.forbidden import Row
from oocbe.bounds.linear_program import LinearProgram
from oocbe.errors import RequestedEndError
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM
from oocbe.runtime import interruption
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.interruption import Interruption, heard, listening
from oocbe.search import bounded
from tests.helpers.small_problems import clique

SETTINGS = {"order_seconds": 0.0, "backend": "cpu"}
LONG = 60.0
"""Seconds that nobody waits for: what takes them has to be ended."""

pytestmark = pytest.mark.usefixtures("interrupts_heard")


class Pressing(oocbe.Observer):
    """Presses Ctrl-C when a bucket is done, or when an assignment is known."""

    def __init__(self, bucket=None, times=1):
        self.bucket, self.times, self.left, self.known = bucket, times, times, []
        self.result = None

    def press(self):
        if self.left == self.times:
            for _ in range(self.times):
                self.left -= 1
                signal.raise_signal(signal.SIGINT)

    def bucket_done(self, number, *_):
        if number == self.bucket:
            self.press()

    def bounds_changed(self, lower, value, why, assignment):
        self.known.append((lower, value, assignment))
        if self.bucket is None and assignment is not None:
            self.press()

    def finished(self, result):
        self.result = result


def interrupted(verb, *arguments, **options):
    with pytest.raises(oocbe.Interrupted, match="interrupted by Ctrl-C") as caught:
        verb(*arguments, **SETTINGS, **options)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1
    assert "oocbe-signals" not in [thread.name for thread in threading.enumerate()]
    return caught.value.result


@pytest.mark.parametrize("semiring", [None, MAX_SUM])
def test_a_solve_returns_bound_and_assignment(semiring):
    problem = clique(12, 6)
    if semiring is not None:
        problem = problem.in_semiring(semiring)
    pressing = Pressing()
    result = interrupted(oocbe.solve, problem, observer=pressing, bounds="constant")
    assert (result.status, result.exit_code) == ("interrupted", 130)
    assert result.notes[-1] == "interrupted by Ctrl-C"
    assert problem.evaluate(result.assignment) == result.value
    assert result.value in [value for _, value, _ in pressing.known]
    assert result.bound is None or (result.bound <= result.value) == (semiring is None)
    assert result.gap is None or result.gap == abs(result.value - result.bound)
    assert pressing.result == result
    assert result.to_json()["status"] == "interrupted"


def test_the_observer_gets_every_assignment():
    problem = clique(9, 4)
    for semiring in (None, MAX_SUM):
        told = problem if semiring is None else problem.in_semiring(semiring)
        listening = Pressing(bucket=-1)
        result = oocbe.solve(told, observer=listening, bounds="constant", **SETTINGS)
        assert listening.known[-1][2] == result.assignment
        assert all(value is None or told.evaluate(a) == value for _, value, a in listening.known)


def test_the_observer_of_an_explanation_gets_assignments_of_the_whole_problem():
    """Evidence leaves fewer variables to be searched."""
    problem = probabilities(clique(9, 4, has_forbidden=False)).with_evidence({2: 1})
    listening = Pressing(bucket=-1)
    result = oocbe.most_probable_explanation(problem, observer=listening, bounds="constant", **SETTINGS)
    found = [a for _, _, a in listening.known if a is not None]
    assert found[-1] == result.assignments[0][1]
    assert all(len(a) == 9 and a[2] == 1 for a in found)


def probabilities(problem):
    functions = tuple(oocbe.Function(f.scope, f.tuples, (f.values + 1) / 101, f.default) for f in problem.functions)
    return Problem(problem.variables, functions, semiring=MAX_PRODUCT, name="network")


def test_a_solve_without_bounds_says_that_nothing_is_known():
    result = interrupted(oocbe.solve, clique(9, 4), observer=Pressing(bucket=2), bounds="none")
    assert (result.status, result.value, result.bound, result.assignment) == ("interrupted", None, None, None)
    assert result.to_json()["sense"] == "min"


def test_assignments_found_beside_elimination_under_a_time_limit_are_returned(monkeypatch):
    problem, pressing = clique(9, 4), Pressing(bucket=2)
    found = pressing.press

    def when_found():
        incumbents[0]._thread.join(LONG)
        found()

    incumbents = []
    search = oocbe.search.incumbent_search.SearchBeside

    def remembered(*arguments):
        incumbents.append(search(*arguments))
        return incumbents[-1]

    monkeypatch.setattr("oocbe.search.incumbent_search.SearchBeside", remembered)
    pressing.press = when_found
    result = interrupted(oocbe.solve, problem, observer=pressing, bounds="none", time_limit=10 * LONG)
    assert (result.status, problem.evaluate(result.assignment)) == ("interrupted", result.value)


@pytest.mark.parametrize("task", ["count", "count_optimal", "k_best", "log_partition", "marginals", "min_marginals"])
def test_a_task_says_that_it_was_interrupted(task):
    # The junction tree that answers marginals has one clique.
    bucket = 1 if task == "marginals" else 3
    result = interrupted(getattr(oocbe, task), clique(9, 3), observer=Pressing(bucket=bucket))
    content = result.to_json()
    assert (result.status, result.exit_code) == ("interrupted", 130)
    assert (content["value"], content["notes"]) == (None, ["interrupted by Ctrl-C"])


def test_an_explanation_returns_what_is_known():
    problem = probabilities(clique(12, 6, has_forbidden=False))
    result = interrupted(oocbe.most_probable_explanation, problem, observer=Pressing(), bounds="constant")
    ((value, assignment),) = result.assignments
    assert result.status == "interrupted"
    assert np.log(problem.evaluate(assignment)) == pytest.approx(value)


def test_a_bound_returns_the_z_that_were_done():
    problem = clique(9, 4)

    class Second(Pressing):
        def bucket_done(self, number, *_):
            if number == 1:
                self.known.append(number)
                if len(self.known) == 3:
                    self.press()

    result = interrupted(oocbe.bound, problem, [2, 3, 4], observer=Second())
    assert (result.status, result.exit_code) == ("interrupted", 130)
    assert [entry.z for entry in result.entries] == [2, 3]
    assert result.to_json()["bound"] == max(entry.bound for entry in result.entries)
    assert problem.evaluate(result.best.assignment) == result.best.incumbent
    nothing = interrupted(oocbe.bound, problem, [2], observer=Pressing(bucket=1))
    assert (nothing.status, nothing.entries, nothing.to_json()["assignment"]) == ("interrupted", (), None)


def test_an_end_that_came_first_is_carried_as_well():
    """Ctrl-C is never swallowed, and neither is what was proven by then."""

    class Late(oocbe.Observer):
        def finished(self, result):
            signal.raise_signal(signal.SIGINT)

    result = interrupted(oocbe.solve, clique(5, 3), observer=Late())
    assert result.status == "optimal"


def test_a_second_signal_ends_at_once():
    with pytest.raises(KeyboardInterrupt) as caught:
        oocbe.solve(clique(12, 6), observer=Pressing(times=2), bounds="constant", **SETTINGS)
    assert not isinstance(caught.value, oocbe.Interrupted)


def test_work_that_does_not_look_up_is_torn_out_and_what_is_known_is_kept(monkeypatch):
    def endless(*arguments):
        signal.raise_signal(signal.SIGINT)
        time.sleep(LONG)
        ended.append(True)

    ended: list[bool] = []
    problem, pressing = clique(12, 6), Pressing(bucket=-1)
    monkeypatch.setattr(bounded.BoundedSolve, "_search_below", endless)
    result = interrupted(oocbe.solve, problem, observer=pressing, bounds="constant")
    assert not ended
    assert result.status == "interrupted"
    assert problem.evaluate(result.assignment) == result.value
    assert result.bound == pressing.known[-1][0]


def test_a_run_that_is_interrupted_publishes_what_is_known_and_goes_on(tmp_path):
    problem = clique(9, 4)
    expected = oocbe.solve(problem, **SETTINGS).value
    options = {"bounds": "constant", "workdir": tmp_path}
    result = interrupted(oocbe.solve, problem, observer=Pressing(), **options)
    again = oocbe.solve(problem, resume=True, incumbent_seconds=0, time_limit=0, **SETTINGS, **options)
    assert again.status == "limit" and again.value <= result.value
    assert oocbe.solve(problem, resume=True, **SETTINGS, **options).value == expected


def test_compiled_code_hears_of_a_signal_while_python_cannot(monkeypatch):
    """The main thread is in one call of C code that holds no interpreter lock."""
    seen = threading.Event()

    def press(deadline):
        interruption.send(signal.SIGINT)
        end = time.monotonic() + LONG
        while time.monotonic() < end and not deadline.flag[0]:
            time.sleep(0.001)
        if is_busy:
            seen.set()

    monkeypatch.setattr(interruption, "GRACE_SECONDS", LONG)
    is_busy = True
    with listening() as heard_by, Deadline() as deadline:
        pressing = threading.Thread(target=press, args=(deadline,))
        pressing.start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)  # a third of a second or more
        is_busy = False
        pressing.join()
        assert seen.is_set()
        assert heard_by.number == signal.SIGINT
        assert deadline.remaining == 0
        with pytest.raises(RequestedEndError, match="interrupted by Ctrl-C"):
            deadline.check()
        with Deadline(LONG) as later:
            assert later.flag[0] == 1 and later.passed


def test_a_handler_of_the_program_itself_is_left_alone():
    arrived = []
    before = signal.signal(signal.SIGINT, lambda *_: arrived.append(1))
    try:
        result = oocbe.solve(clique(9, 4), observer=Pressing(bucket=2), bounds="none", **SETTINGS)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (result.status, arrived) == ("optimal", [1])


def test_other_threads_hear_nothing():
    found = []
    thread = threading.Thread(target=lambda: found.append(oocbe.solve(clique(5, 3), **SETTINGS).status))
    thread.start()
    thread.join()
    assert found == ["optimal"]


def test_the_solver_of_linear_programs_is_ended_in_the_middle():
    """With 400 literals and random rows it takes thousands of iterations."""
    random = np.random.default_rng(0)
    count = 800
    with heard({signal.SIGINT: KeyboardInterrupt}) as made:
        first = np.arange(0, count, 2)
        program = LinearProgram(
            -random.random(count), np.repeat(np.arange(count // 2), 2), first, np.zeros(count, np.uint8)
        )
        program.add(
            [Row.of(random.choice(np.arange(1, count, 2), 12, replace=False), 1, "clique") for _ in range(2000)]
        )
        made.defer()
        made.request(signal.SIGINT)
        assert not program.solve(LONG)
        assert not program.is_infeasible


def test_an_exception_that_was_swallowed_is_raised_again():
    with heard({signal.SIGINT: KeyboardInterrupt}):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            time.sleep(LONG)


def test_one_that_is_on_its_way_is_not(monkeypatch):
    monkeypatch.setattr(interruption, "GRACE_SECONDS", 0.01)
    cleaned = []
    with heard({signal.SIGINT: KeyboardInterrupt}) as made, pytest.raises(KeyboardInterrupt):
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            made._insisting.join(LONG)
            time.sleep(0.1)
            cleaned.append(1)
    assert cleaned == [1]


def test_a_signal_whose_exception_was_swallowed_is_heeded_when_work_begins():
    """As some modules do with whatever is raised while they load."""
    with heard({signal.SIGINT: KeyboardInterrupt}) as made:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not made.is_requested
        with listening() as same, Deadline() as deadline:
            assert same is made and made.is_requested and deadline.passed


def test_code_that_answers_an_interruption_with_an_error_of_its_own_is_torn_out_all_the_same(monkeypatch):
    """As modules written in C do while they load."""

    def endless(*arguments):
        signal.raise_signal(signal.SIGINT)
        with suppress(KeyboardInterrupt):
            time.sleep(LONG)
        raise ImportError("it failed to import")

    problem = clique(12, 6)
    monkeypatch.setattr(bounded.BoundedSolve, "_search_below", endless)
    result = interrupted(oocbe.solve, problem, bounds="constant")
    assert result.status == "interrupted"
    assert problem.evaluate(result.assignment) == result.value


def test_work_that_ends_by_itself_after_all_is_not_interrupted_once_more(monkeypatch):
    monkeypatch.setattr(interruption, "GRACE_SECONDS", 0.05)
    with heard({signal.SIGINT: KeyboardInterrupt}) as made:
        with made.at_work():
            signal.raise_signal(signal.SIGINT)
            with suppress(KeyboardInterrupt):  # swallowed
                time.sleep(LONG)
        assert made.is_overdue and made.caused(RequestedEndError("the deadline came"))
        time.sleep(0.2)  # output is written here


@pytest.mark.parametrize("is_heeded", [False, True])
def test_signals_of_our_own_are_never_taken_for_a_second_one_of_the_users(monkeypatch, is_heeded):
    """Work is overdue in the moment in which an exception that was swallowed is sent anew."""
    sent = []
    monkeypatch.setattr(interruption, "send", sent.append)
    made = Interruption({signal.SIGINT: KeyboardInterrupt})
    with made.at_work():
        made.arrived(signal.SIGINT)
        made._hurry()
        with pytest.raises(KeyboardInterrupt):
            made.arrived(sent.pop())
        made._insist(signal.SIGINT)
        if is_heeded:
            made.heed()
        made._hurry()
        raised = 0
        for number in sent:
            try:
                made.arrived(number)
            except KeyboardInterrupt:
                raised += 1
        assert raised == 1
        assert made.caused(KeyboardInterrupt())


def test_a_listener_that_begins_after_its_end_ends():
    """A signal during its start ends the block before the thread begins; it printed a trace on standard error."""
    reading, theirs = os.pipe()
    os.close(theirs)
    ours = os.fdopen(reading, "rb", buffering=0)
    ours.close()
    interruption._listen(ours, Interruption({}))
