"""``oocbe dcop``."""

import json

import pytest
from typer.testing import CliRunner

from oocbe.cli.main import app

AGENTS = """objective: min
domains: {d: {values: [R, G]}}
variables: {x: {domain: d}, y: {domain: d}, z: {domain: d}}
constraints:
  c: {type: intention, function: 3 if x == y else 0}
  e: {type: intention, function: 2 if y == z else 1}
  f: {type: intention, function: 4 if x == z else 0}
agents: [a, b]
"""


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def problem(tmp_path):
    (tmp_path / "p.yaml").write_text(AGENTS)
    return tmp_path / "p.yaml"


def test_solution_metrics_and_json(problem, tmp_path):
    out, metrics = tmp_path / "p.sol", tmp_path / "metrics.json"
    done = run("dcop", problem, "--json", "--solution", out, "--metrics", metrics)
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["value"], answer["algorithm"]) == ("optimal", 2, "dpop")
    assert run("verify", problem, out).exit_code == 0
    written = json.loads(metrics.read_text())
    assert written["metrics"]["util_messages"] == written["metrics"]["value_messages"] == 2
    assert len(written["metrics"]["messages"]) == 2
    assert "messages" not in answer["metrics"]
    largest = written["metrics"]["largest_message"]
    assert (largest["cells"], len(largest["separator"])) == (4, 2)


def test_bounds_and_workers(problem):
    done = run("dcop", problem, "--z", "2", "--json", "--heuristic", "max-degree", "--root", "y")
    answer = json.loads(done.stdout)
    assert answer["bound"] <= 2 <= answer["value"]
    done = run("dcop", problem, "--workers", "2")
    assert done.exit_code == 0, done.output
    assert "2 UTIL and 2 VALUE messages" in done.output
    assert run("dcop", problem, "--quiet").output == "2\n"


def test_wrong_use(problem, tmp_path):
    for arguments, message in (
        (("--z", "0"), "--z 0: the variables of a mini-bucket are at least 1"),
        (("--root", "q"), "there is no variable 'q'"),
        (("--heuristic", "best"), "unknown heuristic 'best'"),
        (("--metrics", tmp_path / "none" / "m.json"), "--metrics"),
        (("--metrics", problem), "this is the problem itself"),
        (("--workers", "-2"), "-2' is none of 2"),
    ):
        done = run("dcop", problem, *arguments)
        assert done.exit_code == 2, done.output
        assert message in done.output


def test_limits_and_infeasible_problems(problem, tmp_path):
    done = run("dcop", problem, "--time-limit", "1e-6", "--json")
    assert done.exit_code == 20
    hard = AGENTS.replace("3 if x", "1e999 if x").replace("2 if y", "1e999 if y").replace("4 if x", "1e999 if x")
    (tmp_path / "hard.yaml").write_text(hard)
    done = run("dcop", tmp_path / "hard.yaml", "--json", "--solution", tmp_path / "s")
    assert done.exit_code == 10
    assert json.loads(done.stdout)["status"] == "infeasible"
    assert "there is no assignment to write" in done.stderr


def test_other_commands_take_and_keep_agents(problem, tmp_path):
    assert json.loads(run("solve", problem, "--json").stdout)["value"] == 2
    assert json.loads(run("inspect", problem, "--json").stdout)["agents"] == 2
    assert run("propagate", problem).exit_code == 0
    done = run("convert", problem, tmp_path / "p.xml")
    assert done.exit_code == 0, done.output
    assert '<variable name="z" domain="D0" agent="a"/>' in (tmp_path / "p.xml").read_text()
    assert json.loads(run("dcop", tmp_path / "p.xml", "--json").stdout)["value"] == 2
