"""Prediction of a run's time on many workers, by an event simulation of list scheduling.

Whenever a worker is free it gets the next segment of the first stage that has any (Graham 1969). Segments shrink as
the stage comes to its end (guided self-scheduling: Polychronopoulos and Kuck 1987), so that no worker is left with a
long one while the others wait. What the model has of the world:

- *stragglers*: a segment takes its measured seconds times a factor, lognormal with median 1, independent of all others;
- *failures*: some workers are lost for good, each at a random moment of the run; the segment that such a one was at is
  computed again by another, once the loss is noticed;
- *dispatch*: one scheduler hands out one segment after the other, each of which takes it some time.

Work is divided into consecutive *stages*, such as buckets, each of pieces in the order of their keys. A *segment* is a
contiguous range of a stage's pieces, which one worker computes. Pieces are measured by a trace (:func:`stages_of`) or
predicted by a plan (:func:`predicted_stage`).

Not modelled: transfer of rows between workers, and shared disks and buses. Forecasts (:func:`forecast`) have segments
as this program cuts them.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ResourceError, UsageError
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.tracing.recorder import ELIMINATION, STREAM, WORKER, Span
from oocbe.runtime.tracing.summary import union_of
from oocbe.runtime.tracing.trace_file import Trace

P95 = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""

DISPATCH_SECONDS = 0.0016
"""Time of a task in Dask's scheduler, in seconds, as measured with Dask 2026.8 on one host."""

NOTICE_SECONDS = 5.0
"""Seconds from a worker's end to the reassignment of its segment: broken connections are noticed at once, lost hosts by
missing heartbeats."""


@dataclass(frozen=True)
class Conditions:
    """Properties of segments and workers.

    segment_seconds : maximum of a segment, unless a single piece takes longer. least_seconds : minimum, if that much
        work is left.
    share : maximum segment as a share of the remaining work per worker.
    straggling : 95th percentile of the seconds of equal segments over their median; 1: no variation.
    lost : share of the workers that are lost.
    dispatch, notice : see :data:`DISPATCH_SECONDS` and :data:`NOTICE_SECONDS`. seed : of all random numbers.
    """

    segment_seconds: float = 4.0
    least_seconds: float = 0.5
    share: float = 1 / 6
    straggling: float = 1.0
    lost: float = 0.0
    dispatch: float = DISPATCH_SECONDS
    notice: float = NOTICE_SECONDS
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.least_seconds <= self.segment_seconds < math.inf:
            raise UsageError(
                f"segments of {self.least_seconds} to {self.segment_seconds} seconds: give two numbers above 0, the "
                "first one not above the second"
            )
        if not 1 <= self.straggling < math.inf:
            raise UsageError(f"straggling {self.straggling}: the 95th percentile is the median or more, so at least 1")
        if not 0 <= self.lost <= 1 or not 0 < self.share <= 1:
            raise UsageError(f"lost {self.lost}, share {self.share}: shares are between 0 and 1")
        if not (0 <= self.dispatch < math.inf and 0 <= self.notice < math.inf):
            raise UsageError(f"dispatch {self.dispatch}, notice {self.notice}: seconds are 0 or more")

    @property
    def deviation(self) -> float:
        """Standard deviation of the factor's logarithm."""
        return math.log(self.straggling) / P95

    @property
    def mean(self) -> float:
        """Mean of the factor, whose median is 1."""
        return math.exp(self.deviation**2 / 2)


@dataclass(frozen=True)
class Simulated:
    """Result of a simulated run.

    workers : initial number. seconds : of the run. work : seconds of all pieces, counted once.
    repeated : seconds of work lost with its worker. segments : completed ones.
    lost : workers that were lost before the end. critical_path : seconds without stragglers on any number of workers.
    """

    workers: int
    seconds: float
    work: float
    repeated: float
    segments: int
    lost: int
    critical_path: float

    @property
    def efficiency(self) -> float:
        """Share of all workers' time, including lost ones, spent on useful work."""
        return self.work / (self.workers * self.seconds) if self.seconds else 1.0


@dataclass
class _Open:
    """A started stage: its remaining work, and the number of segments in progress."""

    stage: Stage
    next_piece: int = 0
    left: float = 0.0
    serial: float = 0.0
    at_work: int = 0
    again: deque[float] = field(default_factory=deque)
    pieces: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.pieces = self.stage.pieces.tolist()

    @property
    def has_segment(self) -> bool:
        """Whether a worker can start a segment now."""
        if self.serial:
            return True
        return self.at_work >= 0 and (bool(self.again) or self.next_piece < len(self.pieces))

    @property
    def is_done(self) -> bool:
        return not self.serial and self.at_work == 0 and not self.again and self.next_piece == len(self.pieces)


SERIAL = -1
"""Marker for the number of segments in progress during a stage's serial part, which excludes all others."""


def simulate(stages: Sequence[Stage], workers: int, conditions: Conditions | None = None) -> Simulated:
    """Simulate stages on ``workers`` workers.

    stages : each after those on which it depends.
    workers : at least one. conditions : None: no stragglers, no failures.
    Raises UsageError: no worker, or a stage that depends on a later one; ResourceError: all workers were lost.
    """
    given = conditions or Conditions()
    if workers < 1:
        raise UsageError(f"workers must be at least 1, not {workers}")
    for number, stage in enumerate(stages):
        if not all(0 <= before < number for before in stage.after):
            raise UsageError(f"stage {number} ({stage.name}) is after stages {stage.after}, which must come before it")
    return _Run(stages, workers, given).run()


class _Run:
    def __init__(self, stages: Sequence[Stage], workers: int, conditions: Conditions) -> None:
        self._stages, self._workers, self._given = stages, workers, conditions
        self._random = np.random.default_rng(conditions.seed)
        expected = sum(s.seconds for s in stages) * conditions.mean / workers
        ends = np.full(workers, math.inf)
        chosen = self._random.permutation(workers)[: round(conditions.lost * workers)]
        ends[chosen] = self._random.random(len(chosen)) * expected
        self._ends: list[float] = ends.tolist()
        self._open: dict[int, _Open] = {}
        self._waiting_for = [len(set(stage.after)) for stage in stages]
        self._followers: list[list[int]] = [[] for _ in stages]
        for number, stage in enumerate(stages):
            for before in set(stage.after):
                self._followers[before].append(number)
        self._clock = self._free_scheduler = 0.0
        self._work = self._repeated = 0.0
        self._segments = self._lost = 0
        # (time, order of arrival, worker, stage, seconds, whether they were lost): what happens next.
        self._events: list[tuple[float, int, int, int, float, bool]] = []
        self._arrivals = 0

    def run(self) -> Simulated:
        """Hand out segments until all stages are done."""
        idle = list(range(self._workers))
        for number, count in enumerate(self._waiting_for):
            if count == 0:
                self._begin(number)
        while True:
            self._hand_out(idle)
            if not self._events:
                break
            self._clock = self._events[0][0]
            while self._events and self._events[0][0] == self._clock:
                self._take(idle, *heapq.heappop(self._events)[2:])
        if self._open:
            raise ResourceError(
                f"no worker of {self._workers:,} is left after {self._clock:,.0f} seconds of the simulated run; begin "
                "with more workers, or let fewer be lost"
            )
        return Simulated(
            self._workers,
            self._clock,
            self._work,
            self._repeated,
            self._segments,
            self._lost,
            critical_path(self._stages),
        )

    def _take(self, idle: list[int], worker: int, number: int, seconds: float, is_lost: bool) -> None:
        """A segment has been computed, or lost with its worker."""
        stage = self._open[number]
        was_serial = stage.at_work == SERIAL
        stage.at_work = 0 if was_serial else stage.at_work - 1
        if is_lost:
            self._lost += 1
            if was_serial:
                stage.serial = stage.stage.serial
            else:
                stage.again.append(seconds)
        else:
            heapq.heappush(idle, worker)
            self._segments += 1
        if stage.is_done:
            self._end(number)

    def _begin(self, number: int) -> None:
        stage = self._stages[number]
        self._open[number] = _Open(stage, left=float(stage.pieces.sum()), serial=stage.serial)
        if self._open[number].is_done:
            self._end(number)

    def _end(self, number: int) -> None:
        del self._open[number]
        for follower in self._followers[number]:
            self._waiting_for[follower] -= 1
            if self._waiting_for[follower] == 0:
                self._begin(follower)

    def _hand_out(self, idle: list[int]) -> None:
        """Assign segments to idle workers, as long as there are both."""
        for number in sorted(self._open):
            stage = self._open[number]
            while idle and stage.has_segment:
                worker = heapq.heappop(idle)
                begin = max(self._clock, self._free_scheduler) + self._given.dispatch
                if self._ends[worker] <= begin:
                    self._lost += 1  # while it was idle
                    continue
                self._free_scheduler = begin
                seconds = self._segment(stage)
                took = seconds
                if self._given.deviation:
                    took *= math.exp(self._given.deviation * self._random.standard_normal())
                self._arrivals += 1
                end = self._ends[worker]
                if begin + took <= end:
                    self._work += took
                    event = (begin + took, self._arrivals, worker, number, seconds, False)
                else:
                    self._repeated += end - begin
                    event = (end + self._given.notice, self._arrivals, worker, number, seconds, True)
                heapq.heappush(self._events, event)

    def _segment(self, stage: _Open) -> float:
        """Seconds of the stage's next segment, without the factor; it is at work from now on."""
        if stage.serial:
            seconds, stage.serial, stage.at_work = stage.serial, 0.0, SERIAL
            return seconds
        stage.at_work += 1
        if stage.again:
            return stage.again.popleft()
        given = self._given
        wanted = min(given.segment_seconds, max(given.least_seconds, given.share * stage.left / self._workers))
        pieces, seconds = stage.pieces, 0.0
        while stage.next_piece < len(pieces):
            piece = pieces[stage.next_piece]
            if seconds and seconds + piece > wanted * (1 + 1e-9):
                break
            seconds += piece
            stage.next_piece += 1
        stage.left -= seconds
        return seconds


STRAGGLING = 3.0
"""The 95th percentile of the seconds of equal segments over their median."""


def piece_rows(rows: float) -> int:
    """Rows of a piece of a stage with ``rows`` rows."""
    return max(tuning().many_rows, int(rows) // tuning().forecast_most_pieces)


def forecast(stages: Sequence[Stage], workers: int) -> Simulated:
    """Simulate stages on ``workers`` workers, with stragglers and without lost workers.

    Segments are as cut by :mod:`oocbe.execution.cluster.dispatch`; a piece's seconds are its median time.
    """
    numbers = tuning()
    limits = numbers.most_segment_seconds, numbers.least_segment_seconds
    return simulate(stages, workers, Conditions(*limits, share=1 / numbers.segment_part, straggling=STRAGGLING))


_BUCKET, _PIECES = "bucket ", ("compute", "piece ")
"""Prefixes of the names of spans: of buckets, and of pieces on a stream."""


@dataclass(frozen=True)
class Stage:
    """Work that can start once certain earlier stages are done.

    name : for display. pieces : float64 (pieces,), seconds of one worker for each; segments are cut between them.
    serial : seconds of serial work by one worker before the pieces.
    after : indices of the stages that must be done before; they precede this one.
    """

    name: str
    pieces: NDArray[np.float64]
    serial: float = 0.0
    after: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        """Work of the stage."""
        return self.serial + float(self.pieces.sum())


def repeated(stages: Sequence[Stage], times: int) -> list[Stage]:
    """Stages with ``times`` times the pieces and unchanged serial parts."""
    return [Stage(s.name, np.tile(s.pieces, times), s.serial, s.after) for s in stages]


def critical_path(stages: Sequence[Stage]) -> float:
    """Minimum seconds for any number of workers, if every piece were a segment."""
    ends: list[float] = []
    for stage in stages:
        begin = max((ends[number] for number in stage.after), default=0.0)
        ends.append(begin + stage.serial + float(stage.pieces.max(initial=0.0)))
    return max(ends, default=0.0)


def predicted_stage(name: str, rows: float, seconds_a_row: float, piece_rows: int, after: tuple[int, ...]) -> Stage:
    """The stage of a bucket with predicted rows, in pieces of equal size.

    rows : of its message or its inputs, whichever ``seconds_a_row`` refers to.
    piece_rows : maximum of a piece.
    """
    count = max(1, math.ceil(rows / piece_rows))
    return Stage(name, np.full(count, rows * seconds_a_row / count), after=after)


def stages_of(trace: Trace) -> list[Stage]:
    """The stages of a traced run, in order.

    A bucket is a stage; one that was joined whole is one piece. All pieces of an operator on stored tables are one
    stage. For work of workers, pieces are their segments. Time without a piece in progress, of a bucket or of the run
    between buckets, is serial.

    Raises UsageError: the trace has neither buckets nor pieces.
    """
    buckets = sorted(
        (span for span in trace.spans if span.lane == ELIMINATION and span.name.startswith(_BUCKET)),
        key=lambda span: span.begin,
    )
    segments = [span for span in trace.spans if span.lane == WORKER]
    streamed = [s for s in trace.spans if s.lane == STREAM and not s.is_wait and s.name.startswith(_PIECES)]
    pieces = segments + _outside(segments, streamed)
    if not buckets and not pieces:
        raise UsageError(f"{trace.path}: no bucket and no piece is in this trace; trace a solve or stress with --trace")
    pieces.sort(key=lambda span: (span.begin, span.row))
    whole = round(trace.seconds * 1e9)
    if not buckets:
        return [_stage("pieces", 0, whole, pieces, ())]
    stages: list[Stage] = []
    end = 0
    for bucket in buckets:
        mine = [span for span in pieces if bucket.begin <= span.begin < bucket.end]
        name = str(bucket.details.get("variable", bucket.name))
        stage = _stage(name, bucket.begin, bucket.end, mine, (len(stages) - 1,) if stages else ())
        between = max(0, bucket.begin - end) / 1e9
        stages.append(Stage(name, stage.pieces, stage.serial + between, stage.after))
        end = max(end, bucket.end)
    if whole > end:
        stages.append(Stage("after the buckets", np.zeros(0), (whole - end) / 1e9, (len(stages) - 1,)))
    return stages


def _outside(segments: Sequence[Span], pieces: Sequence[Span]) -> list[Span]:
    """Pieces that began outside all segments; the others are part of a segment done by this process itself."""
    begins, ends = union_of((segment.begin, segment.end) for segment in segments).T.tolist()
    found = []
    for piece in pieces:
        place = bisect_right(begins, piece.begin) - 1
        if place < 0 or piece.begin >= ends[place]:
            found.append(piece)
    return found


def _stage(name: str, begin: int, end: int, pieces: Sequence[Span], after: tuple[int, ...]) -> Stage:
    """A stage from ``begin`` to ``end``, in nanoseconds; without pieces, all of it is one piece."""
    if not pieces:
        return Stage(name, np.array([(end - begin) / 1e9]), after=after)
    busy, until = 0, begin
    for piece in pieces:  # by their beginnings
        busy += max(0, min(piece.end, end) - max(piece.begin, until))
        until = max(until, piece.end)
    seconds = np.array([(piece.end - piece.begin) / 1e9 for piece in pieces])
    return Stage(name, seconds, max(0, end - begin - busy) / 1e9, after)
