"""The SPOT5 benchmark runs from its command, with the peers that are installed, and notices wrong values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oocbe.formats import write
from oocbe.stress import Spot5Settings, spot5_day

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path):
    """A folder of instances with one tiny day, called 505 as a real one is."""
    (tmp_path / "spot5").mkdir()
    write(spot5_day(Spot5Settings(photographs=12, seed=3)), tmp_path / "spot5" / "505.spot")
    return tmp_path


ARGUMENTS = ("--instances", "505", "--repeat", "1", "--seconds", "5")


def test_every_installed_peer_agrees(folder, run_benchmark):
    done = run_benchmark("spot5", folder, *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    head, row, *_ = (line.split("  ") for line in done.stdout.splitlines())
    assert head[0] == "instance"
    assert row[0].strip() == "505"
    assert "failed" not in done.stdout


def test_wrong_optimum_is_noticed(folder):
    entry = {"spot5/505.spot": {"status": "optimal", "minimum": -1}}
    (folder / "optima.json").write_text(json.dumps(entry))
    environment = {**os.environ, "OOCBE_DATA": str(folder), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, str(ROOT / "benchmarks" / "spot5.py"), *ARGUMENTS, "--peers", "", "--markdown"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, check=False)
    assert done.returncode == 1
    assert "oocbe has" in done.stderr
    assert done.stdout.startswith("| instance |")
    assert "505: peak" in done.stderr


def test_unknown_peer_is_refused(folder, run_benchmark):
    done = run_benchmark("spot5", folder, *ARGUMENTS, "--peers", "abacus")
    assert done.returncode == 2
    assert "abacus" in done.stderr
