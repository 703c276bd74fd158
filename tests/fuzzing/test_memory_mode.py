"""The fuzz of memory limits: cases of each kind hold, and a program that takes too much is found."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest

from tools.fuzzing import control_groups, memory_mode
from tools.fuzzing.outcome import DisagreementError, Tally


@pytest.mark.parametrize("way", ["solve", "plan", "operator"])
def test_a_case_holds(way, tmp_path):
    case = memory_mode.draw(Random(way), way)
    case |= {"memory": 64, "size": 1 << 18} if way != "operator" else {"memory": 32, "rows": 100_000}
    tally = Tally()
    memory_mode.check(case, tmp_path, tally)
    assert tally.checks > 3


def test_what_passes_the_limit_is_killed_or_measured(tmp_path):
    command = [sys.executable, "-c", "x = bytearray(200 << 20)"]
    ended = control_groups.run(command, 64 << 20, {}, 60.0)
    assert ended.code == -9 if ended.is_group else ended.peak > 200 << 20


def test_a_command_that_is_killed_is_a_failure():
    with pytest.raises(DisagreementError, match="signal"):
        memory_mode._check_end(control_groups.Ended(-9, "", "", 0, True), {"memory": 64}, Tally())


def test_without_a_control_group_the_peak_counts(monkeypatch):
    monkeypatch.setattr(control_groups, "ROOT", control_groups.ROOT / "not there")
    ended = control_groups.run([sys.executable, "-c", "print(1)"], 1 << 20, {}, 60.0)
    assert (ended.code, ended.output, ended.is_group) == (0, "1\n", False)
    most = memory_mode.PROGRAM_BYTES + memory_mode.LIBRARY_BYTES
    with pytest.raises(DisagreementError, match="peak"):
        memory_mode._check_end(control_groups.Ended(0, "", "", most + (65 << 20), False), {"memory": 64}, Tally())


def test_what_hangs_is_ended(tmp_path):
    with pytest.raises(subprocess.TimeoutExpired):
        control_groups.run([sys.executable, "-c", "import time; time.sleep(60)"], 64 << 20, {}, 0.5)
