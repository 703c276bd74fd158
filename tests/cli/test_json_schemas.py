"""What every command prints with --json is what its schema says, and the schema names every field."""

import json
from functools import cache
from importlib.resources import files

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app

jsonschema = pytest.importorskip("jsonschema")

GRID, DAY = "examples/grid.wcsp", "examples/daily.spot"
NETWORK = """network small { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable grass { type discrete [ 2 ] { wet, dry }; }
probability ( rain ) { table 0.25, 0.75; }
probability ( grass | rain ) { (yes) 1.0, 0.0; (no) 0.5, 0.5; }
"""

MODEL = "ROWS\n N cost\n L weight\nCOLUMNS\n x cost 1 weight 2\nRHS\n b weight 2\nENDATA\n"


@cache
def schema_of(command: str) -> dict:
    """The schema of a command's output, checked to be a valid schema."""
    schema = json.loads(files("oocbe").joinpath("schema", f"{command}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def printed(*arguments: object) -> dict:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    content = json.loads(done.stdout)
    schema = schema_of(str(arguments[0]))
    jsonschema.Draft202012Validator(schema).validate(content)
    forms = [schema["$defs"]["envelope"], *(schema["$defs"][part["$ref"].split("/")[-1]] for part in schema["anyOf"])]
    described = set().union(*(form["properties"] for form in forms))
    assert set(content) <= described, "the schema does not name every field"
    assert content["program"] == {"name": "oocbe", "version": oocbe.__version__}
    assert content["command"] == arguments[0]
    return content


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "small.bif"
    path.write_text(NETWORK)
    return path


def test_a_solve_with_its_schedule_its_curve_and_its_input(tmp_path):
    import hashlib
    from pathlib import Path

    content = printed("solve", DAY)
    problem = oocbe.read(DAY)
    assert content["input"]["sha256"] == hashlib.sha256(Path(DAY).read_bytes()).hexdigest()
    assert content["bound"] == content["value"] == 2112
    assert content["anytime"][-1]["bound"] == content["anytime"][-1]["value"] == 2112
    schedule = content["schedule"]
    weights = {v.name: f.values[0].item() for v, f in zip(problem.variables, problem.functions, strict=True)}
    taken = {name for name, label in content["assignment"].items() if label != "0"}
    assert {t["name"] for t in schedule["taken"]} == taken
    assert schedule["profit"] == sum(weights[name] for name in taken) == schedule["possible"] - content["value"]
    assert [b["variable"] for b in content["buckets"]] == content["order"]
    assert max(b["rows"] for b in content["buckets"]) == content["largest_message_rows"]


def test_a_solve_that_ends_before_elimination_has_the_width_of_a_plan(tmp_path, monkeypatch):
    monkeypatch.setattr("oocbe.api.solving.history.PLAN_SECONDS", 60)  # a moment is too short on a busy machine
    random = np.random.default_rng(22)
    pairs = [(a, b) for a in range(16) for b in range(a + 1, 16)]
    functions = tuple(oocbe.Function.from_array(pair, random.integers(1, 99, (6, 6))) for pair in pairs)
    problem = oocbe.Problem(tuple(oocbe.Variable(f"x{i}", 6) for i in range(16)), functions)
    oocbe.write(problem, tmp_path / "all-pairs.wcsp")
    content = printed("solve", tmp_path / "all-pairs.wcsp", "--gap", "100%")
    assert (content["status"], content["width"]) == ("limit", 15)
    assert content["bound"] == content["anytime"][-1]["bound"] > 0


def _cycle(count: int) -> oocbe.Problem:
    variables = tuple(oocbe.Variable(f"x{i}", 2) for i in range(count))
    functions = tuple(
        oocbe.Function.from_array((min(i, (i + 1) % count), max(i, (i + 1) % count)), [[0, 1], [2, 0]])
        for i in range(count)
    )
    return oocbe.Problem(variables, functions)


@pytest.mark.parametrize("task", ["count", "count-optimal", "kbest", "logz", "marginals", "min-marginals", "mpe"])
def test_tasks(task, network, tmp_path):
    oocbe.write(_cycle(4), tmp_path / "cycle.wcsp")
    file = network if task in ("mpe", "logz", "marginals") else tmp_path / "cycle.wcsp"
    content = printed("solve", file, "--task", task)
    assert (content["task"], content["status"]) == (task, "exact")


def test_other_commands(tmp_path, network):
    oocbe.write(_cycle(6), tmp_path / "cycle.wcsp")
    cycle = tmp_path / "cycle.wcsp"
    CliRunner().invoke(app, ["solve", str(cycle), "--solution", str(tmp_path / "it.sol")])
    assert printed("verify", cycle, tmp_path / "it.sol")["accepted"]
    assert printed("bound", cycle, "--z", "2")["bounds"][0]["z"] == 2
    assert printed("uai", network, "-", "-", "MAR")["status"] == "exact"
    assert printed("plan", cycle)["width"] == 2
    assert printed("propagate", cycle)["status"] == "fixpoint"
    assert printed("inspect", cycle)["kind"] == "problem"
    assert printed("dcop", cycle)["status"] == "optimal"
    assert printed("compile", network, tmp_path / "tree")["cliques"] == 1
    oocbe.StoredTable.save(tmp_path / "table", oocbe.Table.from_rows({"a": 2}, [[0]], [5]))
    assert printed("inspect", tmp_path / "table")["kind"] == "table"
    (tmp_path / "model.mps").write_text(MODEL)
    assert printed("inspect", tmp_path / "model.mps")["kind"] == "linear system"
    assert printed("propagate", tmp_path / "model.mps")["domains"]["x"] == [0, 1]
    CliRunner().invoke(app, ["solve", str(cycle), "--workdir", str(tmp_path / "run")])
    assert printed("inspect", tmp_path / "run")["kind"] == "run"
    assert printed("stress", "--rows", "1e4", "--workdir", tmp_path)["fault"] == ""
    CliRunner().invoke(app, ["solve", str(cycle), "--trace", str(tmp_path / "run.json")])
    assert printed("trace", tmp_path / "run.json")["is_whole"]
    found = printed("simulate", "--workers", "3", "--pieces", tmp_path / "run.json")
    assert found["workers"] == 3 and 0 < found["efficiency"] <= 1


def test_solves_that_end_otherwise(tmp_path):
    oocbe.write(_cycle(6), tmp_path / "cycle.wcsp")
    assert printed("solve", tmp_path / "cycle.wcsp", "--ub", "0")["status"] == "nothing-better"
    (tmp_path / "none.wcsp").write_text("none 1 2 1 9\n2\n1 0 9 0\n")
    content = printed("solve", tmp_path / "none.wcsp")
    assert (content["status"], content["assignment"]) == ("infeasible", None)
    assert printed("solve", tmp_path / "none.wcsp", "--task", "count")["value"] == "0"
    assert printed("propagate", tmp_path / "none.wcsp")["domains"] is None


@pytest.mark.parametrize(
    ("command", "more"),
    [
        *((command, []) for command in ("solve", "bound", "plan", "propagate", "inspect", "dcop", "trace")),
        ("verify", ["bad.wcsp"]),
        ("compile", ["tree"]),
        ("stress", None),
    ],
)
def test_failures(command, more, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.wcsp").write_text("bad 1\n")
    arguments = ["--rows", "none"] if more is None else ["bad.wcsp", *more]
    content = printed(command, *arguments)
    assert (content["status"], content["error"]["exit_code"] > 0) == ("error", True)


def test_there_is_no_schema_without_a_command():
    names = {file.name.removesuffix(".json") for file in files("oocbe").joinpath("schema").iterdir()}
    groups = {group.name: group.typer_instance.registered_commands for group in app.registered_groups}
    commands = {**{command.name: [command] for command in app.registered_commands}, **groups}
    with_json = {
        name for name, inner in commands.items() if all("json" in made.callback.__annotations__ for made in inner)
    }
    assert names == with_json


def test_a_doctor_states_what_is_missing(monkeypatch):
    from oocbe.cli import doctor

    monkeypatch.setattr(doctor, "OPTIONAL", {"plot": ("module_of_nobody", "pictures")})
    found = printed("doctor")
    assert found["versions"]["numpy"] == np.__version__
    assert found["scratch_bytes_per_second"] > 0
    hint = "in a copy of oocbe's repository: pip install -e '.[plot]'"
    assert {"what": "module_of_nobody, for pictures", "remedy": hint} in found["missing"]
    assert bool(found["devices"]) == (found["why_no_device"] is None)


def test_a_doctor_names_devices(monkeypatch):
    from types import SimpleNamespace

    from oocbe.kernels.cuda import device

    runtime = SimpleNamespace(
        driverGetVersion=lambda: 12040,
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda number: {"name": b"NVIDIA H100", "totalGlobalMem": 80 << 30},
    )
    monkeypatch.setattr(device, "why_unavailable", lambda: None)
    monkeypatch.setattr(device, "cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    found = printed("doctor")
    assert found["devices"] == [{"name": "NVIDIA H100", "bytes": 80 << 30, "cuda": "12.4"}]
    assert found["why_no_device"] is None
