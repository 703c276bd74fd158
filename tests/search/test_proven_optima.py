"""Real instances end in their known optimum, with an assignment that the verifier accepts."""

from __future__ import annotations

import json

import pytest

import oocbe
from oocbe.formats.solutions import write_solution

SMALL = [
    *(f"spot5/{name}.spot" for name in (8, 54, 404, 503, 1502)),
    *(f"wcsp/random/{number}.wcsp" for number in (0, 3, 7)),
    "wcsp/iscas89/s386.wcsp",
    "wcsp/mastermind/mastermind_03_08_03.wcsp",
]
"""Some of each kind."""
MORE = [
    *(f"spot5/{name}.spot" for name in (29, 505, 42)),
    *(f"wcsp/random/{number}.wcsp" for number in (1, 2, 4, 5, 6, 8, 9)),
]
LARGE = ["spot5/5.spot", "spot5/412.spot"]


def check(data, name: str, tmp_path, **options) -> oocbe.Result:
    """Solve, compare, and judge the written solution against the original file."""
    optimum = json.loads(data("optima.json").read_text())[name]
    file = data(name)
    result = oocbe.solve(file, **options)
    assert (result.status, result.value) == ("optimal", optimum["minimum"])
    solution = tmp_path / "solution.json"
    write_solution(result, solution)
    verdict = oocbe.verify(file, solution)
    assert verdict.accepted, verdict.violations
    assert verdict.value == optimum["minimum"]
    return result


@pytest.mark.parametrize("name", SMALL)
def test_small(name, data, tmp_path):
    check(data, name, tmp_path)


@pytest.mark.slow
def test_a_recorder_capacity_that_binds(data, tmp_path):
    """The optimum without it is one less, and takes more than there is room for."""
    assert check(data, "spot5/1504.spot", tmp_path).linear_constraints == "enforced"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MORE, *LARGE])
def test_large(name, data, tmp_path):
    """Others of the same kinds; scopes beyond 64 bits, or millions of rows."""
    check(data, name, tmp_path)


@pytest.mark.parametrize(
    "name", ["spot5/54.spot", pytest.param("spot5/404.spot", marks=pytest.mark.slow), "wcsp/random/3.wcsp"]
)
def test_without_dominance_or_through_the_disk(name, data, tmp_path):
    check(data, name, tmp_path, dominance=False)
    check(data, name, tmp_path, workdir=tmp_path / "work", chunk_rows=50, order="min-degree")
    assert not list((tmp_path / "work").glob("order-*"))


def test_a_recorder_capacity_is_enforced(data, tmp_path):
    result = check(data, "spot5/1502.spot", tmp_path)
    assert result.linear_constraints == "enforced"
    assert any("recorder capacity" in note and "of 200 are used" in note for note in result.notes)
