"""Child processes: their path to the package, and their end with the parent, however it ends.

``python -P -m oocbe.runtime.parents CONNECTION PARENT MODULE`` calls ``serve`` of a module with the connection to the
parent, given by their numbers; see :func:`connected_child`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from oocbe.runtime.data_limit import data_limit

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PACKAGE_FOLDER = Path(__file__).resolve().parents[2]
"""Folder of the package."""

ALONE_SECONDS = 0.2
"""Interval between checks of a child process for its parent, in seconds."""


def python_path() -> str:
    """``PYTHONPATH`` of a child: this package, and this process's path without entries for the current folder."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(PACKAGE_FOLDER), *filter(None, given)])


def child_command(module: str, *arguments: object) -> list[str]:
    """A command line for a module of this package; ``-P``: without the current folder, where others may write."""
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def child_environment() -> dict[str, str]:
    """Environment of such a process, and of those that it starts in turn."""
    return os.environ | {"PYTHONPATH": python_path(), "PYTHONSAFEPATH": "1"}


def serving_child(module: str, threads: int) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process that calls ``serve`` of a module with the connection; otherwise as :func:`connected_child`."""
    return connected_child("oocbe.runtime.parents", threads, module)


def connected_child(
    module: str, threads: int, *arguments: str, is_silent: bool = False
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process that runs a module of this package, with the numbers of the connection and of this process.

    The connection is private to the two. The child has a session of its own, so Ctrl-C reaches the parent only. A
    silent one does not hold the parent's output open: readers of a pipe would wait for it.
    """
    from multiprocessing import Pipe  # deferred: not needed at every start

    ours, theirs = Pipe()
    with theirs:
        number = theirs.fileno()
        process = subprocess.Popen(
            child_command(module, number, os.getpid(), *arguments),
            pass_fds=[number],
            env=child_environment() | {"OOCBE_THREADS": str(threads)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if is_silent else None,
            stderr=subprocess.DEVNULL if is_silent else None,
            start_new_session=True,
        )
    data_limit.spare(process.pid)
    return process, ours


def end_with(parent: int) -> None:
    """End this process, even within a compiled loop, when its parent has ended."""
    threading.Thread(target=_watch, args=(parent,), name="oocbe-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(ALONE_SECONDS)
    os._exit(1)


def main() -> None:
    """Serve the connection until the parent closes it or ends; see the module."""
    from multiprocessing.connection import Connection

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # tests may start it in the parent's process group
    connection, parent = Connection(int(sys.argv[1])), int(sys.argv[2])
    end_with(parent)
    import_module(sys.argv[3]).serve(connection)


if __name__ == "__main__":
    main()
