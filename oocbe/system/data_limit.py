"""The system's limit on the memory of a process, for a program that has the process to itself.

The system kills what passes a control group's limit, whatever would have become of it. With a limit on the process's
data (RLIMIT_DATA) a block that there is no room for is refused instead: an error, which work in pieces answers with
smaller pieces, and a command with a message and an exit code.

The limit counts what is mapped, whether it is in use or not: stacks of threads as a whole, for one. Compilers do not
recover from a refused block, so the limit is lifted while loops are compiled, and what they keep is allowed on top.
Processes that are started meanwhile would inherit a limit that nothing lifts there: they get the one from before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAM_DATA_BYTES = 176 << 20
"""Bytes that libraries and compiled loops map beside tables: 130 MiB, and 160 MiB with Arrow's threads."""

THREAD_DATA_BYTES = 8 << 20
"""Bytes of a thread's stack."""


def mapped_data() -> int:
    """Bytes that the system counts as this process's data."""
    return int(Path("/proc/self/statm").read_bytes().split()[5]) * os.sysconf("SC_PAGE_SIZE")


class DataLimit:
    """The limit of this process, set for one block at a time."""

    def __init__(self) -> None:
        self._limit: int | None = None
        self._before = 0
        self._original = (0, 0)

    @contextmanager
    def of(self, nbytes: int, threads: int) -> Iterator[None]:
        """Within the block the process maps so many bytes more at most, beside the program itself and its threads.

        Where the system has no such limit, or has a lower one, nothing changes.
        """
        if not sys.platform.startswith("linux"):
            yield
            return
        import resource

        limit = mapped_data() + nbytes + PROGRAM_DATA_BYTES + threads * THREAD_DATA_BYTES
        self._original = resource.getrlimit(resource.RLIMIT_DATA)
        if self._original[0] != resource.RLIM_INFINITY and self._original[0] <= limit:
            yield
            return
        self._limit = limit
        self._set(limit)
        try:
            yield
        finally:
            self._limit = None
            resource.setrlimit(resource.RLIMIT_DATA, self._original)

    def spare(self, process: int) -> None:
        """Give a process that was started within the block the limit from before."""
        if self._limit is None:
            return
        import resource

        with suppress(OSError):  # it has ended
            resource.prlimit(process, resource.RLIMIT_DATA, self._original)

    def lift(self) -> None:
        """From now on anything is allowed that the system allows."""
        if self._limit is not None:
            self._before = mapped_data()
            self._set(None)

    def lower(self) -> None:
        """The limit holds again; what was mapped since it was lifted is allowed on top."""
        if self._limit is not None:
            self._limit += max(0, mapped_data() - self._before)
            self._set(self._limit)

    def _set(self, nbytes: int | None) -> None:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = resource.RLIM_INFINITY if nbytes is None else nbytes
        if hard != resource.RLIM_INFINITY and (nbytes is None or nbytes > hard):
            wanted = hard
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


data_limit = DataLimit()
"""Of this process."""
