"""Named points at which a test can kill the process: the proof that a run survives being killed anywhere.

``OOCBE_FAULT=message:renamed:3`` kills the process with SIGKILL when it passes the point ``message:renamed`` for the
third time. Without the variable a point costs one comparison. Points lie before and after each step of a publication
(:mod:`oocbe.tables.disk`, :mod:`oocbe.tables.group_writer`), of a run directory's life, and of that of a tree made on
disk; :data:`POINTS` and :data:`TREE_POINTS` list them.
"""

from __future__ import annotations

import os
import signal

from oocbe.errors import UsageError

VARIABLE = "OOCBE_FAULT"
"""The environment variable with the point at which the process dies."""

STEPS = ("begin", "written", "synchronised", "renamed", "done")
"""Steps in which a small file is published: before anything, then after each step."""

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
"""Points that are passed when something of a run is published."""

TREE_POINTS = (
    *(f"{what}:{step}" for what in ("tree-order", "tree-rows", "tree-record") for step in STEPS),
    "tree-segment:begin",
    "tree-segment:written",
    "tree-segment:synchronised",
    "tree-folder:renamed",
    "tree-folder:done",
)
"""Points that are passed when a junction tree is made on disk (:mod:`oocbe.junction_trees.stored.folder`)."""

_armed: str | None = None
_passings_left = 0


def arm(text: str | None) -> None:
    """Set the point at which this process dies, as in the variable; None or empty: nowhere.

    Raises
    ------
    UsageError : no point of that name, or no number from 1 behind it.
    """
    global _armed, _passings_left
    if not text:
        _armed = None
        return
    name, _, number = text.rpartition(":")
    if name not in (*POINTS, *TREE_POINTS) or not number.isdecimal() or int(number) < 1:
        raise UsageError(f"{VARIABLE}: {text!r} is not a point and a number, such as message:renamed:1")
    _armed, _passings_left = name, int(number)


def fault_point(name: str) -> None:
    """Pass a named point; the process dies here if it is the point that is set."""
    if _armed is None:
        return
    assert name in POINTS or name in TREE_POINTS, name
    global _passings_left
    if name == _armed:
        _passings_left -= 1
        if _passings_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get(VARIABLE))
