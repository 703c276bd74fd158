"""One rule says which value is meant, wherever values are given: labels first, then positions."""

import json
import logging
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.errors import FormatError, UsageError
from oocbe.junction_trees.case_files import read_cases
from oocbe.model.names import value_index

GRADES = """network school { }
variable grade { type discrete [ 3 ] { 1, 2, 3 }; }
variable pass { type discrete [ 2 ] { 0, 1 }; }
probability ( grade ) { table 0.2, 0.3, 0.5; }
probability ( pass | grade ) { (1) 0.1, 0.9; (2) 0.4, 0.6; (3) 0.8, 0.2; }
"""
PASS = {"1": 0.9, "2": 0.6, "3": 0.2}
"""Probability of a pass by the grade."""


@pytest.fixture
def grades(tmp_path):
    path = tmp_path / "grade.bif"
    path.write_text(GRADES)
    return path


ONE = [1, "1", 1.0, "01", "1.0", np.int64(1), np.uint8(1), np.float32(1), "#0", 0, "0"]


@pytest.mark.parametrize("value", ONE, ids=repr)
def test_every_way_to_give_a_value_means_the_same(grades, value, tmp_path):
    problem = oocbe.read(grades)
    expected = pytest.approx(PASS["1"])
    assert oocbe.marginals(problem, evidence={"grade": value}).marginals[1][1] == expected
    assert oocbe.marginals(problem.with_evidence({"grade": value})).marginals[1][1] == expected
    assert oocbe.marginals(grades, evidence=f"grade={value}").marginals[1][1] == expected
    assert problem.evaluate({"grade": value, "pass": "1"}) == expected.expected * 0.2
    assert oocbe.verify(problem, {"grade": value, "pass": 1}).value == expected.expected * 0.2
    tree = oocbe.JunctionTree(problem)
    tree.observe({"grade": value})
    assert tree.marginal("pass")[1] == expected
    assert tree.batch([{"grade": value}], ["pass"]).marginals["pass"][0, 1] == expected
    table, listed, solution = tmp_path / "cases.csv", tmp_path / "cases.json", tmp_path / "found.sol"
    table.write_text(f"grade\n{value}\n")
    listed.write_text(json.dumps([{"grade": value.item() if isinstance(value, np.generic) else value}]))
    assert read_cases(table, problem).tolist() == read_cases(listed, problem).tolist() == [[0, -1]]
    solution.write_text(f"grade {value}\npass 1\n" if str(value)[0] != "#" else f'grade "{value}"\npass 1\n')
    assert oocbe.verify(problem, solution).value == expected.expected * 0.2
    invoked = CliRunner().invoke(
        app, ["solve", str(grades), "--task", "marginals", "--json", "--evidence", f"grade={value}"]
    )
    assert json.loads(invoked.stdout)["marginals"]["pass"]["1"] == expected


def test_indices_of_variables_and_uai_evidence_are_positions(grades, tmp_path, caplog):
    (tmp_path / "e.evid").write_text("1 0 1\n")
    for evidence in ({0: 1}, {0: np.int64(1)}, tmp_path / "e.evid"):
        problem = oocbe.read(grades)
        with caplog.at_level(logging.WARNING, "oocbe"):
            assert oocbe.marginals(problem, evidence=evidence).marginals[1][1] == pytest.approx(PASS["2"])
        assert "1 is a position here, of the value with the label '2'" in caplog.text
        caplog.clear()
    assert problem.with_evidence({0: "1"}).evidence == {"grade": "1"}
    assert problem.with_evidence({0: 1.0}).evidence == {"grade": "1"}
    with pytest.raises(UsageError, match="no value True"):
        problem.with_evidence({0: True})
    with pytest.raises(UsageError, match=r"no value 1\.7"):
        problem.with_evidence({0: 1.7})


def test_two_readings_that_differ_are_told_once(grades, caplog):
    problem = oocbe.read(grades)
    problem.with_evidence({"grade": 1})
    problem.with_evidence({"grade": 2})
    assert len(caplog.records) == 1
    assert "'grade': 1 is the value with that label, not the one at position 1 (#1)" in caplog.text
    problem = oocbe.read(grades)  # another one, with a variable of the same name
    problem.with_evidence({"grade": 0})
    assert "no label equals 0: it is taken as a position, of the value with the label '1'" in caplog.text
    caplog.clear()
    problem = oocbe.read(grades)
    problem.with_evidence({"pass": 1})  # both readings are one
    problem.with_evidence({"grade": "#2"})  # said to be a position
    problem.with_evidence({"grade": 3})  # no position
    assert not caplog.records


@pytest.mark.parametrize(
    ("labels", "value", "expected"),
    [
        (("no", "yes"), 1, 1),
        (("no", "yes"), "1", 1),
        (("no", "yes"), "yes", 1),
        (("1", "01", "1.0"), "01", 1),
        (("1", "01", "1.0"), 1.0, 2),
        (("1", "01", "1.0"), 1, 0),
        (("0.5", "1.5"), 0.5, 0),
        (("0.1", "0.5"), np.float32(0.1), 0),
        (("0.5", "1.5"), ".5", 0),
        (("-1", "0", "1"), -1, 0),
        (("-1", "0", "1"), 0, 1),
        (("-1", "0", "1"), 2, 2),
        (("True", "False"), True, 0),
        (("true", "false"), False, 1),
        (("false", "true"), np.True_, 1),
        (("1", "0", "yes"), "yes", 2),
        (("#1", "x"), "#1", 0),
        (("('a', 1)", "b"), ("a", 1), 0),
        (None, 2.0, 2),
        (None, "002", 2),
    ],
)
def test_labels_come_before_positions(labels, value, expected):
    assert value_index(oocbe.Variable("x", 3 if labels is None else len(labels), labels), value) == expected


@pytest.mark.parametrize(
    ("labels", "value"),
    [
        (("1", "0"), True),
        (("no", "yes"), True),
        (("no", "yes"), np.False_),
        (("no", "yes"), 1.0),
        (("no", "None"), None),
        (("no", "nan"), float("nan")),
        (("no", "yes"), "true"),
        (("no", "yes"), "#2"),
        (("no", "yes"), "+1"),
        pytest.param(("no", "yes"), 10**5000, id="digits"),
        (None, "1_0"),
        (None, 10**30),
        (None, -1),
    ],
)
def test_what_no_value_equals_is_refused(labels, value):
    with pytest.raises(UsageError, match="variable 'x' has no value"):
        value_index(oocbe.Variable("x", 2 if labels else 20, labels), value)


@pytest.mark.parametrize(("labels", "value"), [(("01", "1.0"), 1), (("a", "a"), "a")])
def test_a_value_that_equals_several_labels_is_refused(labels, value):
    with pytest.raises(UsageError, match=r"several values equal to .* \(#0\), .* \(#1\); give the position"):
        value_index(oocbe.Variable("x", 2, labels), value)


def pgmpy_model(states):
    tables = [
        SimpleNamespace(variables=[7], values=np.array([0.2, 0.3, 0.5]), state_names={7: states}),
        SimpleNamespace(
            variables=["pass", 7],
            values=np.array([[0.1, 0.4, 0.8], [0.9, 0.6, 0.2]]),
            state_names={"pass": [False, True], 7: states},
        ),
    ]
    return SimpleNamespace(nodes=lambda: [7, "pass"], get_cpds=lambda: tables, name="school")


def test_states_of_pgmpy_are_what_evidence_calls_them():
    tree = oocbe.JunctionTree(oocbe.from_pgmpy(pgmpy_model([1, 2, 3])))
    tree.observe({7: 1})  # a variable's name may be an integer, too
    assert tree.marginal("pass")[1] == pytest.approx(PASS["1"])
    tree.observe({"7": 1.0, "pass": True})
    assert tree.evidence == {"7": "1", "pass": "True"}
    assert tree.batch([{7: 2}], ["pass"]).marginals["pass"][0, 1] == pytest.approx(PASS["2"])
    with pytest.raises(UsageError, match="values of 7 have the same text"):
        oocbe.from_pgmpy(pgmpy_model([1, "1", 2]))


def test_rows_of_toulbar2_are_positions_where_all_can_be(grades, tmp_path, caplog):
    problem = oocbe.read(grades)
    path = tmp_path / "row.sol"
    path.write_text("1 1\n")
    assert oocbe.verify(problem, path).value == pytest.approx(0.3 * PASS["2"])
    assert "1 is a position here, of the value with the label '2'" in caplog.text
    path.write_text("3 1\n")
    assert oocbe.verify(problem, path).value == pytest.approx(0.5 * PASS["3"])
    path.write_text("grade 4\npass 1\n")
    with pytest.raises(FormatError, match="no value '4'; its values are 1, 2, 3"):
        oocbe.verify(problem, path)
