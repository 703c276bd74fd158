"""Where ``solve`` may write its solution and trace is settled before the solve, which may take hours."""

from __future__ import annotations

import shutil

import pytest
from typer.testing import CliRunner

from oocbe.cli.main import app


@pytest.mark.parametrize("flag", ["--solution", "--trace"])
@pytest.mark.parametrize("target", ["missing/file", "day.spot", "folder", "run/file", "run/order/file"])
def test_what_cannot_or_must_not_be_written_is_refused_first(tmp_path, monkeypatch, flag, target):
    for name in ("folder", "run/order"):
        (tmp_path / name).mkdir(parents=True)
    problem = tmp_path / "day.spot"
    shutil.copy("examples/daily.spot", problem)
    before = problem.read_bytes()
    monkeypatch.setattr("oocbe.facade.solve_timed", lambda *_: pytest.fail("solved all the same"))
    arguments = ["solve", problem, "--workdir", tmp_path / "run", flag, tmp_path / target]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"oocbe: {flag} {tmp_path / target}: ")
    assert problem.read_bytes() == before
    assert not (tmp_path / target).is_file() or target == "day.spot"
