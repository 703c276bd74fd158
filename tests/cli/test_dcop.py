"""``oocbe dcop``."""

import json
import re

import pytest
from typer.testing import CliRunner

from oocbe.cli.main import app
from oocbe.dcop import dpop
from oocbe.dcop.protocol import read_dcop
from oocbe.formats.pydcop import result_of

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


TUTORIAL = """objective: min
domains: {colors: {values: [R, G]}}
variables: {v1: {domain: colors}, v2: {domain: colors}, v3: {domain: colors}, v4: {domain: colors}}
constraints:
  c_1_2: {type: extensional, variables: [v1, v2], values: {5: R R, 8: R G, 20: G R, 3: G G}}
  c_1_3: {type: extensional, variables: [v1, v3], values: {5: R R, 10: R G, 20: G R, 3: G G}}
  c_2_3: {type: extensional, variables: [v2, v3], values: {5: R R, 4: R G, 3: G R | G G}}
  c_2_4: {type: extensional, variables: [v2, v4], values: {3: R R | G G, 8: R G, 10: G R}}
agents: [a1, a2, a3, a4, a5]
"""
"""pyDcop's tests/instances/graph_coloring_tuto.yaml."""


def test_the_result_as_pydcop_prints_it(tmp_path):
    """Figures of pyDcop's own ``solve --algo dpop`` at commit a51cc3f, without the messages of its runtime."""
    (tmp_path / "tutorial.yaml").write_text(TUTORIAL)
    done = run(
        *("dcop", tmp_path / "tutorial.yaml", "-t", "30", "--output", tmp_path / "r.json", "--heuristic", "max-degree"),
        *("--algo", "dpop", "-d", "oneagent", "-m", "thread"),
    )
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert json.loads((tmp_path / "r.json").read_text()) == answer
    assert answer.pop("time") > 0
    agents = answer.pop("agt_metrics")
    assert answer == {
        "assignment": dict.fromkeys(("v1", "v2", "v3", "v4"), "G"),
        "cost": 12,
        "cycle": 0,
        "msg_count": 6,
        "msg_size": 16,
        "status": "FINISHED",
        "violation": 0,
    }
    sizes = {v: size for own in agents.values() for v, size in own["size_ext_msg"].items()}
    counts = {v: count for own in agents.values() for v, count in own["count_ext_msg"].items()}
    assert (sizes, counts) == ({"v2": 4, "v1": 6, "v3": 4, "v4": 2}, {"v2": 2, "v1": 2, "v3": 1, "v4": 1})
    assert agents["a5"] == {"activity_ratio": 0, "count_ext_msg": {}, "cycles": {}, "size_ext_msg": {}}
    assert agents["a1"]["cycles"] == {"v1": 0}
    assert all(0 <= own["activity_ratio"] <= 1 for own in agents.values())


def test_messages_within_an_agent_violations_numbers_and_limits_as_pydcop_prints_them(tmp_path):
    text = TUTORIAL.replace("values: [R, G]", "values: [1, 2]").replace("[a1, a2, a3, a4, a5]", "[a1]")
    (tmp_path / "p.yaml").write_text(re.sub(r"\bG\b", "2", re.sub(r"\bR\b", "1", text)))
    done = run("dcop", tmp_path / "p.yaml", "-a", "dpop", "-i", "3", "-c", "cycle_change", "--period", "1")
    assert "ignored: --collect_on, --period; DPOP has no parameters" in " ".join(done.stderr.split())
    answer = json.loads(done.stdout)
    assert answer["assignment"] == dict.fromkeys(("v1", "v2", "v3", "v4"), 2)
    assert (answer["cost"], answer["violation"], answer["msg_count"]) == (0, 4, 0)
    agents = read_dcop(tmp_path / "p.yaml")
    answer = result_of(agents, dpop(agents, time_limit=1e-9))
    assert (answer["status"], answer["assignment"], answer["cost"]) == ("TIMEOUT", {}, None)


def test_wrong_use(problem, tmp_path):
    for arguments, message in (
        (("--z", "0"), "--z 0: the variables of a mini-bucket are at least 1"),
        (("--root", "q"), "there is no variable 'q'"),
        (("--heuristic", "best"), "unknown heuristic 'best'"),
        (("--metrics", tmp_path / "none" / "m.json"), "--metrics"),
        (("--metrics", problem), "this is the problem itself"),
        (("--workers", "-2"), "-2' is none of 2"),
        (("--algo", "maxsum"), "--algo maxsum: of pyDcop's, oocbe has dpop"),
        (("--distribution", "adhoc"), "--distribution adhoc: of pyDcop's, oocbe has oneagent"),
        (("--distribution", "oneagent"), "belongs to agent 2; there are 2"),
        (("--mode", "both"), "agents are in thread or process"),
        (("--output", problem), "this is the problem itself"),
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
