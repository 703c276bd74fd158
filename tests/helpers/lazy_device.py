"""A device that does nothing before it must: what CuPy offers of streams, events and copies, on the host.

Work that is queued runs when an event or a stream behind it is waited for, as late as a device may run it. Memory that
is used again, unpinned or read too early therefore shows, in every run alike.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oocbe.kernels.cuda.transfer import columns, conveyor, filling, growing, home, pinned
from oocbe.kernels.cuda.transfer.pinned import PinnedMemory, pinned_region


def take_the_place_of_cupy(monkeypatch: pytest.MonkeyPatch) -> LazyDevice:
    """A lazy device for the conveyor, with pinned memory of its own, and small parts of columns."""
    device = LazyDevice()
    for module in (columns, conveyor, growing, home, pinned):
        monkeypatch.setattr(module, "cupy", lambda: device)
    monkeypatch.setattr(pinned, "_POOL", PinnedMemory(pinned_region))
    monkeypatch.setattr(filling, "PART_BYTES", 2400)
    monkeypatch.setattr(growing, "STEP_BYTES", 8192)
    monkeypatch.setattr(growing, "UNIT_BYTES", 4096)
    monkeypatch.setattr(conveyor, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(conveyor, "RING_BYTES", 4096)
    return device


class LazyDevice:
    """Stands for the module CuPy.

    Attributes
    ----------
    streams : all that were made; ``current`` is CuPy's current one. pinned : address and bytes of memory that is pinned
        now.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.streams: list[Stream] = []
        self.pinned: dict[int, int] = {}
        self.most_pinned = 0
        runtime = SimpleNamespace(
            CUDARuntimeError=RuntimeError,
            hostRegister=self._pin,
            hostUnregister=self._unpin,
            memcpyAsync=self._copy,
            pointerGetAttributes=lambda address: SimpleNamespace(type=int(self._is_pinned(address, 1))),
        )
        self.cuda = SimpleNamespace(
            runtime=runtime,
            Stream=lambda non_blocking: Stream(self._lock, self.streams),
            Event=lambda **_: Event(self._lock),
            Device=nullcontext,
            get_current_stream=lambda: self.current,
        )
        self.current = self.cuda.Stream(non_blocking=False)

    def empty(self, size: int, dtype: Any) -> DeviceArray:
        """Memory on the device."""
        return np.empty(size, dtype=dtype).view(DeviceArray)

    def queue(self, stream: Stream, work: Callable[[], None]) -> None:
        """Queue a kernel."""
        with self._lock:
            stream.append(work)

    def _pin(self, address: int, nbytes: int, flags: int) -> None:
        with self._lock:
            self.pinned[address] = nbytes
            self.most_pinned = max(self.most_pinned, sum(self.pinned.values()))

    def _unpin(self, address: int) -> None:
        with self._lock:
            nbytes = self.pinned.pop(address)
            for stream in self.streams:
                for copy in stream.copies():
                    assert copy.end <= address or address + nbytes <= copy.host, "a copy is on its way to memory let go"

    def _is_pinned(self, address: int, nbytes: int) -> bool:
        with self._lock:
            return any(low <= address and address + nbytes <= low + size for low, size in self.pinned.items())

    def _copy(self, target: int, source: int, nbytes: int, direction: int, pointer: int) -> None:
        host = source if direction == 1 else target
        assert self._is_pinned(host, nbytes), "a copy that would wait: the memory is not pinned"
        with self._lock:
            self.streams[pointer].append(Copy(target, source, nbytes, host))


class Copy:
    """A copy that was queued; host : its address there."""

    def __init__(self, target: int, source: int, nbytes: int, host: int) -> None:
        self._target, self._source, self._nbytes = target, source, nbytes
        self.host, self.end = host, host + nbytes

    def __call__(self) -> None:
        ctypes.memmove(self._target, self._source, self._nbytes)


class DeviceArray(np.ndarray):
    """An array with an address as CuPy gives it."""

    @property
    def data(self) -> Any:
        """Its memory."""
        return SimpleNamespace(ptr=self.ctypes.data)


class Stream:
    """Work in a row."""

    def __init__(self, lock: threading.RLock, streams: list[Stream]) -> None:
        self._lock, self.ptr = lock, len(streams)
        self._work: list[Callable[[], None]] = []
        self.done = 0
        streams.append(self)

    def append(self, work: Callable[[], None]) -> int:
        """Queue work; its place."""
        self._work.append(work)
        return len(self._work)

    def copies(self) -> list[Copy]:
        """Those that are still to be made."""
        return [work for work in self._work[self.done :] if isinstance(work, Copy)]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do."""
        return self.done == len(self._work)

    def run(self, until: int) -> None:
        """Do the work before a place."""
        with self._lock:
            while self.done < until:
                self._work[self.done]()
                self.done += 1

    def wait_event(self, event: Event) -> None:
        """Queue waiting for an event."""
        with self._lock:
            self.append(event.waiting())

    def synchronize(self) -> None:
        """Wait for all work so far."""
        self.run(len(self._work))

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Event:
    """A place in a stream."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._stream: Stream | None = None
        self._place = 0

    def record(self, stream: Stream) -> None:
        """Take the place behind all work so far."""
        with self._lock:
            self._stream, self._place = stream, stream.append(lambda: None)

    def waiting(self) -> Callable[[], None]:
        """Work that does what is before this event, as it is now."""
        stream, place = self._stream, self._place
        assert stream is not None
        return lambda: stream.run(place)

    def synchronize(self) -> None:
        """Wait for it."""
        self.waiting()()

    @property
    def done(self) -> bool:
        """Whether it has passed."""
        return self._stream is not None and self._stream.done >= self._place
