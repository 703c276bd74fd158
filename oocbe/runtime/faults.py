"""Faults for tests and the fuzz: a hook into file operations, and named points at which the process is killed.

``OOCBE_FAULT=message:renamed:3`` kills the process with SIGKILL when it passes the point ``message:renamed`` for the
third time, to show that a run survives a kill at any point. Without the variable a point costs one comparison. Points
precede and follow each step of a publication (:mod:`oocbe.tables.disk`, :mod:`oocbe.tables.writer`), and of the life of
a run directory and of a stored junction tree; :data:`POINTS` and :data:`TREE_POINTS` list them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oocbe.errors import UsageError

Hook = Callable[[str, Path], int | None]
"""Called with the operation (``create``, ``write``, ``synchronise``, ``rename``, ``folder``, ``remove``, ``read``) and
the file before it happens; may raise OSError, or return a limit of bytes for a write."""

_hook: Hook | None = None


@contextmanager
def hooked(hook: Hook) -> Iterator[None]:
    """Within the block, ``hook`` is called for every file operation of this process; for tests."""
    global _hook
    outer, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = outer


def before(operation: str, path: Path) -> int | None:
    """Call the hook, if any."""
    return None if _hook is None else _hook(operation, path)


VARIABLE = "OOCBE_FAULT"
"""Environment variable with the fault point and the number of passings."""

STEPS = ("begin", "written", "synchronised", "renamed", "done")
"""Steps of the publication of a small file: before the first, and after each."""

POINTS = (
    *(f"{what}:{step}" for what in ("run", "race", "known", "message", "result") for step in STEPS),
    "lock:taken",
    "table:begin",
    "table:chunk",
    "table:data-synchronised",
    "table:manifest-written",
    "table:manifest-synchronised",
    "table:renamed",
    "table:done",
    "forward:done",
    "backward:done",
    "tables:removing",
    "tables:removed",
)
"""Fault points of the publication of a run's files."""

TREE_POINTS = (
    *(f"{what}:{step}" for what in ("tree-order", "tree-rows", "tree-record") for step in STEPS),
    "tree-segment:begin",
    "tree-segment:written",
    "tree-segment:synchronised",
    "tree-folder:renamed",
    "tree-folder:done",
)
"""Fault points of the construction of a junction tree on disk (:mod:`oocbe.junction_trees.stored.folder`)."""

_armed: str | None = None
_passings_left = 0


def arm(text: str | None) -> None:
    """Set this process's fault point as in the variable, or none; UsageError: unknown point or number."""
    global _armed, _passings_left
    if not text:
        _armed = None
        return
    name, _, number = text.rpartition(":")
    if name not in (*POINTS, *TREE_POINTS) or not number.isdecimal() or int(number) < 1:
        raise UsageError(f"{VARIABLE}: {text!r} is not a point and a number, such as message:renamed:1")
    _armed, _passings_left = name, int(number)


def fault_point(name: str) -> None:
    """Pass a named point; kills the process if the point is set and its count is reached."""
    if _armed is None:
        return
    assert name in POINTS or name in TREE_POINTS, name
    global _passings_left
    if name == _armed:
        _passings_left -= 1
        if _passings_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get(VARIABLE))
