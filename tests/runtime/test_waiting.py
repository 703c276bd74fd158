"""Waiting in attempts: until one succeeds, or something ends the wait."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import time
from concurrent.futures import Future

import pytest

from oocbe.errors import TimeLimitError
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.waiting import LOOK_UP_SECONDS, interruptibly, wait_for


def test_attempts_go_on_until_one_succeeds_and_are_checked_between():
    seen = []

    def attempt(seconds):
        seen.append(seconds)
        if seen.count(seconds) < 3:
            raise TimeoutError
        return "done"

    assert wait_for(attempt, TimeoutError, lambda: seen.append("check")) == "done"
    assert seen == ["check", LOOK_UP_SECONDS] * 3


def test_a_check_ends_the_wait():
    def attempt(seconds):
        raise TimeoutError

    calls = iter([None, None, KeyError("stopped")])

    def check():
        if (error := next(calls)) is not None:
            raise error

    with pytest.raises(KeyError, match="stopped"):
        wait_for(attempt, TimeoutError, check)


def test_other_errors_of_an_attempt_pass_through():
    def attempt(seconds):
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        wait_for(attempt, TimeoutError)


def test_foreign_code_returns_or_raises():
    ran = []
    interruptibly(lambda: ran.append(threading.current_thread()))
    assert ran and ran[0] is not threading.current_thread()
    for error in (ValueError("wrong"), TimeoutError("its own")):
        with pytest.raises(type(error), match=str(error)):
            interruptibly(functools.partial(raising, error))


def test_foreign_code_that_ends_just_after_a_wait_is_done(monkeypatch):
    """The wait is over, and before anybody looks so is the work."""
    waited = Future.result

    def too_late(future, timeout=None):
        if timeout is None:
            return waited(future)
        while not future.done():
            time.sleep(0.001)
        raise TimeoutError

    monkeypatch.setattr(Future, "result", too_late)
    interruptibly(lambda: None)
    with pytest.raises(ValueError, match="wrong"):
        interruptibly(functools.partial(raising, ValueError("wrong")))


def raising(error):
    raise error


def test_a_deadline_does_not_wait_for_foreign_code():
    release = threading.Event()
    with Deadline(0.05), pytest.raises(TimeLimitError):
        interruptibly(release.wait)
    release.set()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_handlers_that_foreign_code_replaces_are_put_back():
    """In a process of its own: where they were not, it would be killed."""
    program = """
import ctypes, signal, time
from oocbe.runtime.waiting import interruptibly
signal.signal(signal.SIGTERM, lambda number, frame: print("heard"))
def foreign():
    ctypes.CDLL(None).signal(signal.SIGTERM, None)  # the system's own: it kills
    time.sleep(1.0)
    signal.raise_signal(signal.SIGTERM)
    time.sleep(0.1)
interruptibly(foreign)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "heard\n"), done.stderr
