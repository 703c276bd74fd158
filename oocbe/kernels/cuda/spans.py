"""Trace spans on a device's own clock: events of its streams, resolved after the device has passed them.

Recording queues two events and waits for nothing. An event's time is relative to a *base*, an event with a known time
on this process's clock: it is queued on an empty stream and awaited, again every few seconds, because differences
between events are 32-bit floats of milliseconds. Without a trace no event is created.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple

from oocbe.kernels.cuda.device import cupy
from oocbe.runtime.tracing.recorder import Detail, Recorder, active

BASE_SECONDS = 8.0
"""Lifetime of a base, in seconds: floats below 8192 milliseconds are exact to half a microsecond."""

MOST_PENDING = 1 << 12
"""Maximum number of unresolved spans; beyond it the oldest completed ones are resolved."""


class _Base(NamedTuple):
    """An event, and its time in ns of this process's clock."""

    event: Any
    time: int


class _Pending(NamedTuple):
    """A span with queued events."""

    lane: str
    name: str
    base: _Base
    begin: Any
    end: Any
    details: dict[str, Detail]


class _DeviceClock:
    """Spans of one device for one trace."""

    def __init__(self, recorder: Recorder, device: int) -> None:
        self._recorder, self._device = recorder, device
        self._pending: deque[_Pending] = deque()
        self._base: _Base | None = None
        self._lock = Lock()
        recorder.before_close(self.close)

    def base(self) -> _Base:
        """A recent base; creates a new one if necessary."""
        with self._lock:
            if self._base is None or time.perf_counter_ns() - self._base.time > BASE_SECONDS * 1e9:
                module = cupy()
                stream, event = module.cuda.Stream(non_blocking=True), module.cuda.Event()
                stream.synchronize()
                before = time.perf_counter_ns()
                event.record(stream)
                event.synchronize()
                self._base = _Base(event, (before + time.perf_counter_ns()) // 2)
            return self._base

    def add(self, pending: _Pending) -> None:
        """Store a span until its time is known."""
        with self._lock:
            self._pending.append(pending)
            if len(self._pending) > MOST_PENDING:
                self._resolve(wait=False)

    def close(self) -> None:
        """Resolve all spans; those of a device that has failed are lost."""
        try:
            with cupy().cuda.Device(self._device), self._lock:
                self._resolve(wait=True)
        except cupy().cuda.runtime.CUDARuntimeError:
            pass  # the run itself ends with this error
        with _lock:
            if _clocks.get(self._device, (None,))[0] is self._recorder:
                del _clocks[self._device]

    def _resolve(self, wait: bool) -> None:
        elapsed = cupy().cuda.get_elapsed_time
        while self._pending:
            span = self._pending[0]
            if wait:
                span.end.synchronize()
            elif not span.end.done:
                return
            self._pending.popleft()
            begin = span.base.time + round(elapsed(span.base.event, span.begin) * 1e6)
            end = begin + round(elapsed(span.begin, span.end) * 1e6)
            self._recorder.add(span.lane, span.name, begin, end, details=span.details)


class _Queued:
    """Queues events on a stream before and after the block's work."""

    __slots__ = ("_begin", "_clock", "_details", "_lane", "_name", "_stream")

    def __init__(self, clock: _DeviceClock, stream: Any, lane: str, name: str, details: dict[str, Detail]) -> None:
        self._clock, self._stream, self._lane, self._name, self._details = clock, stream, lane, name, details

    def __enter__(self) -> None:
        base = self._clock.base()  # before the event: differences are never negative
        self._begin = base, cupy().cuda.Event()
        self._begin[1].record(self._stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            end = cupy().cuda.Event()
            end.record(self._stream)
            base, begin = self._begin
            self._clock.add(_Pending(self._lane, self._name, base, begin, end, self._details))


_NOTHING: AbstractContextManager[None] = nullcontext()
"""The context without a trace."""

_clocks: dict[int, tuple[Recorder, _DeviceClock]] = {}
_lock = Lock()


def device_span(lane: str, name: str, stream: Any = None, **details: Detail) -> AbstractContextManager[None]:
    """Record the block's work on a stream (None: CuPy's current one), by its begin and end on the device."""
    recorder = active()
    if recorder is None:
        return _NOTHING
    stream = cupy().cuda.get_current_stream() if stream is None else stream
    return _Queued(_clock(recorder), stream, lane, name, details)


def _clock(recorder: Recorder) -> _DeviceClock:
    device = int(cupy().cuda.runtime.getDevice())
    with _lock:
        known = _clocks.get(device)
        if known is None or known[0] is not recorder:
            known = _clocks[device] = recorder, _DeviceClock(recorder, device)
        return known[1]
