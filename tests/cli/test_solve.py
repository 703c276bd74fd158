"""``oocbe solve`` and ``plan`` on the shipped examples."""

import csv
import inspect
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli import failures
from oocbe.cli.flags import options_from
from oocbe.cli.main import app
from oocbe.cli.solve import solve
from oocbe.errors import EXIT_LIMIT
from oocbe.model.settings.options import SolveOptions

EXAMPLES = Path(__file__).parents[2] / "examples"
DAILY, GRID = str(EXAMPLES / "daily.spot"), str(EXAMPLES / "grid.wcsp")

run = CliRunner().invoke


@pytest.mark.parametrize(("file", "optimum"), [(DAILY, 2112), (GRID, 1812)])
def test_the_optimum_and_an_assignment_that_has_it(file: str, optimum: int, tmp_path: Path) -> None:
    solution = tmp_path / "found.sol"
    done = run(app, ["solve", file, "--solution", str(solution)])
    assert done.exit_code == 0, done.stderr
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (rows["status"], rows["optimum"]) == ("optimal", str(optimum))
    checked = run(app, ["verify", file, str(solution)])
    assert checked.exit_code == 0, checked.stdout
    assert f"value    {optimum}" in checked.stdout


def test_json_is_alone_on_standard_output(tmp_path: Path) -> None:
    done = run(app, ["solve", DAILY, "--json"])
    content = json.loads(done.stdout)
    assert (content["schema_version"], content["status"], content["value"]) == (1, "optimal", 2112)
    assert {"read", "forward", "backward", "total"} <= set(content["seconds"])
    assert "optimum" in done.stderr
    file = tmp_path / "result.json"
    file.write_text(done.stdout)
    assert run(app, ["verify", DAILY, str(file)]).exit_code == 0


def test_quiet_prints_one_line() -> None:
    done = run(app, ["solve", GRID, "--quiet"])
    assert (done.stdout, done.stderr) == ("optimal 1812\n", "")


def test_verbose_prints_plan_and_buckets_on_standard_error() -> None:
    done = run(app, ["solve", GRID, "--verbose", "--json"])
    assert json.loads(done.stdout)["value"] == 1812
    assert "bucket 1 of 36" in done.stderr
    assert "bucket 36 of 36" in done.stderr


def test_the_time_limit_counts_from_the_start_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["solve", DAILY, "--quiet", "--time-limit", "500"]
    monkeypatch.setattr(failures, "begun", time.perf_counter() - 100)
    assert run(app, command).stdout == "optimal 2112\n"
    monkeypatch.setattr(failures, "begun", time.perf_counter() - 501)
    assert run(app, command).exit_code == EXIT_LIMIT
    joined = ["join", "a.csv", "b.csv", "-o", "c.csv", "--group-by", "", "--count", "--time-limit", "500"]
    assert run(app, joined).exit_code == EXIT_LIMIT


def test_the_time_limit_of_several_problems_counts_from_the_start_of_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.wcsp").write_bytes(Path(GRID).read_bytes())
    monkeypatch.setattr(failures, "begun", time.perf_counter() - 501)
    for files in ([tmp_path], sorted(tmp_path.iterdir())):
        assert run(app, ["solve", *map(str, files), "--time-limit", "500"]).exit_code == 0


@pytest.mark.parametrize(
    "flags",
    [
        ["--no-dominance"],
        ["--order", "min-degree", "--order-seconds", "0"],
        ["--order", "weighted-min-fill", "--seed", "5"],
        ["--memory", "512MiB"],
        ["--chunk-rows", "7"],
    ],
    ids=" ".join,
)
def test_no_flag_changes_the_optimum(flags: list[str]) -> None:
    done = run(app, ["solve", GRID, "--quiet", *flags])
    assert (done.exit_code, done.stdout) == (0, "optimal 1812\n"), done.stderr


def test_an_order_from_a_file(tmp_path: Path) -> None:
    names = [v.name for v in oocbe.read(GRID).variables]
    (tmp_path / "order.txt").write_text("\n".join(reversed(names)))
    done = run(app, ["solve", GRID, "--json", "--order", str(tmp_path / "order.txt")])
    assert json.loads(done.stdout)["order"] == names[::-1]


def test_the_work_folder_keeps_the_answer_and_no_tables(tmp_path: Path) -> None:
    assert run(app, ["solve", GRID, "--workdir", str(tmp_path)]).exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lock", "result.json", "run.json"]
    again = run(app, ["solve", GRID, "--workdir", str(tmp_path), "--resume", "--quiet"])
    assert (again.exit_code, again.stdout) == (0, "optimal 1812\n")


def test_a_task_that_cannot_be_resumed_begins_anew_and_says_so(tmp_path: Path) -> None:
    """A batch script may always give ``--resume``, by the environment as well."""
    for task, more in (("count", []), ("kbest", ["--k", "2"])):
        file = ["--workdir", str(tmp_path / task), "--resume", "--task", task, *more]
        done = run(app, ["solve", GRID, *file])
        assert done.exit_code == 0, done.stderr
        for said in (done.stdout, done.stderr):
            assert f"resume: of the task {task} nothing is kept" in " ".join(said.split())


def test_counting_has_a_value_and_no_assignment(tmp_path: Path) -> None:
    file = tmp_path / "tiny.wcsp"
    run(app, ["synth", "grid", str(file), "--side", "1", "--domain", "5"])
    solution = tmp_path / "tiny.sol"
    done = run(app, ["solve", str(file), "--semiring", "counting", "--quiet", "--solution", str(solution)])
    assert (done.exit_code, done.stdout) == (0, "exact 5\n"), done.stderr
    assert "no assignment" in done.stderr
    assert not solution.exists()


def test_infeasible_problems_say_so(tmp_path: Path) -> None:
    file = tmp_path / "none.wcsp"
    file.write_text("none 2 2 1 10\n2 2\n2 0 1 10 0\n")  # every pair costs the upper bound
    done = run(app, ["solve", str(file), "--json"])
    assert done.exit_code == 10, done.stderr
    content = json.loads(done.stdout)
    assert (content["status"], content["value"], content["assignment"]) == ("infeasible", None, None)


def test_evidence_fixes_variables(tmp_path: Path) -> None:
    (tmp_path / "grid.evid").write_text("1 0 3\n")
    done = run(app, ["solve", GRID, "--json", "--evidence", str(tmp_path / "grid.evid")])
    content = json.loads(done.stdout)
    assert next(iter(content["assignment"].values())) == "3"
    assert content["value"] >= 1812


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--order", "best"], "weighted-min-fill"),
        (["--memory", "lots"], "2GiB"),
        (["--semiring", "tropical"], "known: min-sum"),
        (["--format", "json"], "known formats"),
        (["--seed", "one"], "integer"),
        (["--evidence", "missing.evid"], "missing.evid"),
    ],
)
def test_wrong_use_ends_with_two_and_one_line(flags: list[str], part: str) -> None:
    done = run(app, ["solve", GRID, *flags])
    assert (done.exit_code, done.stdout) == (2, "")
    assert part in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_flags_override_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOCBE_SEMIRING", "tropical")
    assert run(app, ["solve", GRID, "--quiet"]).exit_code == 2
    monkeypatch.setenv("OOCBE_SEMIRING", "counting")
    assert run(app, ["solve", GRID, "--quiet"]).stdout.startswith("exact ")
    assert run(app, ["solve", GRID, "--quiet", "--semiring", "min-sum"]).stdout == "optimal 1812\n"


def test_the_plan_prints_itself_and_as_json() -> None:
    text = run(app, ["plan", GRID, "--order", "min-fill"])
    assert text.exit_code == 0, text.stderr
    assert "width" in text.stdout
    content = json.loads(run(app, ["plan", GRID, "--json"]).stdout)
    assert len(content["buckets"]) == 36
    assert content["width"] >= 6


def test_the_library_returns_what_the_command_prints() -> None:
    result = oocbe.solve(GRID, seed=1)
    printed = json.loads(run(app, ["solve", GRID, "--json", "--seed", "1"]).stdout)
    assert (result.value, result.semiring) == (printed["value"], printed["semiring"])
    assert set(result.to_json()) | {"program", "command", "input"} == set(printed)
    assert oocbe.solve(oocbe.read(GRID), oocbe.SolveOptions(dominance=False)).value == 1812
    with pytest.raises(oocbe.UsageError, match="did you mean memory"):
        oocbe.solve(GRID, memry="2GiB")


def test_every_option_of_a_solve_is_a_flag_of_it():
    assert set(SolveOptions.names()) <= set(inspect.signature(solve).parameters)


def test_flags_that_are_not_given_leave_the_environment_alone(monkeypatch):
    monkeypatch.setenv("OOCBE_SEED", "7")
    options = options_from({"seed": None, "order_seconds": "2", "file": "a.spot", "json": True})
    assert (options.seed, options.order_seconds) == (7, 2.0)


def test_a_schedule_is_written_as_a_table_with_what_is_left_out(tmp_path):
    target = tmp_path / "day.CSV"
    content = json.loads(run(app, ["solve", "examples/daily.spot", "--solution", str(target), "--json"]).stdout)
    table = list(csv.DictReader(target.read_text().splitlines()))
    assert [row["photograph"] for row in table] == list(content["assignment"])
    taken = [row for row in table if row["camera"] != "left out"]
    assert [row["photograph"] for row in taken] == [t["name"] for t in content["schedule"]["taken"]]
    assert sum(int(row["weight"]) for row in taken) == content["schedule"]["profit"]
    assert sum(int(row["weight"]) for row in table if row not in taken) == content["value"]
    assert "accepted" in run(app, ["verify", "examples/daily.spot", str(target)]).stdout
