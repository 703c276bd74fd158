"""A device that does nothing before it must: what CuPy offers of streams, events and copies, on the host.

Work that is queued runs when an event or a stream behind it is waited for, as late as a device may run it. Memory that
is used again, unpinned or read too early therefore shows, in every run alike.
"""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oocbe.kernels.cuda import gpus
from oocbe.kernels.cuda.transfer import conveyor, pinned
from oocbe.kernels.cuda.transfer.pinned import PinnedMemory, pinned_region


def take_the_place_of_cupy(monkeypatch: pytest.MonkeyPatch, count: int = 1) -> LazyDevice:
    """Lazy devices for the conveyor, with pinned memory of their own, and small parts of columns; the first is current.

    All of them have been started.
    """
    device = LazyDevice(count)
    for module in (conveyor, pinned, gpus):
        monkeypatch.setattr(module, "cupy", lambda: device)
    monkeypatch.setattr(gpus, "_started", set(range(count)))
    monkeypatch.setattr(gpus, "_lost", set())
    monkeypatch.setattr(gpus, "limit_bytes", lambda: 1 << 30)
    monkeypatch.setattr(gpus, "set_limit", lambda limit: device.limits.update({device.number: limit}))
    monkeypatch.setattr(pinned, "_POOL", PinnedMemory(pinned_region))
    monkeypatch.setattr(pinned, "_pinned", {})
    monkeypatch.setattr(pinned, "MAPPED_BYTES", 1)
    monkeypatch.setattr(pinned, "PAGE_BYTES", 1)  # small arrays share pages
    monkeypatch.setattr(conveyor, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(conveyor, "RING_BYTES", 4096)
    monkeypatch.setattr(conveyor, "_idle_streams", defaultdict(deque))
    return device


class DeviceError(RuntimeError):
    """An error of a device, as CuPy reports it."""


class LazyDevice:
    """Stands for the module CuPy.

    Attributes
    ----------
    streams : all that were made; ``current`` is CuPy's current one. pinned : address and bytes of memory that is pinned
        now. limits : of the memory of devices, by their numbers.
    """

    def __init__(self, count: int = 1) -> None:
        self._lock = threading.RLock()
        self._thread = threading.local()
        self.limits: dict[int, int] = {}
        self.streams: list[Stream] = []
        self.pinned: dict[int, int] = {}
        self.most_pinned = 0
        runtime = SimpleNamespace(
            CUDARuntimeError=DeviceError,
            getDevice=lambda: self.number,
            getDeviceCount=lambda: count,
            hostRegister=self._pin,
            hostUnregister=self._unpin,
            memcpyAsync=self._copy,
            pointerGetAttributes=lambda address: SimpleNamespace(type=int(self._is_pinned(address, 1))),
        )
        self.cuda = SimpleNamespace(
            runtime=runtime,
            driver=SimpleNamespace(CUDADriverError=DeviceError),
            memory=SimpleNamespace(OutOfMemoryError=DeviceError),
            Stream=lambda non_blocking: Stream(self._lock, self.streams, self.number),
            Event=lambda **_: Event(self._lock),
            Device=lambda number=None: CurrentDevice(self._thread, self.number if number is None else number),
            get_current_stream=lambda: self.current,
        )
        self.current = self.cuda.Stream(non_blocking=False)

    @property
    def number(self) -> int:
        """Number of the calling thread's current device; of a new thread, the first one."""
        return getattr(self._thread, "number", 0)

    def empty(self, size: int, dtype: Any) -> DeviceArray:
        """Memory on the device."""
        return np.empty(size, dtype=dtype).view(DeviceArray)

    def may_copy(self, array: np.ndarray) -> bool:
        """Whether the driver copies an array for any library: pinned by one call, or not from its start on."""
        return not self._is_pinned(array.ctypes.data, 1) or self._is_pinned(array.ctypes.data, array.nbytes)

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
        assert self._is_pinned(host, nbytes), "a copy that would wait: the memory is not pinned, or not by one call"
        with self._lock:
            assert self.streams[pointer].device == self.number, "a copy on another device's stream"
            self.streams[pointer].append(Copy(target, source, nbytes, host))


class CurrentDevice:
    """A device that is the current one of a thread within a block."""

    def __init__(self, thread: threading.local, number: int) -> None:
        self._thread, self._number = thread, number
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(getattr(self._thread, "number", 0))
        self._thread.number = self._number

    def __exit__(self, *_: object) -> None:
        self._thread.number = self._before.pop()


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
    """Work in a row, of one device."""

    def __init__(self, lock: threading.RLock, streams: list[Stream], device: int) -> None:
        self._lock, self.ptr, self.device = lock, len(streams), device
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
