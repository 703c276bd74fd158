"""Run a module whose clocks and timers count processor seconds: limits on a busy machine are those of a quiet one.

python benchmarks/processor_clock.py oocbe solve FILE --time-limit 60
"""

import runpy
import sys
import threading
import time
from collections.abc import Callable

POLL_SECONDS = 0.02
"""Interval of the checks of a timer."""


class Timer(threading.Thread):
    """As :class:`threading.Timer`, which waits on the wall clock."""

    def __init__(self, interval: float, function: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._end, self._function, self._cancelled = time.process_time() + interval, function, threading.Event()

    def cancel(self) -> None:
        """End the timer."""
        self._cancelled.set()

    def run(self) -> None:
        """Wait, then call the function."""
        while not self._cancelled.wait(POLL_SECONDS):
            if time.process_time() >= self._end:
                self._function()
                return


if __name__ == "__main__":
    threading.Timer = Timer  # type: ignore[assignment, misc]
    time.perf_counter = time.monotonic = time.process_time
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
