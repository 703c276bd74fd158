"""Code shared by all callers of workers: collects the parts of segments, and cuts tables into runs of rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from math import inf

from oocbe.errors import ResourceError
from oocbe.execution.cluster.dispatch import Pace
from oocbe.execution.cluster.segment_files import PartResult
from oocbe.execution.cluster.workers import Workers
from oocbe.runtime.tracing.recorder import WORKER, Detail, active
from oocbe.tables.parts import PartsWriter


class PartCollector:
    """Collects the parts written by segments.

    Parameters
    ----------
    writer : lists them. name : of the segments, in a trace. workers : that wrote them.
    added : called with the finished share of the work, and its rows and parts.

    Attributes
    ----------
    least, greatest : of all values.
    """

    def __init__(
        self,
        writer: PartsWriter,
        name: str,
        workers: Workers,
        added: Callable[[float, int, int], None] | None = None,
    ) -> None:
        self._writer, self._name, self._workers, self._added = writer, name, workers, added
        self.least, self.greatest = inf, -inf
        self._done, self._count = 0.0, 0

    def add(self, share: float, made: PartResult, position: int | None = None) -> None:
        """List the part of a segment with its share of the work.

        position : among the parts, if they do not arrive in the order of their keys.
        """
        self._done += share
        take_account(made, self._name, self._workers)
        if made.name is None:
            return
        record = self._writer.add(self._writer.folder / made.name, position)
        assert record.rows == made.rows
        self.least, self.greatest = min(self.least, made.least), max(self.greatest, made.greatest)
        self._count += 1
        if self._added is not None:
            self._added(self._done, self._writer.rows, self._count)


def take_account(made: PartResult, name: str, workers: Workers) -> None:
    """Add a segment's reading to the workers' totals, and draw the segment in a trace."""
    workers.read = workers.read.and_also(made.read)
    trace_segment(made, name, workers.rows)


def trace_segment(made: PartResult, name: str, rows: dict[str, int]) -> None:
    """Draw a segment in the row of its worker; the hosts' clocks are assumed equal."""
    recorder = active()
    if recorder is None:
        return
    row = rows.setdefault(made.worker, len(rows))
    begin = time.perf_counter_ns() - (time.time_ns() - made.began)
    details: dict[str, Detail] = {"rows": made.rows, "pieces": made.pieces, "worker": made.worker}
    if made.read.rows:
        details |= {"rows_read": made.read.rows, "rows_changed_owner": made.read.changed_owner}
    recorder.add(WORKER, name, begin, begin + int(made.seconds * 1e9), row, details=details)


class Runs:
    """Ranges of numbered items (chunks, rows), each of the next segment's size.

    Parameters
    ----------
    first : maximum items of a range before any time is measured; None: no limit.

    Attributes
    ----------
    pace : determines their size.
    """

    def __init__(self, count: int, workers: Workers, first: int | None = None) -> None:
        self._next, self._count, self._workers, self._first = 0, count, workers, first
        self.pace = Pace()

    def __iter__(self) -> Iterator[range]:
        return self

    def __next__(self) -> range:
        if self._next == self._count:
            raise StopIteration
        share = self.pace.wanted((self._count - self._next) / self._count, self._workers.count)
        length = max(1, int(share * self._count))
        if self._first is not None and not self.pace.is_known:
            length = min(length, self._first)
        begin, self._next = self._next, min(self._count, self._next + length)
        return range(begin, self._next)


def halved_run(run: range, error: Exception, what: str) -> Iterable[range]:
    """Both halves of a run; ResourceError if it is a single item."""
    if len(run) == 1:
        raise ResourceError(f"{what}: {error}") from error
    middle = (run.start + run.stop) // 2
    return range(run.start, middle), range(middle, run.stop)
