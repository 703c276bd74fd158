"""Compilation in child processes: the parent can stop waiting, and a child still finishes and saves its loop.

Numba's compiler cannot be interrupted, and a loop takes seconds. So a process with a time limit, or one that answers
signals, does not compile by itself. This also keeps the compiler's memory out of the process's own limit.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from oocbe.errors import TimeLimitError
from oocbe.runtime.compilation import compilation
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.parents import connected_child

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

POLL_SECONDS = 0.01
"""Interval of the checks of the deadline while a loop is compiled, which takes seconds."""

LEAST_SECONDS = 0.4
"""Time to a deadline, in seconds, below which no wait begins: few compilations end sooner, and work after a limit has
shorter deadlines of its own."""

MODULE = "oocbe.kernels.cpu.compiler"
"""This module, run by the children."""

Child = tuple["subprocess.Popen[bytes]", "Connection"]
"""A compiling process, and the connection to it."""

Loop = tuple[str, str, Any]
"""Module and qualified name of a loop, and Numba's types of its arguments."""


class Compiler:
    """The compiling children of this process, one for each loop that is being compiled."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self._owner = os.getpid()
        self._idle: list[Child] = []
        self._running: dict[Loop, Child] = {}

    def start(self, loop: Loop) -> None:
        """Start the compilation of a loop in a child, unless it runs already."""
        with self._lock:
            if self._owner != os.getpid():  # a fork does not own the children of its parent
                self._forget()
            if loop not in self._running:
                child = self._idle.pop() if self._idle else connected_child(MODULE, 1, is_silent=True)
                with suppress(OSError):  # the child was killed: the compilation is over, without a result
                    child[1].send(loop)
                    self._running[loop] = child

    def is_over(self, loop: Loop) -> bool:
        """Whether a compilation has ended. If it failed, or its child was killed, the loop is in no cache."""
        with self._lock:
            if loop not in self._running:
                return True
            process, connection = self._running[loop]
            try:
                if not connection.poll():
                    return False
                connection.recv()
                self._idle.append((process, connection))
            except (EOFError, OSError):
                process.wait()
            del self._running[loop]
            return True

    def close(self) -> None:
        """End the idle children."""
        with self._lock:
            for process, connection in self._idle:
                connection.close()
                process.wait()
            self._idle.clear()

    def compile(self, loop: Loop, deadline: Deadline) -> None:
        """Wait until a child has compiled a loop.

        Raises
        ------
        TimeLimitError, RequestedEndError : the deadline came first, or is too near. The child finishes the loop, and
            ends.
        """
        compilation.begin()
        try:
            self.start(loop)
            if deadline.remaining < LEAST_SECONDS:
                deadline.check_requested()
                raise TimeLimitError(deadline.reason)
            while not self.is_over(loop):
                deadline.check()
                time.sleep(POLL_SECONDS)
        finally:
            compilation.end()


compiler = Compiler()
"""Of this process."""


def serve() -> None:
    """Compile for the parent until it has ended."""
    from multiprocessing.connection import Connection  # deferred: the parent may need no child

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    with suppress(EOFError, OSError):
        while True:
            module, name, signature = connection.recv()
            loop: Any = importlib.import_module(module)
            for part in name.split("."):
                loop = getattr(loop, part)
            with suppress(Exception):  # the parent meets the error when it compiles the loop
                loop.compile(signature)
            connection.send(None)


if __name__ == "__main__":
    serve()
