"""The benchmark of limits runs from its command, and notices a limit that is not kept."""

from __future__ import annotations

import pytest

from oocbe.formats import write
from oocbe.stress import Spot5Settings, spot5_day


@pytest.fixture
def folder(tmp_path):
    """A folder of instances with one tiny day."""
    (tmp_path / "spot5").mkdir()
    write(spot5_day(Spot5Settings(photographs=12, seed=3)), tmp_path / "spot5" / "tiny.spot")
    return tmp_path


ARGUMENTS = ("--only", "spot5", "--limits", "1000,2000", "--tolerance", "1000")


def test_limits_that_are_kept(folder, run_benchmark):
    done = run_benchmark("limits", folder, *ARGUMENTS, "--memory", "1TiB", "--markdown")
    assert done.returncode == 0, done.stdout + done.stderr
    head, _, row, *_ = done.stdout.splitlines()
    assert head.startswith("| family | solves | proven |")
    assert row.startswith("| spot5 | 1 | 1 |")  # proven within the shorter limit


def test_a_limit_that_is_not_kept(folder, run_benchmark):
    done = run_benchmark("limits", folder, *ARGUMENTS, "--memory", "1MiB")
    assert done.returncode == 1
    assert "spot5, tiny.spot, 1000 s" in done.stderr
