"""Spans of work: who did what from when to when, recorded only where somebody asked for a trace.

A span lies in a *lane*: a stream of pieces, the reader, the kernels, a copy engine, the writer. Lanes have *rows*: a
stream has its own, in the others a span gets the first row that is free, so that spans of several threads at once lie
one below the other. :func:`span` records what its block takes on the clock of this process; :meth:`Recorder.add` takes
times measured otherwise, such as a device's. *Waiting* is recorded as such and does not count as busy.

Without a trace, recording a span is a look at a global variable and an empty ``with`` block. With one, finished spans
are handed to a :class:`Sink` in blocks, which bounds the memory; recording never raises. All of it may be called from
any thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from threading import Lock, local
from types import TracebackType
from typing import NamedTuple, ParamSpec, Protocol, Self, TypeVar

ELIMINATION, CALLER, STREAM = "elimination", "caller", "stream"
"""Lanes of threads: buckets and what is done before and after them, what takes the results of pieces, the pieces."""

WORKER = "worker"
"""Lane of processes that work for this one, a row each."""

READER, WRITER, KERNELS = "reader", "writer", "kernels"
"""Lanes of resources: disk to memory, memory to disk, computation."""

HOST_TO_DEVICE, DEVICE_TO_HOST = "host to device", "device to host"
"""Lanes of copies between main memory and the device."""

RESOURCES = (READER, HOST_TO_DEVICE, KERNELS, DEVICE_TO_HOST, WRITER)
"""Lanes of what a run may be bound by, in the order in which rows go through them."""

BLOCK_SPANS = 4096
"""Spans that a thread hands over at a time."""

BLOCK_SECONDS = 1.0
"""Spans are handed over when there are so many, or when so much time has passed: what a killed process loses."""

MOST_SPANS = 1_000_000
"""Spans of a trace. Beyond, its file (some 100 MB) is more than any viewer shows; further ones are counted only."""

Detail = int | float | str
P = ParamSpec("P")
R = TypeVar("R")


class Span(NamedTuple):
    """Work of one lane.

    Attributes
    ----------
    lane, row : where it is drawn. name : what was done.
    begin, end : nanoseconds of :func:`time.perf_counter_ns`.
    is_wait : whether the lane did nothing but wait.
    details : further figures; ``bytes`` counts towards a lane's rate.
    """

    lane: str
    row: int
    name: str
    begin: int
    end: int
    is_wait: bool
    details: dict[str, Detail]


class Sink(Protocol):
    """Where finished spans go."""

    def write(self, spans: list[Span]) -> None:
        """Take some spans; may raise OSError, after which no more come."""


class Recorder:
    """Collects spans for a sink.

    Parameters
    ----------
    sink : gets them in blocks, on the thread that fills one. most_spans : further ones are dropped.

    Attributes
    ----------
    dropped : spans that were not recorded. dropped_from : time in ns of the first of them, or None.
    failure : why the sink takes no more spans, or None.
    """

    def __init__(self, sink: Sink, most_spans: int = MOST_SPANS) -> None:
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
        """Record a span; ``row`` None: the first that is free. Attributes as for :class:`Span`."""
        with self._lock:
            if self._is_closed:
                return  # of a thread that began its work within the trace
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
        """Have something called when the recorder is closed, such as to add spans that a device still holds."""
        with self._lock:
            self._before_close.append(call)

    def close(self) -> None:
        """Hand over what is left."""
        for call in self._before_close:
            call()
        with self._lock:
            self._hand_over()
            self._is_closed = True

    @contextmanager
    def rows(self, lane: str, count: int) -> Iterator[list[int]]:
        """Rows of a lane that nobody else is given within the block."""
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
            self._sink.write(block)
        except OSError as error:
            self.failure = error  # a trace that cannot be written must not end the run that it is about
            self.dropped += len(block)
            self.dropped_from = min(span.begin for span in block)


_recorder: Recorder | None = None
_thread = local()


def active() -> Recorder | None:
    """The recorder of the trace that is being written, or None."""
    return _recorder


def set_active(recorder: Recorder | None) -> None:
    """Record spans there from now on; None: nowhere."""
    global _recorder
    _recorder = recorder


class Timed(Protocol):
    """A block that may be recorded."""

    def note(self, **details: Detail) -> None:
        """Add details that are known in the block only."""


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
    """Records what its block takes, also when the block ends with an exception."""

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
        """Add details that are known in the block only."""
        self._details.update(details)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = time.perf_counter_ns()
        self._recorder.add(self._lane, self._name, self._begin, end, self._row, self._is_wait, self._details)


_NOTHING = _Nothing()
"""What is entered where nothing is recorded."""


def span(lane: str, name: str, row: int | None = None, **details: Detail) -> AbstractContextManager[Timed]:
    """Record the block as a span of a lane, in a row of its own or the first that is free."""
    recorder = _recorder
    return _NOTHING if recorder is None else _Timed(recorder, lane, name, row, False, details)


def waiting(lane: str, name: str, row: int | None = None, **details: Detail) -> AbstractContextManager[Timed]:
    """Record the block as time in which a lane waits."""
    recorder = _recorder
    return _NOTHING if recorder is None else _Timed(recorder, lane, name, row, True, details)


def phase(name: str, is_wait: bool = False, **details: Detail) -> AbstractContextManager[Timed]:
    """Record the block in the lane that this thread works for (:func:`working_for`); nothing where it has none."""
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
    """Within the block, this thread works for a row of a lane."""
    before = getattr(_thread, "place", None)
    _thread.place = lane, row
    try:
        yield
    finally:
        _thread.place = before


def rows_of(lane: str, count: int) -> AbstractContextManager[list[int]]:
    """Rows of a lane that nobody else is given within the block: see :meth:`Recorder.rows`."""
    recorder = _recorder
    return nullcontext(list(range(count))) if recorder is None else recorder.rows(lane, count)


if hasattr(os, "register_at_fork"):
    # The file belongs to the parent; a lock of it may be held by a thread that does not exist in the child.
    os.register_at_fork(after_in_child=lambda: set_active(None))
