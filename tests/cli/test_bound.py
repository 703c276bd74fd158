"""``oocbe bound`` on the shipped examples."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oocbe.bounds.mini_buckets.mini_buckets_bound import Bounding
from oocbe.cli.main import app
from oocbe.errors import ResourceError

EXAMPLES = Path(__file__).parents[2] / "examples"
DAILY, GRID = str(EXAMPLES / "daily.spot"), str(EXAMPLES / "grid.wcsp")
FAST = ["--order-seconds", "0", "--backend", "cpu"]
ALONE = [*FAST, "--incumbent-seconds", "0"]
"""Without the search for an assignment, which takes its whole second where no bound meets what it found."""

run = CliRunner().invoke


def test_bounds_of_several_z_as_json(tmp_path) -> None:
    solution = tmp_path / "grid.sol"
    done = run(
        app, ["bound", GRID, "--z", "2", "--z", "4", "--z", "auto", "--json", "--solution", str(solution), *FAST]
    )
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert (content["schema_version"], content["status"], content["value"], content["bound"]) == (
        2,
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
    for path, z, option, optimum in (
        (GRID, "2", ["--cost-shifting"], 1812),
        (DAILY, "4", ["--partition", "content"], 2112),
    ):
        plain = run(app, ["bound", path, "--z", "2", "--quiet", *ALONE])
        other = run(app, ["bound", path, "--z", z, "--quiet", *option, *ALONE])
        bounds = [int(done.stdout.split()[1]) for done in (plain, other)]
        assert [done.stdout.split()[0] for done in (plain, other)] == ["2", z]
        assert bounds[0] < bounds[1] <= optimum
    shown = run(app, ["bound", DAILY, "--z", "3", *ALONE])
    assert "buckets divided" in shown.stdout and "by scope" in shown.stdout


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A chain of products below the range of float64; the best is 1e-150 * 1e-190."""
    file = tmp_path / "tiny.uai"
    pairs = "4 1e-150 1e-200 1e-210 1e-220\n4 1e-200 1e-190 1e-230 1e-240\n"
    file.write_text(f"MARKOV\n3\n2 2 2\n2\n2 0 1\n2 1 2\n{pairs}")
    return str(file)


def test_bounds_of_products_are_logarithms(tiny: str) -> None:
    expected = -340 * math.log(10)
    content = json.loads(run(app, ["bound", tiny, "--z", "2", "--json", *FAST]).stdout)
    assert content["logarithms"] is True
    for found in (content, *content["bounds"]):
        assert found["bound"] == pytest.approx(expected, rel=1e-12)
    assert content["value"] == content["bounds"][0]["incumbent"] == pytest.approx(expected, rel=1e-12)
    assert content["value"] <= content["bound"]
    z, bound, value = map(float, run(app, ["bound", tiny, "--z", "2", "--quiet", *FAST]).stdout.split())
    assert (z, bound, value) == (2, content["bound"], content["value"])
    assert "natural logarithms" in run(app, ["bound", tiny, "--z", "2", *FAST]).stdout


def test_what_brings_nothing_is_skipped_with_a_note(tiny: str) -> None:
    limits = [argument for z in (2, 5, "auto", 1, 2) for argument in ("--z", str(z))]
    content = json.loads(run(app, ["bound", tiny, *limits, "--json", *FAST]).stdout)
    assert [entry["z"] for entry in content["bounds"]] == [2, 1]
    assert [note.split(":")[0] for note in content["notes"]] == [f"z = {z} was skipped" for z in (5, "auto", 2)]
    assert "z = 2 divides no bucket" in content["notes"][0] and "has been run" in content["notes"][2]


def test_what_does_not_fit_ends_neither_the_others_nor_is_tried_with_more(monkeypatch) -> None:
    tried = []

    def with_z(self, z: int, deadline, run=Bounding.with_z):
        tried.append(z)
        if z >= 4:
            raise ResourceError("no room for it")
        return run(self, z, deadline)

    monkeypatch.setattr(Bounding, "with_z", with_z)
    limits = [argument for z in (2, 4, 5, 3) for argument in ("--z", str(z))]
    content = json.loads(run(app, ["bound", GRID, *limits, "--json", *ALONE]).stdout)
    assert tried == [2, 4, 3]
    assert [entry["z"] for entry in content["bounds"]] == [2, 3]
    assert content["notes"] == [
        "z = 4 did not fit: no room for it",
        "z = 5 was skipped: z = 4 did not fit, and it takes no less",
    ]
    alone = run(app, ["bound", GRID, "--z", "4", *ALONE])
    assert alone.exit_code == 30 and "no room for it" in alone.stderr


def test_wrong_limits_are_refused() -> None:
    for wrong in ("0", "-2", "many", "2.5"):
        done = run(app, ["bound", GRID, f"--z={wrong}"])
        assert done.exit_code == 2
        assert "--z" in done.stderr
