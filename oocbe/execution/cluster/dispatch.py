"""Segments given to workers: how large each is, which are under way, and what happens to those that fail.

How many rows a segment comes to, and so how long it takes, is not known before. So segments are cut when they are
asked for: each a sixth of what is left for every worker, and so smaller and smaller towards the end, where one that
takes long would be waited for by all. Simulated with 1,000 workers and measured times of segments, a sixth keeps 92 to
94 % of them busy at 40 segments a worker, a third less. Within half a second and five seconds: below, giving work away
and writing a part cost too much; above, too much is lost with a worker.

Each worker has one segment at work and one waiting, so that none waits for a message. A segment whose worker was lost
is done again; one whose worker says that memory does not do is halved. What may be written to disk is shared by the
segments under way; one that needs more waits until it is alone, and has all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from oocbe.errors import ClusterError, DiskError, ResourceError
from oocbe.execution.cluster.workers import DiskShareError, LostWorkError, Workers, cancel
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.tracing.recorder import CALLER, waiting

Segment = TypeVar("Segment")
Result = TypeVar("Result")

UNDER_WAY = 2
"""Segments that each worker has at a time: one at work, one waiting."""

LOOK_SECONDS = 0.1
"""So often the time limit and the workers are looked at."""

MOST_TRIES = 5
"""A segment whose worker was lost so often is given up: it may be what ends them."""


class Pace:
    """How large the next segment is to be, as a share of the whole, by what those before it took."""

    def __init__(self) -> None:
        self._share = self._seconds = 0.0

    def learn(self, share: float, seconds: float) -> None:
        """A segment of this share took so long."""
        self._share += share
        self._seconds += seconds

    @property
    def is_known(self) -> bool:
        """Whether any segment has told how long it took."""
        return bool(self._share and self._seconds)

    def wanted(self, left: float, workers: int) -> float:
        """Share of the next segment, of so much that is left for so many workers."""
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
    """A segment, how often its worker was lost, and whether it is done while no other is."""

    segment: Segment
    lost: int = 0
    is_alone: bool = False


@dataclass(frozen=True)
class Dispatch(Generic[Segment, Result]):
    """How segments of one kind are done.

    Attributes
    ----------
    name : of all of them, for people.
    submit : has the workers begin with one, told how many there may be at a time, which share the disk.
    done : is told what came of one; the order is that in which they end.
    halves : smaller segments in the place of one for which memory could not be had; raises where there are none.
    deadline : when to give up.
    """

    name: str
    submit: Callable[[Segment, int], Future[Result]]
    done: Callable[[Segment, Result], None]
    halves: Callable[[Segment, Exception], Iterable[Segment]]
    deadline: Deadline

    def run(self, segments: Iterator[Segment], workers: Workers) -> None:
        """Do all segments; each is asked for when a worker has room for it.

        Raises
        ------
        ClusterError : the workers cannot go on, or one segment has ended several of them.
        TimeLimitError : the deadline came. Errors of a segment, and of ``done``, end all of them.
        """
        again: deque[_Attempt[Segment]] = deque()
        alone: deque[_Attempt[Segment]] = deque()
        running: dict[Future[Result], _Attempt[Segment]] = {}
        try:
            while True:
                most = UNDER_WAY * max(1, workers.count)
                while len(running) < most:
                    attempt = again.popleft() if again else _next(segments)
                    if attempt is None:
                        break
                    running[self.submit(attempt.segment, most)] = attempt
                if not running:
                    if not alone:
                        return
                    attempt = alone.popleft()
                    running[self.submit(attempt.segment, 1)] = attempt
                self.deadline.check()
                workers.check()
                with waiting(CALLER, "wait for workers"):
                    ended = wait(running, LOOK_SECONDS, FIRST_COMPLETED).done
                for future in ended:
                    for left in self._ended(future, running.pop(future)):
                        (alone if left.is_alone else again).append(left)
        finally:
            cancel(list(running))

    def _ended(self, future: Future[Result], attempt: _Attempt[Segment]) -> Iterable[_Attempt[Segment]]:
        """Take the result of a segment; what is still to be done of it."""
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


def _next(segments: Iterator[Segment]) -> _Attempt[Segment] | None:
    for segment in segments:
        return _Attempt(segment)
    return None
