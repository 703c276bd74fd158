"""Dispatch of segments to workers: their sizes, those in progress, and the handling of failed ones.

The rows of a segment's result, and so its time, are not known in advance. So segments are cut on demand: each is a
sixth of a worker's share of the remaining work. They become smaller towards the end, where all workers would wait for a
long one. In a simulation with 1,000 workers and measured segment times, a sixth keeps 92 to 94 % of them busy at 40
segments a worker, a third less. Segments take half a second to five seconds: below, dispatch and writing a part cost
too much; above, too much is lost with a worker.

Each worker has one segment in progress and one waiting, so that it never waits for a message. The segment of a lost
worker is repeated; a segment that exceeds its worker's memory is halved. The segments in progress share the disk limit;
one that needs more waits until it runs alone with the whole limit.

Callers collect the parts of segments (:class:`PartCollector`), and cut tables into runs of rows (:class:`ItemRanges`).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from oocbe.errors import ClusterError, DiskError, ResourceError
from oocbe.execution.cluster.segment_files import PartResult
from oocbe.execution.cluster.workers import DiskShareError, LostWorkError, Workers
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.tracing.recorder import CALLER, WORKER, Detail, active, waiting
from oocbe.runtime.waiting import LOOK_UP_SECONDS
from oocbe.tables.parts import PartsWriter

Segment = TypeVar("Segment")
Sent = TypeVar("Sent")
Result = TypeVar("Result")

MOST_TRIES = 5
"""Number of lost workers after which a segment is abandoned: it may be the cause."""


class Pace:
    """Size of the next segment, as a share of the whole, from the times of earlier ones."""

    def __init__(self) -> None:
        self._share = self._seconds = 0.0

    def learn(self, share: float, seconds: float) -> None:
        """Record the time of a segment with this share."""
        self._share += share
        self._seconds += seconds

    @property
    def is_known(self) -> bool:
        """Whether any time has been recorded."""
        return bool(self._share and self._seconds)

    def wanted(self, left: float, workers: int) -> float:
        """Share of the next segment, from the remaining share and the number of workers."""
        numbers, workers = tuning(), max(1, workers)
        if not self.is_known:
            return 1 / (numbers.first_segments * workers)
        rate = self._share / self._seconds
        return min(
            max(left / (numbers.segment_part * workers), numbers.least_segment_seconds * rate),
            numbers.most_segment_seconds * rate,
        )


@dataclass
class _Attempt(Generic[Segment]):
    """A segment, the number of its lost workers, and whether it must run alone."""

    segment: Segment
    lost: int = 0
    is_alone: bool = False


@dataclass(frozen=True)
class Dispatch(Generic[Segment, Sent, Result]):
    """Dispatches segments of one kind.

    name : of all of them, for display. workers : that do them.
    work : does a segment, a function of a module. sent : its argument for a segment, given the maximum number of
        concurrent ones, which share the disk.
    done : called with the result of each segment, in the order of completion.
    halves : smaller segments that replace one whose memory allocation failed; raises if there are none.
    deadline : time limit.
    kind : of the work's compiled loops. The first segment of a kind is done in this process: the workers of this host
        then find the loops in the cache. None: workers do all.
    """

    name: str
    workers: Workers
    work: Callable[[Sent], Result]
    sent: Callable[[Segment, int], Sent]
    done: Callable[[Segment, Result], None]
    halves: Callable[[Segment, Exception], Iterable[Segment]]
    deadline: Deadline
    kind: object = None

    def run(self, segments: Iterator[Segment]) -> None:
        """Process all segments; each is drawn from the iterator when a worker has room for it.

        Raises ClusterError: the workers cannot continue, or one segment has ended several of them; TimeLimitError: the
        deadline passed. Errors of a segment, and of ``done``, end all of them.
        """
        again: deque[_Attempt[Segment]] = deque()
        alone: deque[_Attempt[Segment]] = deque()
        running: dict[Future[Result], _Attempt[Segment]] = {}
        if self.kind is not None and self.kind not in self.workers.readied:
            self._begin_here(segments)
        try:
            while True:
                most = tuning().under_way * max(1, self.workers.count)
                while len(running) < most:
                    attempt = again.popleft() if again else next(map(_Attempt, segments), None)
                    if attempt is None:
                        break
                    running[self._submitted(attempt.segment, most)] = attempt
                if not running:
                    if not alone:
                        return
                    attempt = alone.popleft()
                    running[self._submitted(attempt.segment, 1)] = attempt
                self.deadline.check()
                self.workers.check()
                with waiting(CALLER, "wait for workers"):
                    ended = wait(running, LOOK_UP_SECONDS, FIRST_COMPLETED).done
                for future in ended:
                    for left in self._ended(future, running.pop(future)):
                        (alone if left.is_alone else again).append(left)
        finally:
            for future in running:
                future.cancel()

    def _submitted(self, segment: Segment, sharing: int) -> Future[Result]:
        return self.workers.submit(self.name, self.work, self.sent(segment, sharing))

    def _begin_here(self, segments: Iterator[Segment]) -> None:
        for segment in segments:
            try:
                self.done(segment, self.work(self.sent(segment, 1)))
            except DiskError:
                raise
            except (ResourceError, MemoryError) as error:
                for half in self.halves(segment, error):
                    self.done(half, self.work(self.sent(half, 1)))
            break
        self.workers.readied.add(self.kind)

    def _ended(self, future: Future[Result], attempt: _Attempt[Segment]) -> Iterable[_Attempt[Segment]]:
        """Process the result of a segment; returns the attempts that are still needed for it."""
        try:
            result = future.result()
        except LostWorkError as error:
            if attempt.lost + 1 >= MOST_TRIES:
                raise ClusterError(
                    f"{self.name}: {MOST_TRIES} workers were lost with the same segment, the last one so: {error}. "
                    "Where the system ended them for want of memory, give less --memory or fewer --workers"
                ) from None
            return [_Attempt(attempt.segment, attempt.lost + 1, attempt.is_alone)]
        except DiskShareError:
            if attempt.is_alone:
                raise
            return [_Attempt(attempt.segment, attempt.lost, is_alone=True)]
        except DiskError:
            raise
        except (ResourceError, MemoryError) as error:
            return [_Attempt(half) for half in self.halves(attempt.segment, error)]
        self.done(attempt.segment, result)
        return []


class PartCollector:
    """Collects the parts written by segments.

    writer : lists them. name : of the segments, in a trace. workers : that wrote them.
    added : called with the finished share of the work, and its rows and parts. least, greatest : of all values.
    """

    def __init__(
        self, writer: PartsWriter, name: str, workers: Workers, added: Callable[[float, int, int], None] | None = None
    ) -> None:
        self._writer, self._name, self._workers, self._added = writer, name, workers, added
        self.least, self.greatest = inf, -inf
        self._done, self._count = 0.0, 0

    def add(self, share: float, made: PartResult, position: int | None = None) -> None:
        """List a segment's part with its share of the work, at a position if keys do not arrive in order."""
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


class ItemRanges:
    """Ranges of numbered items (chunks, stretches, ranges of keys), each of the next segment's size.

    before : work before each item, such as rows, and all of it at the end; ``range(n + 1)`` where items are alike.
    first : maximum items of a range before any time is measured; None: no limit. least : minimum work of a range.
    """

    def __init__(self, before: Sequence[int], workers: Workers, first: int | None = None, least: int = 1) -> None:
        self._before, self._workers, self._first, self._least = before, workers, first, least
        self._next = 0
        self._pace = Pace()

    def __iter__(self) -> Iterator[range]:
        return self

    def __next__(self) -> range:
        begin, last, total = self._next, len(self._before) - 1, self._before[-1]
        if begin == last:
            raise StopIteration
        done = self._before[begin]
        wanted = max(self._least, self._pace.wanted((total - done) / total, self._workers.count) * total)
        self._next = min(last, max(begin + 1, bisect_right(self._before, done + wanted) - 1))
        if self._first is not None and not self._pace.is_known:
            self._next = min(self._next, begin + self._first)
        return range(begin, self._next)

    def learn(self, run: range, seconds: float) -> float:
        """Record the seconds of a range, which determine the size of later ones; returns its share of all work."""
        share = (self._before[run.stop] - self._before[run.start]) / self._before[-1]
        self._pace.learn(share, seconds)
        return share


def halved_run(run: range, error: Exception, what: str) -> Iterable[range]:
    """Both halves of a run; ResourceError if it is a single item."""
    if len(run) == 1:
        raise ResourceError(f"{what}: {error}") from error
    middle = (run.start + run.stop) // 2
    return range(run.start, middle), range(middle, run.stop)
