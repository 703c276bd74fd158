"""Reading SPOT5 instances: meaning, and every kind of damage with its line."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest

from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import read, spot
from oocbe.model.parts import Function, Variable
from oocbe.model.photographs import ImagingDay, Photograph
from oocbe.model.problem import Problem

GOOD = """3
0 10 3 1 0 2 0 3 0 42510 1
7 20 1 13 0
2 5 2 1 0 2 0
2
2 0 7 1 13 3 13
3 0 7 2 1 13 2
"""

ORBITS = """2
0 1000 1 2 451.15
1 1 3 1 0 2 902.0 3 45100
2
2 0 1 2 1
90000
"""


def read_text(folder: Path, content: str, name: str = "p.spot"):
    path = folder / name
    path.write_text(content)
    return read(path)


def test_meaning(tmp_path):
    problem = read_text(tmp_path, GOOD)
    assert problem.name == "p"
    assert [v.name for v in problem.variables] == ["0", "7", "2"]
    assert [v.labels for v in problem.variables] == [("0", "1", "2", "3"), ("0", "13"), ("0", "1", "2")]
    assert problem.evaluate((0, 0, 0)) == 35
    assert problem.evaluate((1, 0, 2)) == 20
    assert problem.evaluate((1, 1, 2)) is None  # 1 13 is forbidden
    assert problem.evaluate((3, 1, 0)) is None  # 3 13 is forbidden
    assert problem.evaluate((2, 1, 0)) == 5
    assert problem.evaluate((2, 1, 1)) == 0
    assert not any(c.allowed for c in problem.constraints)
    assert problem.linear_constraints == ()


def test_a_ternary_tuple_binds_only_when_all_are_taken(tmp_path):
    problem = read_text(tmp_path, GOOD.replace("3 0 7 2 1 13 2", "3 0 7 2 2 13 2"))
    assert problem.evaluate((2, 1, 2)) is None
    assert problem.evaluate((2, 1, 0)) == 5


def test_recorder_capacity(tmp_path):
    problem = read_text(tmp_path, ORBITS)
    (capacity,) = problem.linear_constraints
    assert capacity.name == "recorder capacity"
    assert capacity.capacity == 200
    assert [c.tolist() for c in capacity.coefficients] == [[0, 1], [0, 0, 2, 100]]
    assert len(problem.constraints) == 1
    assert not capacity.can_bind


@pytest.mark.parametrize("written", [20000, 0, 89999, 90001, 200, -90000])
def test_another_capacity_is_refused_with_its_line(tmp_path, written):
    with pytest.raises(FormatError, match=f"line 6: found (a recorder capacity of )?{written}, expected"):
        read_text(tmp_path, ORBITS.replace("90000", str(written)))


def test_a_capacity_need_not_be_written(tmp_path):
    problem = read_text(tmp_path, ORBITS.replace("\n2\n2 0 1 2 1\n90000", "\n1\n2 0 1 2 1"))
    assert [c.capacity for c in problem.linear_constraints] == [200]


def test_a_capacity_beside_less_than_a_unit(tmp_path):
    problem = read_text(tmp_path, "1\n0 5 1 1 0.25\n1\n90000\n")
    assert problem.linear_constraints == () and problem.constraints == ()


def test_the_capacity_of_a_real_instance(tmp_path, data):
    text = data("spot5/1504.spot").read_text()
    assert text.rstrip().endswith("\n90000")
    with pytest.raises(FormatError, match="found a recorder capacity of 20000, expected 90000"):
        read_text(tmp_path, text.rstrip().removesuffix("90000") + "20000\n")


def test_windows_line_ends_and_blank_lines(tmp_path):
    plain = read_text(tmp_path, GOOD)
    other = read_text(tmp_path, GOOD.replace("\n", "\r\n\r\n"))
    assert [v.labels for v in other.variables] == [v.labels for v in plain.variables]
    assert all(np.array_equal(a.tuples, b.tuples) for a, b in zip(plain.constraints, other.constraints, strict=True))


def test_constraints_one_by_one_are_the_same(tmp_path, data, monkeypatch):
    paths = [data("spot5/1502.spot"), data("spot5/503.spot"), tmp_path / "p.spot"]
    paths[-1].write_text(GOOD)
    at_once = [read(path).constraints for path in paths]
    monkeypatch.setattr(spot, "_constraints_at_once", lambda *_: None)
    for path, together in zip(paths, at_once, strict=True):
        one_by_one = read(path).constraints
        assert [c.scope for c in one_by_one] == [c.scope for c in together]
        assert all(np.array_equal(a.tuples, b.tuples) for a, b in zip(one_by_one, together, strict=True))


DAMAGE = {
    "truncated photographs": ("\n".join(GOOD.split("\n")[:3]), 3, "ends after 2 photographs, expected 3"),
    "no constraints at all": ("\n".join(GOOD.split("\n")[:4]), 4, "expected the number of constraints"),
    "truncated constraints": ("\n".join(GOOD.split("\n")[:6]), 6, "ends after 1 constraints, expected 2"),
    "truncated line": (GOOD[: GOOD.rindex(" 13 2")], 7, "expected one or more tuples of 3"),
    "a photograph too few declared": (GOOD.replace("3\n0 10", "2\n0 10"), 4, "expected the number of constraints"),
    "a constraint too few declared": (GOOD.replace("\n2\n2 0", "\n1\n2 0"), 7, "after the 1 constraints"),
    "too few values": (GOOD.replace("7 20 1 13 0", "7 20 2 13 0"), 3, "expected 4: value, consumption"),
    "unknown value": (GOOD.replace("1 13 3 13", "1 13 4 13"), 6, "found 4 in a tuple, expected a value"),
    "left out in a tuple": (GOOD.replace("1 13 3 13", "0 13 3 13"), 6, "found 0 in a tuple, expected a value"),
    "unknown photograph": (GOOD.replace("2 0 7", "2 0 8"), 6, "found photograph 8, expected one of those"),
    "variable twice in a scope": (GOOD.replace("2 0 7", "2 0 0"), 6, "photograph twice in [0, 0], expected different"),
    "tuple twice": (GOOD.replace("1 13 3 13", "1 13 1 13"), 6, "tuple (1, 13) a second time, expected each tuple once"),
    "id twice": (GOOD.replace("7 20 1", "0 20 1"), 3, "photograph 0 a second time, expected each id once"),
    "value twice": (GOOD.replace("1 0 2 0 3 0", "1 0 1 0 3 0"), 2, "value 1 a second time, expected each value once"),
    "value zero": (GOOD.replace("7 20 1 13", "7 20 1 0"), 3, "found 0, expected a value"),
    "negative arity": (GOOD.replace("2 0 7", "-2 0 7"), 6, "found -2, expected a constraint's number of photographs"),
    "arity zero": (GOOD.replace("2 0 7", "0 0 7"), 6, "found 0, expected a constraint's number of photographs"),
    "negative count": (GOOD.replace("3\n0", "-3\n0"), 1, "found -3, expected the number of photographs, at least 0"),
    "negative weight": (GOOD.replace("7 20", "7 -20"), 3, "found -20, expected a photograph's weight"),
    "negative consumption": (GOOD.replace("13 0\n2 5", "13 -1\n2 5"), 3, "found '-1', expected a recorder consumption"),
    "not a number": (GOOD.replace("13 3 13", "13 x 13"), 6, "found 'x', expected a constraint's field, an integer"),
    "half a number": (GOOD.replace("7 20", "7 20.5"), 3, "found '20.5', expected a photograph's weight, an integer"),
    "NaN": (
        GOOD.replace("13 0\n2 5", "13 nan\n2 5"),
        3,
        "found 'nan', expected a recorder consumption, a finite number",
    ),
    "no count on its own line": (GOOD.replace("3\n0", "3 0"), 1, "found 12 fields, expected the number of photographs"),
    "lone number without recorder": (GOOD.replace("3 0 7 2 1 13 2", "90000"), 7, "found 0 values after 90000"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage(tmp_path, kind):
    content, line, expected = DAMAGE[kind]
    assert content != GOOD
    with pytest.raises(FormatError, match=re.escape(expected)) as caught:
        read_text(tmp_path, content)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{tmp_path / 'p.spot'}, line {line}: ")


@pytest.mark.parametrize("arity", [2**63 - 1, 2**63 - 2, 2**62])
def test_an_arity_at_the_end_of_64_bits(tmp_path, arity):
    with pytest.raises(FormatError, match=f"line 4: found 0 values after {arity} photographs"):
        read_text(tmp_path, f"1\n0 5 1 1 0\n1\n{arity}\n")


def test_a_schedule_with_commas_and_quotes_is_read_back_by_csv():
    photographs = (
        Photograph('a, "b"', 3, "1,2", ("0", "13"), (0, 1)),
        Photograph("c\nd", 2, None, ("0", "1"), (0, 1)),
    )
    day = ImagingDay(photographs, None)
    rows = list(csv.reader(io.StringIO(day.csv(day.schedule((1, 0))))))
    assert rows == [
        ["photograph", "camera", "group", "weight", "memory"],
        ['a, "b"', "front and rear", "1,2", "3", "1"],
        ["c\nd", "left out", "", "2", "0"],
    ]


def test_a_cost_of_two_photographs_is_refused_without_its_table():
    """All assignments of two variables with 2^20 values take 8 TiB."""
    function = Function((0, 1), np.zeros((1, 2), dtype=np.int64), [3], default=0)
    problem = Problem((Variable("a", 2**20), Variable("b", 2**20)), (function,))
    with pytest.raises(UnsupportedError, match="single photographs, not function 0"):
        spot.render(problem)
