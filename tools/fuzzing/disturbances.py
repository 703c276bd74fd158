"""Kills, delays and failing disks that happen at the n-th file operation of a kind, so that a replay repeats them.

A run writes whatever it keeps by the few operations of :mod:`oocbe.tables.disk`, which has a hook for tests. So a
disturbance is an operation, how often it has happened before, and what happens then. All processes of one role count
together, in files of a folder: the third part that workers begin to write is disturbed, whichever of them writes it,
and a worker that is started again is not killed once more at the same place. A kill at a named point
(:mod:`oocbe.runtime.faults`) is a disturbance as well.

Processes that are forked are disturbed by :func:`disturbed`, others by a variable of their environment, which
``injected/sitecustomize.py`` reads as they start.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

Disturbance = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]

VARIABLE = "FUZZ_DISTURBANCES"
"""Disturbances and the folder of their counts, as JSON, for a process that is started."""

OPERATIONS = ("create", "write", "synchronise", "rename", "folder", "remove", "read")
"""Operations that :func:`oocbe.tables.disk.hooked` tells of."""

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
"""What a failing and a full disk say."""

DELAY_SECONDS = 0.2
"""Longer than a segment of a small problem takes: others overtake it."""

WORKER = "worker"
"""Role of the processes that do segments; the others are ``asks``."""


def random_disturbance(random: Random, roles: Sequence[str] = ("asks",), kills: float = 0.6) -> Disturbance:
    """A kill, with this probability, or a failure of the disk, a short write or a delay."""
    what = "kill" if random.random() < kills else random.choice((*ERRORS, "short", "delay"))
    operation = "write" if what == "short" else random.choice(OPERATIONS)
    if operation == "read" and what == "ENOSPC":
        what = "EIO"  # a full disk can be read
    passing = random.choice((1, 1, 2, 3, 5, 8, 13, 21, 34))
    return {"who": random.choice(roles), "operation": operation, "passing": passing, "what": what}


def may_fail(disturbances: Sequence[Disturbance]) -> bool:
    """Whether a run that is disturbed so may end with an error of the disk."""
    return any(disturbance.get("what") in ERRORS for disturbance in disturbances)


def may_be_unreadable(disturbances: Sequence[Disturbance]) -> bool:
    """Whether a run that is disturbed so may end because a file of it cannot be read."""
    return any(d.get("what") in ERRORS and d.get("operation") == "read" for d in disturbances)


class _Hook:
    """What sees the file operations of this process."""

    def __init__(self, disturbances: Sequence[Disturbance], counts: Path, role: str) -> None:
        self._own = [d for d in disturbances if d.get("who") == role]
        self._counts, self._role = counts, role

    def __call__(self, operation: str, path: Path) -> int | None:
        own = [d for d in self._own if d["operation"] == operation]
        number = self._counted(operation) if own else 0
        for what in (d["what"] for d in own if d["passing"] == number):
            if what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "delay":
                time.sleep(DELAY_SECONDS)
            if what == "short":
                return 1
            if what in ERRORS:
                raise OSError(ERRORS[what], os.strerror(ERRORS[what]), str(path))
        return None

    def _counted(self, operation: str) -> int:
        """How often processes of this role have come to the operation, this time included."""
        handle = os.open(self._counts / f"{self._role}-{operation}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            number = int(os.pread(handle, 20, 0) or b"0") + 1
            os.pwrite(handle, str(number).encode(), 0)
        finally:
            os.close(handle)
        return number


@contextmanager
def disturbed(disturbances: Sequence[Disturbance], counts: Path, role: str = "asks") -> Iterator[None]:
    """Within the block, this process is disturbed where its role is meant.

    counts : a folder for the counts, which begin with it.
    """
    from oocbe.runtime import faults
    from oocbe.tables import disk

    counts.mkdir(parents=True, exist_ok=True)
    points = [d["point"] for d in disturbances if "point" in d and role == "asks"]
    faults.arm(points[0] if points else None)
    with disk.hooked(_Hook(disturbances, counts, role)):
        yield


def environment_of(disturbances: Sequence[Disturbance], counts: Path) -> Mapping[str, str]:
    """What disturbs a process that is started, and those that it starts."""
    path = [str(Path(__file__).with_name("injected")), str(ROOT), *filter(None, sys.path)]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        VARIABLE: json.dumps({"disturbances": list(disturbances), "counts": str(counts)}),
    }


def disturb_this_process() -> None:
    """Do as the variable says, until this process ends."""
    given = json.loads(os.environ[VARIABLE])
    role = WORKER if "oocbe.execution.cluster.worker" in sys.orig_argv else "asks"
    _lasting.append(disturbed(given["disturbances"], Path(given["counts"]), role))
    _lasting[-1].__enter__()


_lasting: list[Any] = []
"""Blocks that end with the process."""
