"""``oocbe bound`` on the shipped examples."""

import json
from pathlib import Path

from typer.testing import CliRunner

from oocbe.cli.main import app

EXAMPLES = Path(__file__).parents[2] / "examples"
DAILY, GRID = str(EXAMPLES / "daily.spot"), str(EXAMPLES / "grid.wcsp")
FAST = ["--order-seconds", "0", "--backend", "cpu"]

run = CliRunner().invoke


def test_bounds_of_several_z_as_json(tmp_path) -> None:
    solution = tmp_path / "grid.sol"
    done = run(
        app, ["bound", GRID, "--z", "2", "--z", "4", "--z", "auto", "--json", "--solution", str(solution), *FAST]
    )
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert (content["schema_version"], content["status"], content["value"], content["bound"]) == (
        1,
        "optimal",
        1812,
        1812,
    )
    first, second, third = content["bounds"]
    assert (first["z"], second["z"]) == (2, 4)
    assert first["split_buckets"] > second["split_buckets"] > third["split_buckets"] == 0
    assert first["width"] <= 1 and second["width"] <= 3
    for entry in content["bounds"]:
        assert entry["bound"] <= 1812 <= entry["incumbent"]
        assert entry["gap"] == entry["incumbent"] - entry["bound"]
        assert {"forward", "backward", "total"} == set(entry["seconds"])
    assert run(app, ["verify", GRID, str(solution)]).exit_code == 0


def test_options_change_the_bound_and_rows_are_printed() -> None:
    plain = run(app, ["bound", DAILY, "--z", "2", "--quiet", *FAST])
    shifted = run(app, ["bound", DAILY, "--z", "2", "--quiet", "--cost-shifting", *FAST])
    divided = run(app, ["bound", DAILY, "--z", "4", "--quiet", "--partition", "content", *FAST])
    bounds = [int(done.stdout.split()[1]) for done in (plain, shifted, divided)]
    assert [done.stdout.split()[0] for done in (plain, shifted, divided)] == ["2", "2", "4"]
    assert bounds[0] < bounds[1] <= 2112
    assert bounds[0] < bounds[2] <= 2112
    shown = run(app, ["bound", DAILY, "--z", "3", *FAST])
    assert "buckets divided" in shown.stdout and "by scope" in shown.stdout


def test_wrong_limits_are_refused() -> None:
    for wrong in ("0", "-2", "many", "2.5"):
        done = run(app, ["bound", GRID, f"--z={wrong}"])
        assert done.exit_code == 2
        assert "--z" in done.stderr
