"""Compile time of this process's loops; loops are compiled once per machine, then cached."""

from __future__ import annotations

import sys
import threading
import time

from oocbe.runtime.data_limit import data_limit, mapped_data

SENTENCE = "compiling, once for this machine"
"""Progress text during compilation."""


class Compilation:
    """Counts running compilations: they nest for loops called by loops, and threads compile in parallel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._begin = 0.0
        self._mapped = 0
        self._seconds = 0.0
        self._is_reported = False
        self.loops = 0

    def begin(self, loops: int = 1) -> None:
        """Record the start of a compilation, or, with 0 loops, of a wait for one in another process."""
        with self._lock:
            if self._depth == 0:
                self._begin = time.perf_counter()
                data_limit.lift()
                self._mapped = mapped_data() if data_limit.is_set else 0
            self._depth += 1
            self.loops += loops
            is_reported, self._is_reported = self._is_reported, True
        if not is_reported and hasattr(sys, "ps1"):  # a notebook, or another prompt; commands have their own progress
            print(f"oocbe: {SENTENCE}; `oocbe warm-up` does so in advance", file=sys.stderr)

    def end(self) -> None:
        """Record the end, or failure, of a compilation."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._seconds += time.perf_counter() - self._begin
                data_limit.lower(max(0, mapped_data() - self._mapped) if data_limit.is_set else 0)

    @property
    def is_running(self) -> bool:
        """Whether a compilation is running."""
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """Wall time of compilation so far, in seconds."""
        with self._lock:
            return self._seconds + (time.perf_counter() - self._begin if self._depth else 0.0)


compilation = Compilation()
"""The one instance of this process."""


class Stopwatch:
    """Wall time since its creation, and the part spent on compilation."""

    def __init__(self) -> None:
        self._begin, self._before = time.perf_counter(), compilation.seconds

    @property
    def elapsed(self) -> float:
        """Seconds since its creation."""
        return time.perf_counter() - self._begin

    @property
    def compiled(self) -> float:
        """Seconds of compilation since its creation."""
        return compilation.seconds - self._before


def working_time() -> float:
    """Seconds of a clock that stops during compilation, for the time limits of attempts.

    A loop is compiled once per machine, which takes seconds, and attempts have tenths of a second. If compilation
    counted, it would end a decisive bound before its start, and the first solve would differ from all later ones.
    """
    return time.perf_counter() - compilation.seconds
