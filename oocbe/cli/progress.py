"""Observers of a solve on the command line: a bar on a terminal, otherwise a log line per minute or per bucket.

All write to standard error; :meth:`SilentObserver.close` ends the bar and its thread.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from oocbe.cli.output import note, seconds
from oocbe.elimination.observer import Observer
from oocbe.runtime.advance import advance
from oocbe.runtime.compilation import SENTENCE, compilation

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from oocbe.elimination.plan.plan import Plan
    from oocbe.elimination.reformulation import Number
    from oocbe.model.results.result import Result

LOG_INTERVAL_SECONDS = 60.0
"""Time between two log lines, in seconds, if standard error is no terminal."""

SETTLING_SECONDS = 5.0
"""Minimum time, in seconds, before and between lines about new bounds or incumbents; shorter solves print none."""

BAR_WIDTH = 20
"""Width of the bar, in characters."""


class SilentObserver(Observer):
    """Shows nothing; the base class of the others."""

    def close(self) -> None:
        """End the display."""


class VerboseObserver(SilentObserver):
    """Prints the plan, a line for each bucket and each change of the bounds, and at the end what the solvers gained."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def started(self, plan: Plan) -> None:
        """Print the plan."""
        note(str(plan))

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Print the bucket."""
        note(_bucket_line(number, total, variable, rows, bytes))

    def bounds_changed(self, lower: Number, value: Number, why: str, assignment: tuple[int, ...] | None) -> None:
        """Print the time, the bounds and the incumbent."""
        note(f"{seconds(time.monotonic() - self._begin)}: {_bounds_line(lower, value)} ({why})")

    def finished(self, result: Result) -> None:
        """Print a table of the solvers of a search with bounds."""
        if result.solvers:
            note(f"{'solver':<16}{'time':>10}{'steps':>8}{'bound raised':>14}{'better found':>14}{'of the gap':>12}")
        for own in sorted(result.solvers, key=lambda own: -own.seconds):
            gains = f"{own.steps:>8,}{own.raised:>14,}{own.found:>14,}{own.closed:>12.0%}"
            note(f"{own.name:<16}{seconds(own.seconds):>10}{gains}")


class LogObserver(SilentObserver):
    """Prints the latest bucket, bounds and incumbent after each interval, also during a long bucket; ended : for
    tests."""

    def __init__(self, ended: threading.Event | None = None) -> None:
        self._begin = self._printed = time.monotonic()
        self._known = ""
        self._latest = "no bucket yet"
        self._ended = ended or threading.Event()
        self._thread = threading.Thread(target=self._log, name="oocbe-log", daemon=True)
        self._thread.start()

    def bounds_changed(self, lower: Number, value: Number, why: str, assignment: tuple[int, ...] | None) -> None:
        """Store bounds and incumbent for the next line, or print them if the last line is old."""
        self._known = _bounds_line(lower, value)
        now = time.monotonic()
        if now - self._printed >= SETTLING_SECONDS:
            self._printed = now
            note(f"{seconds(now - self._begin)}: {self._known} ({why})")

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Store the bucket for the next line."""
        self._latest = _bucket_line(number, total, variable, rows, bytes)

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _log(self) -> None:
        while not self._ended.wait(LOG_INTERVAL_SECONDS):
            known = f"; {self._known}" if self._known else ""
            doing = SENTENCE if compilation.is_running else str(advance) or self._latest
            note(f"{seconds(time.monotonic() - self._begin)}: {doing}{known}")


class BarObserver(SilentObserver):
    """A progress bar over buckets with the latest message's rows and bytes; console : for tests."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._known = ""

    def started(self, plan: Plan) -> None:
        """Show the bar, reset if an earlier order was abandoned."""
        if self._progress is not None and self._task is not None:
            # Reset instead of a new bar, as the thread of a stopped bar may still be running.
            self._progress.reset(self._task, total=len(plan.buckets), description="")
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        # The name of a bucket takes the remaining width, so that bar and clock do not move.
        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._progress = Progress(
            TextColumn("buckets", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=BAR_WIDTH),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TextColumn(
                "{task.fields[doing]}{task.description}", markup=False, table_column=rest
            ),  # a variable may have the name [red]
            console=self._console or Console(stderr=True),
            transient=True,
            expand=True,
        )
        self._task = self._progress.add_task("", total=len(plan.buckets), doing=_Doing())
        self._progress.start()

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Move the bar."""
        from oocbe.model.results.numerals import format_bytes

        if self._progress is not None and self._task is not None:
            text = f"{variable}: {rows:,} rows, {format_bytes(bytes)}{self._known}"
            self._progress.update(self._task, completed=number, total=total, description=text)

    def bounds_changed(self, lower: Number, value: Number, why: str, assignment: tuple[int, ...] | None) -> None:
        """Show bounds and incumbent with the next bucket."""
        self._known = f"; {_bounds_line(lower, value)}"

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()


class _Doing:
    """Text before the bucket's name, computed whenever the bar is drawn."""

    def __format__(self, spec: str) -> str:
        doing = SENTENCE if compilation.is_running else str(advance)
        return f"{doing}; " if doing else ""


def observer_for(quiet: bool, verbose: bool) -> SilentObserver:
    """The observer for the flags and the kind of standard error."""
    if quiet:
        return SilentObserver()
    if verbose:
        return VerboseObserver()
    is_dumb = os.environ.get("TERM") in ("dumb", "unknown")  # it has no cursor to move
    return BarObserver() if sys.stderr.isatty() and not is_dumb else LogObserver()


def _bucket_line(number: int, total: int, variable: str, rows: int, size: int) -> str:
    from oocbe.model.results.numerals import format_bytes

    return f"bucket {number} of {total}, {variable}: {rows:,} rows, {format_bytes(size)}"


def _percent(share: float) -> str:
    percent = 100 * share
    if 0 < percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.2g} %" if percent < 99.5 else f"{percent:,.0f} %"


def _bounds_line(lower: Number, value: Number) -> str:
    """Bound, incumbent and gap, if known."""
    parts = [f"{name} {number:,}" for name, number in (("bound", lower), ("incumbent", value)) if number is not None]
    if lower is not None and value is not None:
        share = f" ({_percent(abs(value - lower) / abs(value))})" if value else ""
        parts.append(f"gap {abs(value - lower):,}{share}")
    return ", ".join(parts)
