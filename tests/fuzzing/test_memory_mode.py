"""The fuzz of memory limits: cases of each kind hold, and a program that takes too much is found."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from random import Random

import pytest

from tools.fuzzing import control_groups, memory_mode, runner
from tools.fuzzing.fork_server import Server
from tools.fuzzing.outcome import DisagreementError, Tally

ALIKE = ("count-optimal", "kbest", "logz", "min-marginals", "mpe", "plan", "join_sum", "maximise", "to_complete")
"""Kinds that take memory where others do."""


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.slow if way in ALIKE else ()) for way in memory_mode.WAYS]
)
def test_a_case_holds(way, tmp_path):
    mode = memory_mode.OfCommand(way)
    case = mode.draw(Random(way))
    case |= {"memory": 4, "room": None} | {name: 20_000 for name in ("size", "rows") if name in case}
    if way == "stress":
        case["groups"] = 32
    tally = Tally()
    mode.check(case, tmp_path, tally)
    assert tally.checks > 3


def test_a_program_of_its_own_holds_as_well(tmp_path):
    case = memory_mode.draw(Random(3), "solve") | {"memory": 32, "room": None, "size": 1 << 16, "kind": 0}
    tally = Tally()
    memory_mode._check(case, tally, control_groups.run_python)
    assert tally.checks > 3


def test_every_mode_has_cases_of_its_own():
    for name in runner.COMMANDS:
        assert runner.draw_case(name, 1, 0, 0)["way"] == name.removeprefix("memory-")


def test_what_passes_the_limit_is_killed_or_measured(tmp_path):
    command = [sys.executable, "-c", "x = bytearray(200 << 20)"]
    ended = control_groups.run(command, 64 << 20, {}, 60.0)
    assert ended.code == -9 if ended.is_group else ended.peak > 200 << 20


def test_a_command_that_is_killed_is_a_failure():
    with pytest.raises(DisagreementError, match="signal"):
        memory_mode._check_end(control_groups.Ended(-9, "", "", 0, True), {"memory": 64, "room": None}, Tally())


@pytest.mark.parametrize("has_room", [False, True])
def test_a_narrow_case_that_compiled_loops_is_repeated(monkeypatch, tmp_path, has_room):
    case, rooms = memory_mode.draw(Random(3), "solve") | {"room": 4}, []

    def killed(given, tally, run):
        rooms.append(given["room"])
        if given["room"] == 4 and (len(rooms) == 1 or not has_room):
            memory_mode._check_end(control_groups.Ended(-9, "", "", 0, True), given, tally)

    monkeypatch.setattr(memory_mode, "_check", killed)
    tally = Tally()
    with nullcontext() if has_room else pytest.raises(DisagreementError, match="signal"):
        memory_mode.check(case, tmp_path, tally)
    assert rooms == [4, memory_mode.COMPILING_MIB, 4]
    assert sum(tally.refusals.values()) == has_room


def test_without_a_control_group_the_peak_counts(monkeypatch):
    monkeypatch.setattr(control_groups, "ROOT", control_groups.ROOT / "not there")
    ended = control_groups.run([sys.executable, "-c", "print(1)"], 1 << 20, {}, 60.0)
    assert (ended.code, ended.output, ended.is_group) == (0, "1\n", False)
    most = memory_mode.PROGRAM_BYTES + memory_mode.LIBRARY_BYTES
    with pytest.raises(DisagreementError, match="peak"):
        memory_mode._check_end(
            control_groups.Ended(0, "", "", most + (65 << 20), False), {"memory": 64, "room": None}, Tally()
        )


def test_what_hangs_is_ended(tmp_path):
    with pytest.raises(subprocess.TimeoutExpired):
        control_groups.run([sys.executable, "-c", "import time; time.sleep(60)"], 64 << 20, {}, 0.5)


def test_a_child_of_the_server_is_killed_as_a_program_is_and_hangs_as_one_does(tmp_path):
    """It reads for a second, and takes some 30 MiB."""
    clauses = "\n".join(f"{i} -{i + 1} 0" for i in range(1, 30_000))
    (tmp_path / "p.cnf").write_text(f"p cnf 30000 29999\n{clauses}\n")
    command = ["-m", "oocbe", "inspect", str(tmp_path / "p.cnf")]
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(sys.path)}
    server = Server()
    with pytest.raises(subprocess.TimeoutExpired) as late:
        server.run(command, 2 << 30, environment, 0.2, tmp_path)
    assert "most recent call first" in late.value.stderr
    ended = server.run(command, 2 << 30, environment, 60.0, tmp_path)
    assert ended.code == 0
    assert "variables" in ended.output
    if ended.is_group:
        assert server.run(command, ended.peak - (8 << 20), environment, 60.0, tmp_path).code == -9
    server.stop()
