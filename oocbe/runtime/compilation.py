"""How long this process has compiled loops, and whether it does so now: once for a machine, then they are cached."""

from __future__ import annotations

import threading
import time

from oocbe.runtime.data_limit import data_limit, mapped_data

SENTENCE = "compiling, once for this machine"
"""What progress says meanwhile."""


class Compilation:
    """Counts what is compiled; loops that one loop needs are compiled within it, and threads compile side by side."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._begin = 0.0
        self._mapped = 0
        self._seconds = 0.0
        self.loops = 0

    def begin(self) -> None:
        """A loop is being compiled from now on."""
        with self._lock:
            if self._depth == 0:
                self._begin = time.perf_counter()
                data_limit.lift()
                self._mapped = mapped_data() if data_limit.is_set else 0
            self._depth += 1
            self.loops += 1

    def end(self) -> None:
        """One is done, or has failed."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._seconds += time.perf_counter() - self._begin
                data_limit.lower(max(0, mapped_data() - self._mapped) if data_limit.is_set else 0)

    @property
    def is_running(self) -> bool:
        """Whether anything is compiled now."""
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """Wall time in which something was compiled, until now."""
        with self._lock:
            return self._seconds + (time.perf_counter() - self._begin if self._depth else 0.0)


compilation = Compilation()
"""Of this process."""


class Stopwatch:
    """Wall time since it was made, and what of it went into compiling."""

    def __init__(self) -> None:
        self._begin, self._before = time.perf_counter(), compilation.seconds

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self._begin

    @property
    def compiled(self) -> float:
        """Seconds since then in which something was compiled."""
        return compilation.seconds - self._before


def working_time() -> float:
    """Seconds of a clock that stands still while a loop is compiled: for what shares time out among attempts.

    A loop is compiled once for a machine and takes seconds, where attempts get tenths of one: counted as theirs, that
    would end a bound that closes the problem before it began, and the first solve would go other ways than all others.
    """
    return time.perf_counter() - compilation.seconds
