"""The differential tests of .mps, .lp and .cnf hold for some cases, and find a reader that is wrong."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oocbe.model.linear_system import LinearSystem
from oocbe.model.problem import Problem
from tools.fuzzing.outcome import Tally
from tools.fuzzing.runner import check_case, draw_case

PEERS = {"mps": "highspy", "lp": "highspy", "cnf": "pyganak"}


def damaged(model: LinearSystem | Problem) -> LinearSystem | Problem:
    """A model in which a bound, or a constraint, is lost."""
    if isinstance(model, Problem):
        return replace(model, constraints=model.constraints[1:])
    return replace(model, upper=model.upper + 1)


@pytest.mark.parametrize("mode", PEERS)
def test_cases_hold_and_a_wrong_reader_is_found(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(PEERS[mode])
    tally = Tally()
    cases = [draw_case(mode, 0, 0, number) for number in range(12)]
    assert [failure for case in cases if (failure := check_case(case, tally))] == []
    assert tally.checks > 100
    module = importlib.import_module("oocbe.formats.dimacs" if mode == "cnf" else f"oocbe.formats.{mode}")
    name = "parse_cnf" if mode == "cnf" else "parse"
    real: Callable[[Any], Any] = getattr(module, name)
    monkeypatch.setattr(module, name, lambda text: damaged(real(text)))
    assert any(check_case(case) for case in cases)


@pytest.mark.parametrize("mode", PEERS)
def test_smaller_cases_are_cases(mode: str) -> None:
    pytest.importorskip(PEERS[mode])
    module = importlib.import_module(f"tools.fuzzing.formats.{mode}")
    drawn = (draw_case(mode, 1, 0, number) for number in range(20))
    case, smaller = next((case, smaller) for case in drawn if (smaller := list(module.smaller(case))))
    assert all(other.keys() == case.keys() and other["text"] != case["text"] for other in smaller)
