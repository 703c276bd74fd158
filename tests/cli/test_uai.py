"""``oocbe uai``: files and results of the UAI competitions."""

import json
import math
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from oocbe.cli.main import app

NETWORK = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n4\n 1 2 3 0\n6\n 1 1 2 4 0 1\n"
"""Weights f(a, b) = [[1, 2], [3, 0]] and g(b, c) = [[1, 1, 2], [4, 0, 1]]: in all 4 * 4 + 2 * 5 = 26."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n.uai").write_text(NETWORK)
    for name, text in (("none", "0\n"), ("new", "1 0 1\n"), ("old", "1\n1 0 1\n"), ("impossible", "2 0 1 1 1\n")):
        (tmp_path / f"{name}.evid").write_text(text)
    (tmp_path / "n.query").write_text("2 2 0\n")
    return tmp_path


def run(*arguments, code=0):
    done = CliRunner().invoke(app, ["uai", "n.uai", *arguments])
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.mark.parametrize(("evidence", "total"), [("-", 26), ("none.evid", 26), ("new.evid", 12), ("old.evid", 12)])
def test_partition_function(folder, evidence, total):
    header, value = run(evidence, "-", "PR", "--quiet").split()
    assert header == "PR"
    assert float(value) == pytest.approx(math.log10(total))


def test_marginals_and_assignments(folder):
    header, *words = run("none.evid", "-", "MAR", "--quiet").split()
    assert header == "MAR"
    expected = [3, 2, 14 / 26, 12 / 26, 2, 16 / 26, 10 / 26, 3, 12 / 26, 4 / 26, 10 / 26]
    assert [float(x) for x in words] == pytest.approx(expected)
    assert run("-", "-", "MAP", "--quiet").split()[:2] == ["MAP", "3"]
    assert run("-", "n.query", "MMAP", "--quiet", "-o", "out.MMAP").split() == ["MMAP", "2", "2", "0", "0", "0"]
    assert (folder / "out.MMAP").read_text().split() == ["MMAP", "2", "2", "0", "0", "0"]


def test_network_from_a_pipe(folder):
    command = [sys.executable, "-m", "oocbe", "uai", "-", "-", "-", "PR", "--format", "uai", "--quiet"]
    done = subprocess.run(command, input=NETWORK, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout.split()[1]) == pytest.approx(math.log10(26))


def test_json_tells_exact_answers(folder):
    content = json.loads(run("new.evid", "n.query", "MMAP", "--json"))
    assert (content["status"], content["evidence"]) == ("exact", {"0": "1"})
    assert content["assignment"] == {"2": "2", "0": "1"}
    assert content["value"] == content["lower"] == content["upper"] == pytest.approx(math.log(6))


def test_impossible_evidence(folder):
    assert run("impossible.evid", "-", "PR", "--quiet", code=10).split() == ["PR", "-inf"]
    content = json.loads(run("impossible.evid", "-", "PR", "--json", code=10))
    assert (content["status"], content["value"]) == ("infeasible", None)


def test_wrong_input(folder):
    run("-", "-", "MMAP", code=2)
    run("-", "-", "SUM", code=2)
    (folder / "n.query").write_text("2 1 1\n")
    run("-", "n.query", "MMAP", code=2)
    (folder / "n.query").write_text("1 7\n")
    run("-", "n.query", "MMAP", code=2)
    run("missing.evid", "-", "PR", code=2)
