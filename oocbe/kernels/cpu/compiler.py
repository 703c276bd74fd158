"""Compilation in child processes: the parent can stop waiting, and a child still finishes and saves its loop.

Numba's compiler cannot be interrupted, and a loop takes seconds. So a process with a time limit, or one that answers
signals, does not compile by itself. This also keeps the compiler's memory out of the process's own limit.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
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
from oocbe.runtime.data_limit import data_limit
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.parents import connected_child
from oocbe.runtime.process_memory import own_memory

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

POLL_SECONDS = 0.01
"""Interval of the checks of the deadline while a loop is compiled, which takes seconds."""

LEAST_SECONDS = 0.5
"""Time to a deadline, in seconds, below which no wait begins: few compilations end sooner, and work after a limit has
no longer deadlines of its own."""

MOST_CHILDREN = 2
"""Maximum number of compiling processes of a command, so that the long compilation of the local search delays no other.
With a limit on this process's data it is 1: the program's share of the memory has room for one."""

MOST_BYTES = 100 << 20
"""Private memory of a child, in bytes, from which it ends after its loop within a limit on this process's data: Numba
keeps all that it compiles. A child begins with 80 MiB, and the largest loops add 70."""

LOW_PRIORITY = 10
"""Nice value of a child that begins as its parent ends: nobody waits for it."""

MODULE = "oocbe.kernels.cpu.compiler"
"""This module, run by the children."""

Child = tuple["subprocess.Popen[bytes]", "Connection"]
"""A compiling process, and the connection to it."""

Loop = tuple[str, str, str]
"""Module and qualified name of a loop, and the types of its arguments as listed in ``signatures.json``."""


class Compiler:
    """The compiling children of this process: few, as each takes 150 MiB. Further loops wait for an idle one."""

    def __init__(self, most_children: int = MOST_CHILDREN) -> None:
        self._most_children = most_children
        self.forget()

    def forget(self) -> None:
        """Start anew in a forked process, which does not own the children of its parent."""
        self._lock = Lock()
        self._idle: list[Child] = []
        self._running: dict[Loop, Child] = {}
        self._waiting: list[Loop] = []
        self._tried: set[Loop] = set()
        self._left: dict[Loop, None] = {}

    def start(self, loop: Loop) -> None:
        """Compile a loop in a child, before other waiting loops, unless one compiles it already."""
        with self._lock:
            self._tried.add(loop)
            if loop in self._waiting:
                self._waiting.remove(loop)
            if loop not in self._running:
                self._waiting.insert(0, loop)
            self._go_on()

    def has_tried(self, loop: Loop) -> bool:
        """Whether the compilation of a loop has ended. Starts the first one, but no other, as it may fail."""
        if loop not in self._tried:
            self.start(loop)
        return self.is_over(loop)

    def is_over(self, loop: Loop) -> bool:
        """Whether a compilation has ended. If it failed, or its child was killed, the loop is in no cache."""
        with self._lock:
            self._go_on()
            return loop not in self._running and loop not in self._waiting

    def _go_on(self) -> None:
        """Record ended compilations, and start waiting ones."""
        for loop, (process, connection) in list(self._running.items()):
            try:
                if not connection.poll():
                    continue
                del self._running[loop]  # first: an interrupt now loses the child, and no wait lasts for ever
                if connection.recv() > MOST_BYTES and data_limit.is_set:
                    connection.close()
                    process.wait()
                else:
                    self._idle.append((process, connection))
            except (EOFError, OSError):
                process.wait()
        most = 1 if data_limit.is_set else self._most_children
        while self._waiting and len(self._running) < most:
            loop = self._waiting.pop(0)
            with suppress(OSError):  # no process can be started, or it was killed: over, without a result
                child = self._idle.pop() if self._idle else connected_child(MODULE, 1, is_silent=True)
                child[1].send(loop)
                self._running[loop] = child

    def leave(self, loop: Loop) -> None:
        """Compile a loop after the end of this process, at a low priority."""
        self._left[loop] = None

    def compile_left(self) -> None:
        """Start a child for the loops left, unless compiled; one at a time, as many short runs would leave many."""
        left = [loop for loop in self._left if loop not in self._tried]
        self._left.clear()
        if left:
            with suppress(OSError):
                lock = f"{found('oocbe.kernels.cpu.jit', 'cache_folder')()}/late.lock"
                connection = connected_child(MODULE, 1, lock, is_silent=True)[1]
                for loop in left:
                    connection.send(loop)
                connection.close()

    def close(self) -> None:
        """End the idle children."""
        with self._lock:
            for process, connection in self._idle:
                connection.close()
                process.wait()
            self._idle.clear()

    def compile(self, loop: Loop, deadline: Deadline) -> None:
        """Wait until a child has compiled a loop; it goes on after TimeLimitError or RequestedEndError here."""
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
"""The one instance of this process."""

atexit.register(compiler.compile_left)
os.register_at_fork(after_in_child=compiler.forget)


def found(module: str, name: str) -> Any:
    """A loop or a class, by its module and qualified name. Raises ImportError, AttributeError: it is not there."""
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def serve() -> None:
    """Compile for the parent until it has ended, or ends the connection; the reply is the memory of this process.

    A late child is given a file to lock, and ends where another one has locked it.
    """
    from multiprocessing.connection import Connection  # deferred: the parent may need no child

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(500_000, 3)  # objects between two collections, a tenth of a compilation's time at Python's 700
    atexit.register(gc.freeze)  # the end of a process frees all; a last run over the compiler's objects takes 0.5 s
    connection = Connection(int(sys.argv[1]))
    with suppress(EOFError, OSError):
        for lock in sys.argv[3:]:
            os.nice(LOW_PRIORITY - os.nice(0))
            fcntl.lockf(os.open(lock, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX | fcntl.LOCK_NB)
        while True:
            module, name, types = connection.recv()
            with suppress(Exception):  # the parent meets the error when it compiles the loop
                found(module, name).compile(found("oocbe.kernels.cpu.signatures", "made")(types, {}))
            with suppress(OSError):  # the parent has ended, and left more loops
                connection.send(own_memory())


if __name__ == "__main__":
    serve()
