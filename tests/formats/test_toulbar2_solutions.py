"""Solution files as toulbar2 writes and reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import oocbe
from oocbe.errors import FormatError
from oocbe.formats.solutions import read_solution, write_solution

PROBLEM = oocbe.Problem(
    (oocbe.Variable("x", 2, ("p", "q")), oocbe.Variable("y", 3), oocbe.Variable("z", 2)),
    (
        oocbe.Function.from_array((0, 1), [[4, 3, 5], [2, 7, 1]]),
        oocbe.Function((2,), np.array([[0]]), np.array([3]), 0),
    ),
    name="three",
)


@pytest.mark.parametrize("content", ["1 2 1\n", "q 2 1\n", "x=q y=2 z=1\n", "\n 1 2 1 \n\n", "z=1 x=q y=2"])
def test_each_form_is_read_and_verified(tmp_path, content):
    (tmp_path / "s.sol").write_text(content)
    assert read_solution(tmp_path / "s.sol").assignment(PROBLEM) == (1, 2, 1)
    verdict = oocbe.verify(PROBLEM, tmp_path / "s.sol")
    assert (verdict.value, verdict.accepted) == (1, True)


def test_two_words_are_two_values_or_one_variable_with_its_value(tmp_path):
    (tmp_path / "s.sol").write_text("1 0\n")
    pair = oocbe.Problem((oocbe.Variable("1", 2), oocbe.Variable("b", 2)))
    one = oocbe.Problem((oocbe.Variable("1", 2),))
    assert read_solution(tmp_path / "s.sol").assignment(pair) == (1, 0)
    assert read_solution(tmp_path / "s.sol").assignment(one) == (0,)


@pytest.mark.parametrize(
    ("content", "said"), [("1 2\n", "no variable '1'"), ("1 2 1 1\n", "has 3 variables"), ("1 3 1\n", "no value '3'")]
)
def test_what_does_not_fit_is_said(tmp_path, content, said):
    (tmp_path / "s.sol").write_text(content)
    with pytest.raises(FormatError, match=said):
        oocbe.verify(PROBLEM, tmp_path / "s.sol")


def test_a_solution_for_toulbar2_is_read_back(tmp_path: Path):
    result = oocbe.solve(PROBLEM)
    write_solution(result, tmp_path / "s.toulbar2.sol")
    assert (tmp_path / "s.toulbar2.sol").read_text() == "1 2 1\n"
    assert oocbe.verify(PROBLEM, tmp_path / "s.toulbar2.sol").accepted
    write_solution(result, tmp_path / "s.csv")  # a spreadsheet's name had lines that no spreadsheet splits
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert lines == ["variable,value", *(f"{name},{label}" for name, label in result.labels.items())]
    assert oocbe.verify(PROBLEM, tmp_path / "s.csv").value == result.value
    (tmp_path / "s.csv").write_text("\ufeff" + "\r\n".join(lines) + "\r\n\r\n", encoding="utf-8")  # as spreadsheets do
    assert oocbe.verify(PROBLEM, tmp_path / "s.csv").value == result.value
    named = oocbe.Problem((oocbe.Variable("variable", 2), oocbe.Variable('a, "b"\r', 2)))
    write_solution(oocbe.solve(named), tmp_path / "s.csv")
    assert oocbe.verify(named, tmp_path / "s.csv").accepted, "a variable has the name of the column"
    for text in ("", "photograph,camera\n1,13\n", "variable,value\na,1\na,2\n", "variable,value\na\n"):
        (tmp_path / "s.csv").write_text(text)
        with pytest.raises(oocbe.FormatError, match=r"s\.csv: expected a line variable,value"):
            oocbe.verify(PROBLEM, tmp_path / "s.csv")


def test_toulbar2_solves_from_what_is_written_and_its_own_is_verified(tmp_path: Path):
    pytest.importorskip("pytoulbar2")
    oocbe.write(PROBLEM, tmp_path / "p.cfn")
    code = (
        "import sys, pytoulbar2\n"
        "network = pytoulbar2.CFN(verbose=-1)\n"
        "network.Read(sys.argv[1])\n"
        "print('values', *network.Solve()[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "p.cfn")], capture_output=True, text=True, check=True
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("values"))
    (tmp_path / "s.sol").write_text(line.removeprefix("values "))
    assert oocbe.verify(oocbe.read(tmp_path / "p.cfn"), tmp_path / "s.sol").value == oocbe.solve(PROBLEM).value


def test_a_line_of_labels_that_are_numbers_is_read_by_labels_throughout(tmp_path):
    """Its 1 is an index too, of another value; its 3 is none."""
    problem = oocbe.Problem(tuple(oocbe.Variable(name, 3, ("1", "2", "3")) for name in "ab"))
    (tmp_path / "s.sol").write_text("3 1\n")
    assert read_solution(tmp_path / "s.sol").assignment(problem) == (2, 0)
