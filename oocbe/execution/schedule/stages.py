"""Work for workers: consecutive stages, such as buckets, each of pieces in the order of their keys.

A *segment* is a contiguous range of a stage's pieces, which one worker computes. Pieces are measured by a trace
(:func:`stages_of`) or predicted by a plan (:func:`predicted_stage`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError
from oocbe.runtime.tracing.recorder import ELIMINATION, STREAM, WORKER, Span
from oocbe.runtime.tracing.summary import union_of
from oocbe.runtime.tracing.trace_file import Trace

_BUCKET, _PIECES = "bucket ", ("compute", "piece ")
"""Prefixes of the names of spans: of buckets, and of pieces on a stream."""


@dataclass(frozen=True)
class Stage:
    """Work that can start once certain earlier stages are done.

    Attributes
    ----------
    name : for display.
    pieces : float64 (pieces,), seconds of one worker for each; segments are cut between them.
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

    Parameters
    ----------
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

    Raises
    ------
    UsageError : the trace has neither buckets nor pieces.
    """
    buckets = sorted(
        (span for span in trace.spans if span.lane == ELIMINATION and span.name.startswith(_BUCKET)),
        key=lambda span: span.begin,
    )
    segments = [span for span in trace.spans if span.lane == WORKER]
    pieces = segments + _outside(segments, _streamed(trace))
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


def _streamed(trace: Trace) -> list[Span]:
    """Pieces on streams of this process."""
    return [s for s in trace.spans if s.lane == STREAM and not s.is_wait and s.name.startswith(_PIECES)]


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
