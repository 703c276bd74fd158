"""Spans of work: lane, name, begin and end; recorded only while a trace is active.

A span belongs to a *lane*: a stream of pieces, the reader, the kernels, a copy engine, the writer. Lanes have *rows*: a
stream has its own; in other lanes a span gets the first free row, so that concurrent spans of several threads are drawn
below each other. :func:`span` measures its block by the clock of this process; :meth:`Recorder.add` accepts times from
other clocks, such as a device's. *Waiting* is recorded separately and does not count as busy.

Without a trace, a span costs a check of a global variable and an empty ``with`` block. With one, finished spans are
passed to a sink in blocks, which bounds the memory; recording never raises. All functions are thread-safe.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from threading import Lock, local
from typing import NamedTuple, ParamSpec, Self, TypeAlias, TypeVar

ELIMINATION, CALLER, STREAM = "elimination", "caller", "stream"
"""Lanes of threads: buckets with their preparation and completion, or steps of operators; the consumer of pieces'
results; the pieces."""

WORKER = "worker"
"""Lane of worker processes, one row each."""

READER, WRITER, KERNELS = "reader", "writer", "kernels"
"""Lanes of resources: disk to memory, memory to disk, computation."""

HOST_TO_DEVICE, DEVICE_TO_HOST = "host to device", "device to host"
"""Lanes of copies between main memory and the device."""

RESOURCES = (READER, HOST_TO_DEVICE, KERNELS, DEVICE_TO_HOST, WRITER)
"""Lanes of resources that may bound a run, in the order in which rows pass through them."""

LANES = (ELIMINATION, CALLER, WORKER, STREAM, *RESOURCES)
"""All lanes, in display order."""

BLOCK_SPANS = 4096
"""Spans per block passed to the sink."""

BLOCK_SECONDS = 1.0
"""Maximum seconds before an incomplete block is passed to the sink; a killed process loses at most these spans."""

MOST_SPANS = 1_000_000
"""Maximum spans of a trace: its file is then some 100 MB, beyond the capacity of viewers; further ones are counted."""

Detail = int | float | str
P = ParamSpec("P")
R = TypeVar("R")


class Span(NamedTuple):
    """A span of work in one lane.

    lane, row : position. name : kind of work. begin, end : nanoseconds of :func:`time.perf_counter_ns`.
    is_wait : whether the lane was only waiting. details : further figures; ``bytes`` counts towards a lane's rate.
    """

    lane: str
    row: int
    name: str
    begin: int
    end: int
    is_wait: bool
    details: dict[str, Detail]


class Recorder:
    """Collects spans for a sink.

    sink : receives blocks, on the thread that completes one; may raise OSError, after which it is not called again.
    most_spans : further spans are dropped.
    dropped : number of spans that were not recorded. dropped_from : time in ns of the first of them, or None.
    failure : error that ended the writing to the sink, or None.
    """

    def __init__(self, sink: Callable[[list[Span]], None], most_spans: int = MOST_SPANS) -> None:
        self.dropped = 0
        self.dropped_from: int | None = None
        self.failure: OSError | None = None
        self._is_closed = False
        self._sink, self._room = sink, most_spans
        self._block: list[Span] = []
        self._handed_over = time.perf_counter_ns()
        self._row_ends: dict[str, list[int]] = {}
        self._taken_rows: dict[str, set[int]] = {}
        self._before_close: list[Callable[[], None]] = []
        self._lock = Lock()

    def add(
        self,
        lane: str,
        name: str,
        begin: int,
        end: int,
        row: int | None = None,
        is_wait: bool = False,
        details: dict[str, Detail] | None = None,
    ) -> None:
        """Record a span; ``row`` None: the first free one. Attributes as for :class:`Span`."""
        with self._lock:
            if self._is_closed:
                return  # from a thread that started within the trace
            if self._room <= 0 or self.failure is not None:
                self.dropped += 1
                self.dropped_from = begin if self.dropped_from is None else min(begin, self.dropped_from)
                return
            self._room -= 1
            row = self._free_row(lane, begin, end) if row is None else row
            self._block.append(Span(lane, row, name, begin, end, is_wait, details or {}))
            if len(self._block) >= BLOCK_SPANS or end - self._handed_over > BLOCK_SECONDS * 1e9:
                self._hand_over()

    def before_close(self, call: Callable[[], None]) -> None:
        """Register a call for :meth:`close`, such as one that adds spans still stored on a device."""
        with self._lock:
            self._before_close.append(call)

    def close(self) -> None:
        """Pass the remaining spans to the sink."""
        for call in self._before_close:
            call()
        with self._lock:
            self._hand_over()
            self._is_closed = True

    @contextmanager
    def rows(self, lane: str, count: int) -> Iterator[list[int]]:
        """Rows of a lane, reserved within the block."""
        with self._lock:
            taken = self._taken_rows.setdefault(lane, set())
            free = [row for row in range(len(taken) + count) if row not in taken][:count]
            taken.update(free)
        try:
            yield free
        finally:
            with self._lock:
                taken.difference_update(free)

    def _free_row(self, lane: str, begin: int, end: int) -> int:
        ends = self._row_ends.setdefault(lane, [])
        for row, last in enumerate(ends):
            if last <= begin:
                ends[row] = end
                return row
        ends.append(end)
        return len(ends) - 1

    def _hand_over(self) -> None:
        self._handed_over = time.perf_counter_ns()
        block, self._block = self._block, []
        if not block or self.failure is not None:
            return
        try:
            self._sink(block)
        except OSError as error:
            self.failure = error  # a failure of the trace must not end the run
            self.dropped += len(block)
            self.dropped_from = min(span.begin for span in block)


_recorder: Recorder | None = None
_thread = local()


def active() -> Recorder | None:
    """The recorder of the active trace, or None."""
    return _recorder


def set_active(recorder: Recorder | None) -> None:
    """Set the recorder of spans; None: no recording."""
    global _recorder
    _recorder = recorder


class _Nothing:
    """Records nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def note(self, **details: Detail) -> None:
        pass


class _Timed:
    """Records the duration of its block, also if the block ends with an exception."""

    __slots__ = ("_begin", "_details", "_is_wait", "_lane", "_name", "_recorder", "_row")

    def __init__(
        self, recorder: Recorder, lane: str, name: str, row: int | None, is_wait: bool, details: dict[str, Detail]
    ) -> None:
        self._recorder, self._lane, self._name, self._row = recorder, lane, name, row
        self._is_wait, self._details = is_wait, details

    def __enter__(self) -> Self:
        self._begin = time.perf_counter_ns()
        return self

    def note(self, **details: Detail) -> None:
        """Add details that become known within the block."""
        self._details.update(details)

    def __exit__(self, *error: object) -> None:
        end = time.perf_counter_ns()
        self._recorder.add(self._lane, self._name, self._begin, end, self._row, self._is_wait, self._details)


_NOTHING = _Nothing()
"""Context manager of :func:`span` without a trace."""

Timed: TypeAlias = _Timed | _Nothing
"""A block that is recorded if a trace is active."""


def span(lane: str, name: str, row: int | None = None, **details: Detail) -> Timed:
    """Record the block as a span of a lane, in the given row or the first free one."""
    recorder = _recorder
    return _NOTHING if recorder is None else _Timed(recorder, lane, name, row, False, details)


def waiting(lane: str, name: str, row: int | None = None, **details: Detail) -> Timed:
    """Record the block as waiting time of a lane."""
    recorder = _recorder
    return _NOTHING if recorder is None else _Timed(recorder, lane, name, row, True, details)


def phase(name: str, is_wait: bool = False, **details: Detail) -> Timed:
    """Record the block in the lane of this thread (:func:`working_for`), if it has one."""
    recorder, place = _recorder, getattr(_thread, "place", None)
    if recorder is None or place is None:
        return _NOTHING
    return _Timed(recorder, place[0], name, place[1], is_wait, details)


def spanning(lane: str, name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: record every call of a function as a span of a lane."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            with span(lane, name):
                return function(*arguments, **named)

        return call

    return decorate


@contextmanager
def working_for(lane: str, row: int) -> Iterator[None]:
    """Within the block, spans of :func:`phase` on this thread belong to a row of a lane."""
    before = getattr(_thread, "place", None)
    _thread.place = lane, row
    try:
        yield
    finally:
        _thread.place = before


def rows_of(lane: str, count: int) -> AbstractContextManager[list[int]]:
    """Rows of a lane, reserved within the block: see :meth:`Recorder.rows`."""
    recorder = _recorder
    return nullcontext(list(range(count))) if recorder is None else recorder.rows(lane, count)


# The file belongs to the parent; its lock may be held by a thread that does not exist in the child.
os.register_at_fork(after_in_child=lambda: set_active(None))
