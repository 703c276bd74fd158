"""The benchmark of tasks runs from its command, checks its answers, and notices wrong ones."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from oocbe.formats import write
from oocbe.stress import Spot5Settings, spot5_day

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "tasks.py"


@pytest.fixture
def check(monkeypatch):
    """The benchmark's check; the modules beside it go by plain names, which others use as well."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return runpy.run_path(str(SCRIPT))["check"]


@pytest.fixture
def folder(tmp_path):
    """A folder of instances with one tiny day, called 54 as a real one is."""
    (tmp_path / "spot5").mkdir()
    write(spot5_day(Spot5Settings(photographs=10, seed=3)), tmp_path / "spot5" / "54.spot")
    return tmp_path


def test_tasks_are_measured_and_checked(folder, run_benchmark):
    given = ("--instances", "54", "--tasks", "count,kbest", "--independent", "0.1", "--k", "5", "--markdown")
    done = run_benchmark("tasks", folder, *given)
    assert done.returncode == 0, done.stderr
    assert [line.split(" | ")[1] for line in done.stdout.splitlines()[2:4]] == ["count", "kbest"]
    assert "54: the independent counter agrees on the count" in done.stdout


def test_a_wrong_optimum_is_noticed(folder, run_benchmark):
    entry = {"spot5/54.spot": {"status": "optimal", "minimum": -1}}
    (folder / "optima.json").write_text(json.dumps(entry))
    done = run_benchmark("tasks", folder, "--instances", "54", "--tasks", "count-optimal")
    assert done.returncode == 1
    assert "wrong: 54: the optimum is -1" in done.stderr


RIGHT = {
    "count": {"value": "6"},
    "independent": {"value": "6"},
    "count-optimal": {"value": "2", "optimum": 3},
    "kbest": {"values": [3, 3, 5], "right": True, "distinct": 3},
    "logz": {"value": -2.0},
    "marginals": {"sums": [1.0], "counts": ["2", "4"], "ratios": [1 / 3, 2 / 3]},
}
WRONG = [
    ({"independent": {"value": "7"}}, "the count is not 7"),
    ({"kbest": {**RIGHT["kbest"], "values": [3, 5, 4]}}, "do not begin with the optimum"),
    ({"kbest": {**RIGHT["kbest"], "right": False}}, "not distinct and right"),
    ({"kbest": {**RIGHT["kbest"], "distinct": 2}}, "not distinct and right"),
    ({"kbest": {**RIGHT["kbest"], "values": [3, 3]}}, "too few"),
    ({"count-optimal": {"value": "3", "optimum": 3}}, "3 of the k best must be optimal"),
    ({"logz": {"value": -2.3}}, "below that of the k best"),
    ({"logz": {"value": 0.0}}, "above count times the largest"),
    ({"marginals": {**RIGHT["marginals"], "sums": [0.9]}}, "do not sum to 1"),
    ({"marginals": {**RIGHT["marginals"], "counts": ["2", "5"]}}, "do not sum to the count"),
    ({"marginals": {**RIGHT["marginals"], "ratios": [0.5, 0.5]}}, "not ratios of counts"),
]


def test_right_answers_pass(check):
    assert check("no instance", RIGHT, 3, 1.0) == []


@pytest.mark.parametrize(("changed", "sentence"), WRONG)
def test_wrong_answers_are_noticed(check, changed, sentence):
    assert any(sentence in found for found in check("no instance", {**RIGHT, **changed}, 3, 1.0))
