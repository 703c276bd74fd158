"""``oocbe compile`` and ``oocbe query``."""

import csv
import gzip
import json
import math

import numpy as np
import pytest
import zarr
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.junction_trees.tree import find_order
from oocbe.runtime import framed
from oocbe.runtime.deadline import current

NETWORK = """network weather { }
variable season { type discrete [ 2 ] { winter, summer }; }
variable rain { type discrete [ 2 ] { yes, no }; }
variable grass { type discrete [ 3 ] { dry, damp, wet }; }
probability ( season ) { table 0.5, 0.5; }
probability ( rain | season ) { (winter) 0.5, 0.5; (summer) 0.25, 0.75; }
probability ( grass | rain ) { (yes) 0.0, 0.25, 0.75; (no) 0.5, 0.5, 0.0; }
"""


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_a_backend_is_checked(tree, tmp_path):
    (tmp_path / "cases.json").write_text('[{"grass": "wet"}]')
    given = ("query", tree, "--cases", tmp_path / "cases.json", "--targets", "rain")
    assert run(*given, "--backend", "cpu").output == run(*given).output
    done = run(*given, "--backend", "fast")
    assert done.exit_code != 0
    assert "--backend" in done.output


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    (folder / "weather.bif").write_text(NETWORK)
    done = run("compile", folder / "weather.bif", folder / "weather.tree", "--order-seconds", "0")
    assert done.exit_code == 0, done.output
    assert "cliques" in done.output
    return folder / "weather.tree"


def test_a_tree_that_takes_too_long_ends_with_the_time_limit(tmp_path, monkeypatch):
    """Time is up as soon as the order is found: only reading was held to the limit."""

    def late(*arguments):
        found = find_order(*arguments)
        current().interrupt()
        return found

    monkeypatch.setattr("oocbe.junction_trees.tree.find_order", late)
    (tmp_path / "weather.bif").write_text(NETWORK)
    arguments = ("compile", tmp_path / "weather.bif", tmp_path / "weather.tree", "--order-seconds", "0")
    done = run(*arguments, "--time-limit", "1000")
    assert done.exit_code == 20 and "the time limit was reached" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["weather.bif"]
    monkeypatch.undo()
    assert run(*arguments, "--time-limit", "1000").exit_code == 0


def test_a_table_of_cases(tree, tmp_path):
    (tmp_path / "cases.csv").write_text("season,grass\nwinter,wet\n,dry\n,\nsummer,2\n")
    out = tmp_path / "out.csv"
    arguments = ("--cases", tmp_path / "cases.csv", "--targets", "rain", "--joint", "season,rain", "-o", out)
    done = run("query", tree, *arguments)
    assert done.exit_code == 0, done.output
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["exact"] * 4
    assert float(rows[0]["log_evidence"]) == pytest.approx(math.log(0.5 * 0.5 * 0.75))
    assert [float(row["rain=yes"]) for row in rows] == pytest.approx([1, 0, 0.375, 1])
    assert float(rows[2]["season=winter,rain=yes"]) == pytest.approx(0.25)
    assert float(rows[1]["season=summer,rain=no"]) == pytest.approx(0.6)


def test_answers_as_arrays_and_as_parquet(tree, tmp_path):
    """The numbers of the .csv file, to the last bit."""
    (tmp_path / "cases.csv").write_text("season,rain,grass\nwinter,,wet\n,yes,dry\n,,\n")
    targets = ("--targets", "rain", "--targets", "grass", "--joint", "season,rain")
    arguments = ("--cases", tmp_path / "cases.csv", *targets, "-o")
    for name in ("a.csv", "a.zarr"):
        assert run("query", tree, *arguments, tmp_path / name).exit_code == 0
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert group["is_possible"][:].tolist() == [row["status"] == "exact" for row in rows] == [True, False, True]
    assert group["log_evidence"][:].tolist() == [float(row["log_evidence"]) for row in rows]
    joint = group["posteriors/2"]
    assert joint.attrs.asdict() == {"variables": ["season", "rain"], "labels": [["winter", "summer"], ["yes", "no"]]}
    assert joint[:, 1, 0].tolist() == [float(row["season=summer,rain=yes"]) for row in rows]
    assert group["posteriors/1"].shape == (3, 3)
    again = run("query", tree, *arguments, tmp_path / "a.zarr")
    assert (again.exit_code, "new folder" in again.stderr) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.zarr", "cases.csv"]
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("query", tree, *arguments, tmp_path / "a.parquet").exit_code == 0
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == list(rows[0])
    for name in table.column_names:
        kind = {"case": int, "status": str}.get(name, float)
        assert table[name].to_pylist() == [kind(row[name]) for row in rows]


def test_a_missing_pyarrow_is_said_before_anything_is_computed(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(framed, "find_spec", lambda _: None)
    done = run("query", tree, "--cases", tmp_path / "none.csv", "-o", tmp_path / "a.parquet")
    assert (done.exit_code, "'.[parquet]'" in done.stderr) == (2, True)


def test_impossible_cases_have_a_status(tmp_path):
    (tmp_path / "weather.bif").write_text(NETWORK)
    assert run("compile", tmp_path / "weather.bif", tmp_path / "t").exit_code == 0
    with gzip.open(tmp_path / "cases.json.gz", "wt") as file:
        json.dump([{"rain": "yes", "grass": "dry"}, {"rain": "no", "grass": None}], file)
    done = run("query", tmp_path / "t", "--cases", tmp_path / "cases.json.gz")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[1].startswith("0,impossible,-inf,0.0")
    assert lines[2].startswith("1,exact,")
    assert "nan" not in done.output


def test_uai_files_of_several_samples(tree, tmp_path):
    (tmp_path / "a.evid").write_text("2\n1 1 0\n2 0 1 2 0\n")
    expected = oocbe.JunctionTree.open(tree).batch([{"rain": 0}, {"season": 1, "grass": 0}])
    for kind in ("MAR", "PR", "MPE"):
        done = run("query", tree, "--cases", tmp_path / "a.evid", "-o", tmp_path / f"a.{kind}")
        assert done.exit_code == 0, done.output
    marginals = (tmp_path / "a.MAR").read_text().splitlines()
    assert marginals[:2] == ["MAR", "2"]
    numbers = list(map(float, marginals[2].split()))
    assert numbers[0] == 3
    np.testing.assert_allclose(numbers[2:4], expected.marginals["season"][0])
    probabilities = list(map(float, (tmp_path / "a.PR").read_text().split()[2:]))
    np.testing.assert_allclose(probabilities, expected.log_evidence / math.log(10))
    assert (tmp_path / "a.MPE").read_text().splitlines() == ["MPE", "2", "3 0 0 2", "3 1 1 0"]


def test_uai_files_of_one_sample(tree, tmp_path):
    (tmp_path / "a.evid").write_text("1 1 0\n")
    assert run("query", tree, "--cases", tmp_path / "a.evid", "-o", tmp_path / "a.MAR").exit_code == 0
    assert (tmp_path / "a.MAR").read_text().startswith("MAR\n3 2 ")
    (tmp_path / "b.evid").write_text("2 1 0 2 0\n")
    done = run("query", tree, "--cases", tmp_path / "b.evid", "-o", tmp_path / "b.PR")
    assert done.exit_code == 2
    assert "impossible" in done.output
    assert not (tmp_path / "b.PR").exists()


MALFORMED = {
    "unknown column": ("a.csv", "wind\nyes\n", "'wind'"),
    "column of another case": ("a.csv", "Rain\nyes\n", "did you mean 'rain'"),
    "semicolons": ("a.csv", "rain;season\nyes;winter\n", "between semicolons, and commas were expected"),
    "tabs": ("a.csv", "rain\tseason\nyes\twinter\n", "between tabs"),
    "label of another case": ("a.csv", "rain\nYES\n", "did you mean 'yes'"),
    "column twice": ("a.csv", "rain,rain\nyes,no\n", "once"),
    "unknown label": ("a.csv", "rain\nmaybe\n", "'maybe'"),
    "number too large": ("a.csv", "rain\n2\n", "no value '2'"),
    "negative number": ("a.csv", "rain\n-1\n", "no value '-1'"),
    "ragged line": ("a.csv", "rain,season\nyes\n", "found 1 value, expected 2"),
    "too many cells": ("a.csv", "rain\nyes,no\n", "found 2 values"),
    "empty table": ("a.csv", "", "expected the name"),
    "open quote": ("a.csv", 'rain\n"yes\n', "no table"),
    "no text": ("a.csv", b"rain\n\xff\n", "UTF-8"),
    "no JSON": ("a.json", "[{]", "no JSON"),
    "JSON object": ("a.json", "{}", "list of objects"),
    "JSON number": ("a.json", "[1]", "expected a mapping"),
    "JSON unknown name": ("a.json", '[{"wind": 0}]', "no variable 'wind'"),
    "JSON unknown label": ("a.json", '[{"rain": "maybe"}]', "no value 'maybe'"),
    "JSON float": ("a.json", '[{"rain": 0.5}]', "no value 0.5"),
    "JSON truth value": ("a.json", '[{"rain": true}]', "no value True"),
    "JSON nothing of no variable": ("a.json", '[{"hail": null}]', "no variable 'hail'"),
    "JSON list as value": ("a.json", '[{"rain": [0]}]', "no value"),
    "nested JSON": ("a.json", "[" * 100_000, "JSON|nested"),
    "evidence on no variable": ("a.evid", "1 7 0", "variable"),
    "evidence on no value": ("a.evid", "1 1 7", "value"),
    "evidence cut short": ("a.evid", "2 1 0", "observed"),
    "samples cut short": ("a.evid", "2 1 1 0 1 1", "observed|expected"),
    "observed twice": ("a.evid", "2 1 0 1 0", "second time"),
    "unknown kind": ("a.txt", "rain\nyes\n", "suffix"),
    "false gzip": ("a.csv.gz", "rain\nyes\n", "header"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_cases(name, tree, tmp_path):
    file, content, expected = MALFORMED[name]
    path = tmp_path / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = run("query", tree, "--cases", path, "-o", tmp_path / "out.csv")
    assert done.exit_code in (2, 3), done.output
    assert any(part in done.output for part in expected.split("|")), done.output
    assert "Traceback" not in done.output
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--targets", "wind"), "no variable 'wind'"),
        (("--targets", "rain,rain"), "twice"),
        (("--joint", "rain,"), "no variable ''"),
        (("--joint", ""), "name of a variable"),
        (("-o", "out.doc"), "suffix"),
        (("-o", "out.SUM"), ".SUM cannot be written: no competition defines such a file"),
        (("-o", "missing/out.csv"), "does not exist"),
        (("-o", "out.MAR", "--targets", "rain"), "all variables"),
        (("--memory", "1"), "unit"),
    ],
)
def test_questions_that_cannot_be_answered(arguments, expected, tree, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases.csv").write_text("season\nwinter\n")
    done = run("query", tree, "--cases", "cases.csv", *arguments)
    assert done.exit_code == 2
    assert expected in done.output


def test_a_tree_is_inspected(tree):
    done = run("inspect", tree, "--json")
    content = json.loads(done.stdout)
    statistics = oocbe.JunctionTree.open(tree).statistics
    assert content["kind"] == "junction tree"
    assert {name: content[name] for name in ("cliques", "rows", "cells", "width")} == {
        name: statistics[name] for name in ("cliques", "rows", "cells", "width")
    }
    assert "junction tree" in run("inspect", tree).stdout


def test_trees_that_are_none(tree, tmp_path):
    (tmp_path / "cases.csv").write_text("season\nwinter\n")
    done = run("query", tmp_path / "none.tree", "--cases", tmp_path / "cases.csv")
    assert (done.exit_code, "no such folder" in done.output) == (2, True)
    (tmp_path / "empty").mkdir()
    done = run("query", tmp_path / "empty", "--cases", tmp_path / "cases.csv")
    assert done.exit_code != 0
    assert "no junction tree" in done.output
    done = run("query", tree.parent / "weather.bif", "--cases", tmp_path / "cases.csv")
    assert (done.exit_code, "oocbe compile" in done.output) == (2, True)
    done = run("compile", tree.parent / "weather.bif", tree)
    assert (done.exit_code, "exists already" in done.output) == (2, True)
