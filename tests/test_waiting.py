"""Waiting in attempts: until one succeeds, or something ends the wait."""

from __future__ import annotations

import pytest

from oocbe.system.waiting import LOOK_UP_SECONDS, wait_for


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
