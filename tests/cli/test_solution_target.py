"""Where ``solve --solution`` may write is settled before the solve, which may take hours."""

from __future__ import annotations

import shutil

import pytest
from typer.testing import CliRunner

from oocbe.cli.main import app


@pytest.mark.parametrize("target", ["missing/day.sol", "day.spot"])
def test_a_solution_that_cannot_or_must_not_be_written_is_refused_first(tmp_path, monkeypatch, target):
    problem = tmp_path / "day.spot"
    shutil.copy("examples/daily.spot", problem)
    before = problem.read_bytes()
    monkeypatch.setattr("oocbe.facade.solve_timed", lambda *_: pytest.fail("solved all the same"))
    result = CliRunner().invoke(app, ["solve", str(problem), "--solution", str(tmp_path / target)])
    assert result.exit_code == 2
    assert "--solution" in result.stderr
    assert problem.read_bytes() == before
