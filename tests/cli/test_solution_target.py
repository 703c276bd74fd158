"""Where ``solve`` may write its solution and trace is settled before the solve, which may take hours."""

from __future__ import annotations

import shutil

import pytest
from typer.testing import CliRunner

from oocbe.cli.main import app

DAILY = "examples/daily.spot"


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("flag", ["--solution", "--trace"])
@pytest.mark.parametrize("target", ["missing/file", "day.spot", "folder", "run/file", "run/order/file"])
def test_what_cannot_or_must_not_be_written_is_refused_first(tmp_path, monkeypatch, flag, target):
    for name in ("folder", "run/order"):
        (tmp_path / name).mkdir(parents=True)
    problem = tmp_path / "day.spot"
    shutil.copy("examples/daily.spot", problem)
    before = problem.read_bytes()
    monkeypatch.setattr("oocbe.api.solving.solve.solve", lambda *_: pytest.fail("solved all the same"))
    result = call("solve", problem, "--workdir", tmp_path / "run", flag, tmp_path / target)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"oocbe: {flag} {tmp_path / target}: ")
    assert problem.read_bytes() == before
    assert not (tmp_path / target).is_file() or target == "day.spot"


@pytest.mark.parametrize("flag", ["--solution", "--trace"])
@pytest.mark.parametrize("target", ["run", "link", "run/file"])
def test_the_run_directory_is_kept_free_of_other_files(tmp_path, flag, target):
    (tmp_path / "link").symlink_to(tmp_path / "run" / "file")
    result = call("solve", DAILY, "--workdir", tmp_path / "run", flag, tmp_path / target)
    assert result.exit_code == 2
    assert "work folder" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_place_of_scratch_folders_may_hold_other_files(tmp_path):
    flags = ["--task", "count", "--order-seconds", 0, "--quiet"]
    day, place = tmp_path / "day.spot", tmp_path / "scratch"
    assert call("synth", "spot5", day, "-n", 12).exit_code == 0
    place.mkdir()
    result = call("solve", day, *flags, "--workdir", place, "--trace", place / "t.json")
    assert result.exit_code == 0, result.stderr
    assert [path.name for path in place.iterdir()] == ["t.json"]


def test_trace_and_solution_do_not_write_over_one_another(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    result = call("solve", DAILY, "--solution", tmp_path / "file", "--trace", tmp_path / "link")
    assert result.exit_code == 2
    assert "the solution goes there" in result.stderr
    assert not (tmp_path / "file").exists()


def test_proof_and_formula_are_named_in_the_refusal(tmp_path):
    result = call("solve", DAILY, "--proof", tmp_path / "file", "--opb", tmp_path / "file")
    assert result.exit_code == 2
    assert "the proof goes there" in result.stderr


def test_a_link_into_a_missing_folder_is_refused_with_that_folder(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "missing" / "file")
    result = call("solve", DAILY, "--solution", tmp_path / "link")
    assert result.exit_code == 2
    assert f"the folder {tmp_path / 'missing'} does not exist" in " ".join(result.stderr.split())


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_solve(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda folder, _: folder != tmp_path)
    monkeypatch.setattr("oocbe.cli.solve.load", lambda *_: pytest.fail("read the problem all the same"))
    result = call("solve", DAILY, "--proof", tmp_path / "p", "--opb", tmp_path / "o")
    assert result.exit_code == 2
    assert "cannot be written to" in result.stderr


def test_stress_looks_at_its_trace_first(tmp_path, monkeypatch):
    monkeypatch.setattr("oocbe.stress.tables.SyntheticTable.write", lambda *_: pytest.fail("made tables all the same"))
    result = call("stress", "--rows", "3e4", "--trace", tmp_path / "missing" / "t.json")
    assert result.exit_code == 2
    assert "does not exist; make it first" in result.stderr
