"""Summary of a trace: busy time and work of each lane, overlap, and the resource that bound the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.runtime.tracing.recorder import LANES, RESOURCES, STREAM, WORKER, Span
from oocbe.runtime.tracing.trace_file import Trace

Intervals = NDArray[np.int64]
"""(intervals, 2), begin and end in nanoseconds, ascending and disjoint."""

BOUNDING_SHARE = 0.75
"""Minimum busy share of a lane, or of the processor's cores, that bounds a run."""


@dataclass(frozen=True)
class Work:
    """All spans of one name in a lane: their number, total seconds, and bytes moved."""

    name: str
    is_wait: bool
    count: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class Lane:
    """One lane of a run.

    name : of the lane. rows : number of rows used, that is, the maximum of concurrent spans.
    busy : seconds in which at least one row worked. share : of the run's seconds.
    row_seconds : seconds of work in all rows. works : its kinds of work, the longest first and waiting last.
    """

    name: str
    rows: int
    busy: float
    share: float
    row_seconds: float
    works: tuple[Work, ...]


@dataclass(frozen=True)
class TraceSummary:
    """Summary of a trace.

    seconds : of the run. lanes : the lanes used, in the order in which rows pass through them.
    at_once : seconds in which 0, 1, 2, … of the resources (:data:`oocbe.runtime.tracing.recorder.RESOURCES`) worked;
        the workers count as one more.
    busiest : the resource with the longest work, including the workers; None without any.
    rows_read, rows_changed_owner : rows of stored tables read by workers, and those written by another worker.
    cores : available to the process. cores_busy : average number of cores in use, or None if unknown.
    """

    seconds: float
    lanes: tuple[Lane, ...]
    at_once: tuple[float, ...]
    busiest: Lane | None
    cores: int
    cores_busy: float | None
    rows_read: int = 0
    rows_changed_owner: int = 0

    @property
    def overlapped(self) -> float:
        """Share of the working time in which at least two resources worked."""
        working = sum(self.at_once[1:])
        return sum(self.at_once[2:]) / working if working else 0.0

    @property
    def bound_by(self) -> str:
        """The resource that bound the run, as a sentence."""
        if self.busiest is None:
            return "nothing that moves rows is in this trace"
        lane = self.busiest
        called = "workers" if lane.name == WORKER else lane.name
        what = ", ".join(f"{w.name} {w.seconds / lane.row_seconds:.0%}" for w in lane.works[:3] if not w.is_wait)
        if lane.share >= BOUNDING_SHARE:
            return f"the {called} bound it, busy {lane.share:.0%} of the time ({what})"
        if self.cores_busy is not None and self.cores_busy >= BOUNDING_SHARE * self.cores:
            return (
                f"the processor bound it, {self.cores_busy:.1f} of {self.cores} cores at work; the {called}, busy "
                f"{lane.share:.0%} of the time, took most ({what})"
            )
        idle = self.at_once[0] / self.seconds if self.seconds else 0.0
        return (
            f"no lane bound it: the {called}, the busiest, worked {lane.share:.0%} of the time ({what}); "
            f"{'lanes waited for one another' if idle < 0.25 else f'none worked in {idle:.0%} of the time'}"
        )


def summarise(trace: Trace) -> TraceSummary:
    """Compute the summary of a trace, up to the first dropped span, if any."""
    end = trace.seconds if trace.dropped_from is None else min(trace.seconds, trace.dropped_from)
    limit = round(end * 1e9)
    spans = [span for span in trace.spans if span.begin < limit or limit == 0]
    lanes, busy = [], {}
    for name in LANES:
        mine = [span for span in spans if span.lane == name]
        if mine:
            busy[name] = _busy(name, mine, limit)
            lanes.append(_lane(name, mine, busy[name], end))
    resources = [lane for lane in lanes if lane.name in (*RESOURCES, WORKER) and lane.busy]
    busiest = max(resources, key=lambda lane: lane.busy, default=None)
    at_once = _at_once([busy[lane.name] for lane in resources], limit)
    cores_busy = trace.cpu_seconds / trace.seconds if trace.cpu_seconds is not None and trace.seconds else None
    read, changed = (
        sum(int(span.details.get(name, 0)) for span in spans if span.lane == WORKER)
        for name in ("rows_read", "rows_changed_owner")
    )
    return TraceSummary(end, tuple(lanes), at_once, busiest, trace.cores, cores_busy, read, changed)


def _busy(name: str, spans: Sequence[Span], limit: int) -> Intervals:
    """Busy intervals of a lane: work without the waiting inside it; in streams, waiting counts for its own row only."""
    parts = []
    for row in sorted({span.row for span in spans}) if name in (STREAM, WORKER) else [None]:
        mine = [span for span in spans if row is None or span.row == row]
        work, waits = (
            union_of((s.begin, min(s.end, limit)) for s in mine if s.is_wait == kind) for kind in (False, True)
        )
        parts.append(difference(work, waits))
    return union_of(map(tuple, np.concatenate(parts).tolist()))


def difference(intervals: Intervals, others: Intervals) -> Intervals:
    """Set difference of two unions of intervals."""
    times = np.concatenate((intervals.ravel(), others.ravel()))
    steps = np.concatenate((np.tile([1, -1], len(intervals)), np.tile([-2, 2], len(others))))
    order = np.argsort(times, kind="stable")
    begins = np.flatnonzero((np.cumsum(steps[order]) == 1)[:-1])
    found = np.stack((times[order][begins], times[order][begins + 1]), axis=1)
    return found[found[:, 0] < found[:, 1]].astype(np.int64)


def kind_of(name: str) -> str:
    """Kind of work of a span: numbered ones (bucket 7) share one (buckets), not names (bucket of 7)."""
    head, _, number = name.rpartition(" ")
    return f"{head}s" if number.isdecimal() and head and not head.endswith(" of") else name


def union_of(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """Union of intervals that touch or overlap."""
    found = np.array(sorted(intervals), dtype=np.int64).reshape(-1, 2)
    if not len(found):
        return found
    reached = np.maximum.accumulate(found[:, 1])
    first = np.append(True, found[1:, 0] > reached[:-1])
    last = np.append(np.flatnonzero(first)[1:] - 1, len(found) - 1)
    return np.stack((found[first, 0], reached[last]), axis=1)


def _lane(name: str, spans: Sequence[Span], busy: Intervals, seconds: float) -> Lane:
    sums: dict[tuple[str, bool], list[int]] = {}
    for span in spans:
        entry = sums.setdefault((kind_of(span.name), span.is_wait), [0, 0, 0])
        entry[0] += 1
        entry[1] += span.end - span.begin
        entry[2] += int(span.details.get("bytes", 0))
    works = [Work(kind, is_wait, count, took / 1e9, size) for (kind, is_wait), (count, took, size) in sums.items()]
    works.sort(key=lambda work: (work.is_wait, -work.seconds))
    total = float((busy[:, 1] - busy[:, 0]).sum()) / 1e9
    return Lane(
        name,
        len({span.row for span in spans}),
        total,
        total / seconds if seconds else 0.0,
        sum(work.seconds for work in works if not work.is_wait),
        tuple(works),
    )


def _at_once(lanes: Sequence[Intervals], limit: int) -> tuple[float, ...]:
    """Seconds in which k of the lanes were busy, for k from none to all."""
    times = np.concatenate([[0, limit], *(lane.ravel() for lane in lanes)]).astype(np.int64)
    changes = np.concatenate([[0, 0], *(np.tile([1, -1], len(lane)) for lane in lanes)]).astype(np.int64)
    order = np.argsort(times, kind="stable")
    count = np.cumsum(changes[order])[:-1]
    spent = np.bincount(count, weights=np.diff(times[order]), minlength=len(lanes) + 1)
    return tuple((spent / 1e9).tolist())
