"""Every command and operator with a memory limit, in a control group that has that and the program's own share.

Each ends with an answer, or is refused with exit code 30 and a message: it is never killed, writes no traceback, and
leaves neither half an output nor scratch files. Where no control group can be made, its peak is measured instead.

``memory`` draws any command, ``memory-solve`` and so on one of them, and ``memory-each`` takes them all in turn.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from . import control_groups
from .control_groups import Ended
from .fork_server import ROOM_VARIABLE, Server
from .memory_commands import WAYS, commands, draw_details
from .memory_operators import OPERATORS
from .outcome import DisagreementError, NotAvailableError, Tally

Description = dict[str, Any]

MIB = 1 << 20

PROGRAM_BYTES = 256 * MIB
"""What the program takes beside the limit, as docs/limits.md has it."""

LIBRARY_BYTES = 112 * MIB
"""Pages of libraries' files in a process's own peak, which a control group counts for whoever read them first."""

SECONDS = 150.0
"""A command that takes longer hangs: its time limit is a few seconds, reading included."""

LIMITS = (16, 16, 24, 32, 32, 48, 64, 64, 96, 128, 256)
"""Memory limits in MiB: large inputs take long to make."""

NARROW_LIMITS = (1, 1, 1, 2, 4, 8)
"""The same, of cases whose program has less room."""

ROOMS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48)
"""MiB that loops and further libraries may take in a child of the server, in place of what the program's share leaves
for tables: some 100 MiB. A limit is so reached where a case takes a tenth of a second, wherever the program is then."""

COMPILING_MIB = 512
"""Room of a case that compiles what it needs first."""

OF_SEVERAL_PROCESSES = ("many",)
"""Kinds whose commands start processes, which have the whole share each."""

NARROW = 0.93
"""Share of the cases with so little room."""

ABOVE_MIB, ABOVE_WITH_ARROW_MIB = 64, 160
"""What a control group has above the limits that the program sets itself, of the program's share. Arrow and Zarr, which
work without these limits, need more of it."""

UNSUPPORTED = ("support", "at most", "stops at", "too wide", "cannot tell apart")
"""Words of messages about what no memory would help."""

ABORTED = (-signal.SIGABRT, 128 + signal.SIGABRT)
"""Exit codes of LLVM, HiGHS and Arrow without memory. Nothing promises that they have it in a narrow case."""

KILLED = -signal.SIGKILL
"""Exit code of a library call in a group that is smaller than promised: only commands limit their process."""

ENDS = (0, 10, 11, 20, 30)
"""Exit codes of answers, limits and refusals for want of memory."""

server, ready_server = Server(), Server(has_all=True)
"""Of this process: the commands that it runs have no start of Python each. Three of four narrow cases have no modules
and loops to load either: a failure while they are loaded is found by the others."""


@dataclass(frozen=True)
class OfCommand:
    """The mode of one kind of commands."""

    way: str

    def draw(self, random: Random) -> Description:
        """A case of this kind."""
        return draw(random, self.way)

    def check(self, case: Description, folder: Path, tally: Tally) -> None:
        """As :func:`check`."""
        check(case, folder, tally)

    def smaller(self, case: Description) -> Iterator[Description]:
        """As :func:`smaller`."""
        return smaller(case)


def draw(random: Random, way: str | None = None) -> Description:
    """A command, its limit, and the numbers that its input is made from.

    Without a way, the limits are those that the documentation promises. Modes of one way draw narrow ones as well.
    There, libraries may end the process; scratch files, messages and all other ends are checked as ever.
    """
    is_narrow = way is not None and way not in OF_SEVERAL_PROCESSES and random.random() < NARROW
    way = way or random.choice(tuple(WAYS))
    room = random.choice(ROOMS) if is_narrow else None
    limit = random.choice(LIMITS if room is None else NARROW_LIMITS)
    case = {"way": way, "memory": limit, "room": room, "number": random.randrange(2**31)}
    return case | draw_details(random, way, limit if room is None else limit + room, room is not None)


def check(case: Description, folder: Path, tally: Tally) -> None:
    """Run the case's commands one after the other, until one is refused.

    A child of the server has less memory than a program of its own, so what fails there is run once more as one.
    """
    from oocbe.runtime.memory import DEVICE

    if DEVICE.exists():
        raise NotAvailableError("a CUDA driver takes main memory of its own, beside what a limit holds for")
    try:
        is_ready = case["room"] is not None and case["number"] % 4
        _check(case, tally, (ready_server if is_ready else server).run)
    except DisagreementError as error:
        if case["room"] is None:
            _check(case, tally, control_groups.run_python)
            tally.refusals["in a child of the server only"] += 1
        elif f"signal ({KILLED})" in error.found:  # perhaps loops were compiled, for which narrow cases have no room
            with suppress(DisagreementError):
                _check({**case, "room": COMPILING_MIB}, Tally(), server.run)
            _check(case, tally, server.run)
            tally.refusals["with loops to compile only"] += 1
        else:
            raise  # no other process has so little room


def _check(case: Description, tally: Tally, run: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="oocbe-fuzz-") as made:  # on a disk: files in memory count for the group
        place = Path(made)
        (place / "tmp").mkdir()
        for command, outputs in commands(case, place):
            ended = _run(command, case, place, run)
            killed = ended.code == KILLED and case["way"] in OPERATORS
            if case["room"] is not None and (ended.code in ABORTED or killed):
                tally.refusals["ended in less room than promised"] += 1
                return
            _check_end(ended, case, tally)
            left = sorted(p.name for p in (place / "tmp").iterdir())
            tally.same("files left in the scratch folder", [], left)
            if ended.code == 30:
                tally.refusals["memory"] += 1
                there = [str(path.relative_to(place)) for path in outputs if path.exists()]
                tally.same("outputs of a command that was refused", [], there)
                return


def _run(command: list[str], case: Description, place: Path, run: Any) -> Ended:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OOCBE_")}
    environment |= {"TMPDIR": str(place / "tmp"), "OOCBE_MEMORY": f"{case['memory']}MiB", "OOCBE_BACKEND": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *sys.path])
    prepares = "1GiB" in command
    memory = (1024 if prepares else case["memory"]) * MIB
    if case["room"] is None or prepares:
        limit = memory + (case["number"] % 2 + 2 if case["way"] in OF_SEVERAL_PROCESSES else 1) * PROGRAM_BYTES
    else:
        environment[ROOM_VARIABLE] = str(case["room"] * MIB)
        has_arrow = case["way"] == "parquet" or case.get("out") in ("parquet", "zarr")
        limit = memory + (case["room"] + (ABOVE_WITH_ARROW_MIB if has_arrow else ABOVE_MIB)) * MIB
    try:
        ended: Ended = run(command, limit, environment, SECONDS, place)
    except subprocess.TimeoutExpired as late:
        error = DisagreementError("end of a command", "one within its time limit", f"none in {SECONDS:g} s")
        error.found += f": {late.stderr or ''}"  # where its threads were, however long that is
        raise error from None
    return ended


def _check_end(ended: Ended, case: Description, tally: Tally) -> None:
    said = ended.errors[-1500:]
    if ended.code < 0 or ended.code >= 128:
        raise DisagreementError("end of a command", "an answer or a refusal", f"signal ({ended.code}): {ended.errors}")
    for sign in ("Traceback", "internal error", "Exception ignored"):
        tally.holds("messages", sign not in ended.errors, "one line about what was wrong", said)
    unsupported = ended.code == 2 and any(sign in said for sign in UNSUPPORTED)
    if unsupported:
        tally.refusals["unsupported"] += 1
    tally.holds("exit code", ended.code in ENDS or unsupported, f"one of {ENDS}", f"{ended.code}: {said}")
    if not ended.is_group and case["room"] is None:
        most = case["memory"] * MIB + PROGRAM_BYTES + LIBRARY_BYTES
        tally.holds("peak", ended.peak <= most, f"at most {most:,} bytes", f"{ended.peak:,}")


def smaller(case: Description) -> Iterator[Description]:
    """Smaller inputs."""
    for name in ("size", "rows"):
        if case.get(name, 0) > 1000:
            yield {**case, name: case[name] // 2}
    if case.get("is_compressed"):
        yield {**case, "is_compressed": False}
