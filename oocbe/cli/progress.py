"""Observers of a solve on the command line: a bar on a terminal, otherwise a log line a minute, or every bucket.

All write to standard error. Each is a context manager: leaving the block ends the bar and its thread, whether the solve
returned or raised.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from oocbe.cli.output import note, seconds
from oocbe.runtime.advance import advance
from oocbe.runtime.compilation import SENTENCE, compilation

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from oocbe.elimination.plan.plan import Plan
    from oocbe.model.results.result import Result

LOG_INTERVAL_SECONDS = 60.0
"""Time between two lines of a log, where standard error is no terminal."""

SETTLING_SECONDS = 5.0
"""Between two lines that only say what is known now: a solve that takes less prints none."""


BAR_WIDTH = 20
"""Characters of the bar."""


class SilentObserver:
    """Shows nothing, and is the base of the others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what is shown."""

    def started(self, plan: Plan) -> None:
        """Nothing is shown of the plan."""

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Nothing is shown of a bucket."""

    def bounds_changed(
        self, lower: int | float | None, value: int | float | None, why: str, assignment: tuple[int, ...] | None
    ) -> None:
        """Nothing is shown of bounds and assignments."""

    def finished(self, result: Result) -> None:
        """Nothing is shown of the end."""


class VerboseObserver(SilentObserver):
    """The plan, then a line a bucket."""

    def started(self, plan: Plan) -> None:
        """Print the plan."""
        note(str(plan))

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Print the bucket."""
        note(_bucket_line(number, total, variable, rows, bytes))

    def bounds_changed(
        self, lower: int | float | None, value: int | float | None, why: str, assignment: tuple[int, ...] | None
    ) -> None:
        """Print what is known now."""
        note(f"{_bounds_line(lower, value)} ({why})")


class LogObserver(SilentObserver):
    """The latest bucket and what is known about the optimum once an interval, also while a long bucket is running.

    Parameters
    ----------
    interval : seconds between lines; a solve that takes less prints nothing.
    settling : seconds after which a change in what is known has a line of its own, where the last one is so old.
    """

    def __init__(self, interval: float = LOG_INTERVAL_SECONDS, settling: float = SETTLING_SECONDS) -> None:
        self._interval = interval
        self._settling = settling
        self._begin = self._told = time.monotonic()
        self._known = ""
        self._latest = "bounds"
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def started(self, plan: Plan) -> None:
        """Begin to log, where that was not done for an order given up before."""
        self._latest = "elimination begins"
        self._begin_to_log()

    def bounds_changed(
        self, lower: int | float | None, value: int | float | None, why: str, assignment: tuple[int, ...] | None
    ) -> None:
        """Remember what is known for the next line, or print it where the last one is old."""
        self._known = _bounds_line(lower, value)
        now = time.monotonic()
        if now - self._told >= self._settling:
            self._told = now
            note(f"{seconds(now - self._begin)}: {self._known} ({why})")
        self._begin_to_log()

    def _begin_to_log(self) -> None:
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._log, name="oocbe-log", daemon=True)
        self._thread.start()

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Remember the bucket for the next line."""
        self._latest = _bucket_line(number, total, variable, rows, bytes)

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _log(self) -> None:
        while not self._ended.wait(self._interval):
            known = f"; {self._known}" if self._known else ""
            doing = SENTENCE if compilation.is_running else str(advance) or self._latest
            note(f"{seconds(time.monotonic() - self._begin)}: {doing}{known}")


class BarObserver(SilentObserver):
    """A progress bar over buckets with the latest message's rows and bytes; console : where, for tests."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._known = ""

    def started(self, plan: Plan) -> None:
        """Show the bar; from its beginning where an order was given up before."""
        if self._progress is not None and self._task is not None:
            # Not a bar of its own: the thread of one that was stopped may still be running.
            self._progress.reset(self._task, total=len(plan.buckets), description="")
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        # What a bucket is called takes what room is left, so that bar and clock stay where they are.
        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._progress = Progress(
            TextColumn("buckets", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=BAR_WIDTH),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TextColumn(
                "{task.fields[doing]}{task.description}", markup=False, table_column=rest
            ),  # a variable may be called [red]
            console=self._console or Console(stderr=True),
            transient=True,
            expand=True,
        )
        self._task = self._progress.add_task("", total=len(plan.buckets), doing=_Doing())
        self._progress.start()

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Move the bar."""
        from oocbe.tables.table import format_bytes

        if self._progress is not None and self._task is not None:
            text = f"{variable}: {rows:,} rows, {format_bytes(bytes)}{self._known}"
            self._progress.update(self._task, completed=number, total=total, description=text)

    def bounds_changed(
        self, lower: int | float | None, value: int | float | None, why: str, assignment: tuple[int, ...] | None
    ) -> None:
        """Show what is known beside the next bucket."""
        self._known = f"; {_bounds_line(lower, value)}"

    def close(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()


class _Doing:
    """What is said before the bucket's name whenever the bar is drawn."""

    def __format__(self, spec: str) -> str:
        doing = SENTENCE if compilation.is_running else str(advance)
        return f"{doing}; " if doing else ""


def observer_for(quiet: bool, verbose: bool) -> SilentObserver:
    """The observer that fits the flags and where standard error goes."""
    if quiet:
        return SilentObserver()
    if verbose:
        return VerboseObserver()
    is_dumb = os.environ.get("TERM") in ("dumb", "unknown")  # it has no cursor to move
    return BarObserver() if sys.stderr.isatty() and not is_dumb else LogObserver()


def _bucket_line(number: int, total: int, variable: str, rows: int, size: int) -> str:
    from oocbe.tables.table import format_bytes

    return f"bucket {number} of {total}, {variable}: {rows:,} rows, {format_bytes(size)}"


def _percent(share: float) -> str:
    """A part in percent, no more exact than is of interest."""
    percent = 100 * share
    if 0 < percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.2g} %" if percent < 99.5 else f"{percent:,.0f} %"


def _bounds_line(lower: int | float | None, value: int | float | None) -> str:
    """Bound, incumbent and gap, as far as they are known."""
    parts = [f"{name} {number:,}" for name, number in (("bound", lower), ("incumbent", value)) if number is not None]
    if lower is not None and value is not None:
        share = f" ({_percent(abs(value - lower) / abs(value))})" if value else ""
        parts.append(f"gap {abs(value - lower):,}{share}")
    return ", ".join(parts)
