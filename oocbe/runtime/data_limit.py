"""The system's limit on the memory of a process, for a program that owns its process.

The system kills a process that exceeds a control group's limit. With a limit on the process's data (RLIMIT_DATA), an
allocation fails instead: work in pieces handles the error with smaller pieces, a command with a message and an exit
code.

The limit counts mapped memory, used or not, such as whole stacks of threads.

After a failed allocation, LLVM and Arrow's threads end the process, HiGHS may hang on loading, and Python waits for
ever for a thread that could not start. Therefore the limit is lifted during the compilation and loading of loops, the
work of Arrow, the loading of such libraries and the start of threads. Memory mapped by compilation is added to the
limit; the rest is part of the program. Child processes would inherit the limit without lifting it: they get the
previous limit.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from oocbe.runtime.process_memory import memory_in_use

PROGRAM_DATA_BYTES = 176 << 20
"""Bytes mapped by libraries and compiled loops, excluding tables: 130 MiB, or 160 MiB with Arrow's threads."""

THREAD_DATA_BYTES = 8 << 20
"""Bytes of a thread's stack."""

BUFFER_ITEMS = 64
"""Length of NumPy's buffers under a limit. NumPy 2.4 crashes if an operation's buffer finds no memory, as in broadcasts
over short rows. The default of 8,192 items takes 64 KiB; 64 items fit in memory that the heap has."""


def mapped_data() -> int:
    """This process's data as counted by the system, in bytes."""
    return memory_in_use()[5]


class DataLimit:
    """The limit of this process, set for one block at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lifts = 0
        self._limit: int | None = None
        self._original = (0, 0)

    @property
    def is_set(self) -> bool:
        """Whether the limit is in force."""
        return self._limit is not None

    @contextmanager
    def of(self, nbytes: int, threads: int) -> Iterator[None]:
        """Within the block the process maps at most ``nbytes`` more, in addition to the program itself and its threads.

        No effect if the system has a lower limit, or does not report the process's data.
        """
        import resource

        import numpy as np

        mapped = mapped_data()
        limit = mapped + nbytes + PROGRAM_DATA_BYTES + threads * THREAD_DATA_BYTES
        self._original = resource.getrlimit(resource.RLIMIT_DATA)
        if mapped == 0 or (self._original[0] != resource.RLIM_INFINITY and self._original[0] <= limit):
            yield
            return
        with self._lock:
            self._limit = limit
            if self._lifts == 0:
                self._set(limit)
        items = np.setbufsize(BUFFER_ITEMS)
        try:
            with self._adapted_threads():
                yield
        finally:
            self._limit = None
            np.setbufsize(items)
            resource.setrlimit(resource.RLIMIT_DATA, self._original)

    @contextmanager
    def _adapted_threads(self) -> Iterator[None]:
        """Within the block, the limit is lifted during the start of any thread, which has the short buffers, too.
        Earlier threads keep theirs.

        Python waits for ever for a thread that lacked memory to start.
        """
        import numpy as np

        start = threading.Thread.start

        def lifted_start(thread: threading.Thread) -> None:
            run = thread.run

            def run_with_short_buffers() -> None:
                del thread.run  # a cycle
                np.setbufsize(BUFFER_ITEMS)
                run()

            thread.run = run_with_short_buffers  # type: ignore[method-assign]
            with self.lifted():
                start(thread)

        threading.Thread.start = lifted_start  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            threading.Thread.start = start  # type: ignore[method-assign]

    def spare(self, process: int) -> None:
        """Restore the previous limit in a child process that was started within the block."""
        if self._limit is None:
            return
        import resource

        with suppress(OSError):  # it has ended
            resource.prlimit(process, resource.RLIMIT_DATA, self._original)

    def lift(self) -> None:
        """Lift the limit to the system's, until an equal number of calls of :meth:`lower`."""
        with self._lock:
            self._lifts += 1
            if self._lifts == 1 and self._limit is not None:
                self._set(None)

    def lower(self, more: int = 0) -> None:
        """Undo one :meth:`lift`, and raise the limit by ``more`` bytes."""
        with self._lock:
            self._lifts -= 1
            if self._limit is not None:
                self._limit += more
                if self._lifts == 0:
                    self._set(self._limit)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Within the block only the system's limit applies."""
        self.lift()
        try:
            yield
        finally:
            self.lower()

    def _set(self, nbytes: int | None) -> None:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = resource.RLIM_INFINITY if nbytes is None else min(nbytes, sys.maxsize)  # more overflows
        if hard != resource.RLIM_INFINITY and (nbytes is None or nbytes > hard):
            wanted = hard
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


data_limit = DataLimit()
"""The one instance of this process."""
