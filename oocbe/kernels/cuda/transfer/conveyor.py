"""A conveyor to the device and back: pinned memory at both ends, one stream for each direction and one for kernels.

A copy between the device and pageable memory runs at a fifth of the bus's speed and blocks its thread. So threads fill
pinned memory with the next pieces' rows while earlier ones are on the bus, or pin rows in main memory where they are,
and empty the pinned memory of results. The caller's thread starts kernels and copies; it synchronises the streams by
events and never waits for a copy.

Device memory for inputs is allocated once, in two alternating slots: one is filled while the kernels read the other.
Results belong to the kernels' stream; its pool reuses their memory only after they have been copied to the host.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import accumulate, takewhile
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.spans import device_span
from oocbe.kernels.cuda.transfer.columns import (
    ALIGNMENT,
    TO_DEVICE,
    TO_HOST,
    Column,
    Columns,
    bytes_of,
    carved,
    copy,
    is_pinned,
    room_of,
)
from oocbe.kernels.cuda.transfer.filling import PoolFilling, are_done, largest_piece, wait_for_all
from oocbe.kernels.cuda.transfer.pinned import pinned_memory
from oocbe.runtime.tracing.recorder import CALLER, DEVICE_TO_HOST, HOST_TO_DEVICE, STREAM, WRITER, span, waiting

SECONDS = 2e-4
"""Switch interval of the interpreter's threads, in seconds (5 ms by default)."""

_lock = threading.Lock()
_users = 0
_before = 0.0


@contextmanager
def quick_switching() -> Iterator[None]:
    """Shorten the interpreter's switch interval for the time of a ``with`` block, in the whole process.

    The thread that queues kernels releases the interpreter at each call of the runtime. With many threads that read,
    check and write, it would wait for each of them in turn.
    """
    global _users, _before
    with _lock:
        if _users == 0:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(SECONDS, _before))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                sys.setswitchinterval(_before)


MOST_THREADS = 16
"""Maximum number of threads that fill, and that empty, pinned memory: one moves 9 GB/s, or 4 into fresh memory."""

DISK_READERS = 20
"""Threads that read columns from disk: they wait for the disk, not for a core."""

CHUNK_BYTES = 32 << 20
"""Size of result chunks, in bytes a column: several threads empty one result, and a ring of equal chunks of pinned
memory serves all."""

SLOTS = 2
"""Pieces in flight at a time: one is copied while the other is computed."""

SHARE_BEHIND = 0.5
"""Share of the pinned memory for results."""

RING_BYTES = 4 << 20
"""Allocation unit of pinned memory for results, in bytes: makes chunks reusable."""


class _Loaded(NamedTuple):
    """A piece whose columns are on the device after the event."""

    slot: int
    columns: list[Any]
    event: Any


def _event(stream: Any) -> Any:
    """An event behind all work of a stream so far, for which threads wait asleep."""
    event = cupy().cuda.Event(block=True, disable_timing=True)
    event.record(stream)
    return event


class Conveyor:
    """Copies pieces to the device and results back; a context manager that waits for all copies at its end.

    Parameters
    ----------
    pieces : columns of each piece, (rows,) each and contiguous, in host memory or to be read into it.
    host_bytes : limit of pinned memory, except for the needs of a single piece; None: no limit.
    sharing : number of conveyors that run at the same time, each for a GPU; they share threads and pinned memory.
    beside : all conveyors with results in the same targets; this one is added, and the caller removes it. None: no
        others.

    Attributes
    ----------
    stream : of the kernels. is_shared : whether other conveyors run at the same time.
    """

    def __init__(
        self,
        pieces: Sequence[Sequence[Column]],
        host_bytes: int | None = None,
        sharing: int = 1,
        beside: list[Conveyor] | None = None,
    ) -> None:
        module = cupy()
        self._pieces, self.is_shared = pieces, sharing > 1
        host_bytes = None if host_bytes is None else host_bytes // sharing
        self._in, self._out = (module.cuda.Stream(non_blocking=True) for _ in range(2))
        self.stream = module.cuda.Stream(non_blocking=True)
        # The thread that queues all work has a core of its own.
        threads = max(2, min(MOST_THREADS, len(os.sched_getaffinity(0)) // sharing - 1))
        fillers = max(1, threads // 2)
        emptiers = max(1, threads - fillers)
        self._are_arrays = not pieces or all(isinstance(column, np.ndarray) for column in pieces[0])
        if not self._are_arrays:
            fillers = DISK_READERS
        self._writers = ThreadPoolExecutor(emptiers, thread_name_prefix="oocbe-empty")
        size = largest_piece(pieces)
        with self.stream:
            self._slots = [module.empty(size, dtype=np.uint8) for _ in range(min(SLOTS, len(pieces)))]
        self.stream.synchronize()
        self._free_slot: list[Any] = [None] * SLOTS
        self._spare: list[NDArray[np.uint8]] = []
        self._emptying: deque[tuple[list[Future[None]], NDArray[np.uint8]]] = deque()
        self._behind = 2 * emptiers * CHUNK_BYTES
        self._host_bytes = host_bytes
        if host_bytes is not None:
            pinned_memory().keep_within(host_bytes * sharing)
            self._behind = min(self._behind, int(host_bytes * SHARE_BEHIND))
        self._behind_now = 0
        self._next_to_load = 0
        self._leaving: deque[tuple[Any, Any]] = deque()
        self._loaded: deque[_Loaded] = deque()
        room = None if host_bytes is None else int(host_bytes * (1 - SHARE_BEHIND))
        self._filling = PoolFilling(pieces, fillers, room)  # last, as its threads may start immediately
        self._beside = beside
        if beside is not None:
            beside.append(self)

    def __enter__(self) -> Self:
        self.stream.__enter__()
        # Few threads need the interpreter for arrays: each hand-over costs the caller more than its waits.
        self._switching: AbstractContextManager[None] = nullcontext() if self._are_arrays else quick_switching()
        self._switching.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as ends:  # all of them, in reverse, even after an interrupt
            ends.callback(self._filling.let_go)
            ends.callback(self._leaving.clear)
            ends.callback(self.stream.__exit__, kind, error, trace)
            for stream in (self._out, self.stream, self._in):
                ends.callback(stream.synchronize)
            ends.callback(self._writers.shutdown, wait=True)
            ends.callback(self._filling.close)
            ends.callback(self._switching.__exit__, None, None, None)
        if error is None:
            while self._emptying:
                wait_for_all(self._emptying.popleft()[0])

    def pieces(self, compute: Callable[[int, list[Any]], None]) -> None:
        """Call ``compute`` with each piece's number and its columns on the device, on the kernels' stream.

        The columns are valid until ``compute`` has queued its last kernel.
        """
        for number in range(len(self._pieces)):
            loaded = self._next_piece(number)
            self.stream.wait_event(loaded.event)
            with span(CALLER, f"queue piece {number}"), device_span(STREAM, f"piece {number}", self.stream):
                compute(number, loaded.columns)
            done = cupy().cuda.Event(disable_timing=True)
            done.record(self.stream)
            self._free_slot[loaded.slot] = done

    def _next_piece(self, number: int) -> _Loaded:
        """A piece whose copies are queued, with those of the next one where it is filled already."""
        self._filling.ahead_of(number)
        self._load(number)
        if number + 1 < len(self._pieces) and self._filling.is_next_filled():
            self._load(number + 1)
        return self._loaded.popleft()

    def bring_back(self, columns: Sequence[Any], targets: Columns) -> None:
        """Start copies of a result's columns to host memory, each into its target (rows,), contiguous."""
        ready = cupy().cuda.Event(disable_timing=True)
        ready.record(self.stream)
        self._out.wait_event(ready)
        # Memory for two results: waiting for the previous result would delay the next kernels.
        if self._host_bytes is None:
            self._behind = max(self._behind, 2 * bytes_of(targets))
        rows = len(targets[0])
        if all(map(is_pinned, targets)):
            with device_span(DEVICE_TO_HOST, "result", self._out, bytes=bytes_of(targets)):
                for column, target in zip(columns, targets, strict=True):
                    copy(target.ctypes.data, column.data.ptr, target.nbytes, TO_HOST, self._out)
            self._leave((columns, targets))
            return
        chunk_rows = max(1, min(rows, CHUNK_BYTES // max(target.itemsize for target in targets)))
        with device_span(DEVICE_TO_HOST, "result", self._out, bytes=bytes_of(targets)):
            for first in range(0, rows, chunk_rows):
                last = min(rows, first + chunk_rows)
                self._bring_chunk([c[first:last] for c in columns], [t[first:last] for t in targets], chunk_rows)
        self._leave(columns)

    def deliver(self, columns: Sequence[Any], consumers: Sequence[Callable[[NDArray[Any]], None]]) -> None:
        """Start copies of columns to host memory, each for a function that is called there on a thread of its own.

        consumers : called with the column, (rows,), in memory that is reused after all have returned.
        """
        ready = cupy().cuda.Event(disable_timing=True)
        ready.record(self.stream)
        self._out.wait_event(ready)
        # Limited batches: they must not wait until all earlier columns are consumed.
        most, first = min(CHUNK_BYTES, self._behind // 4), 0
        while first < len(columns):
            ends = accumulate(map(room_of, columns[first:]))
            last = first + max(1, sum(1 for _ in takewhile(lambda end: end <= most, ends)))
            self._deliver(columns[first:last], consumers[first:last])
            first = last
        self._leave(columns)

    def _deliver(self, columns: Sequence[Any], consumers: Sequence[Callable[[NDArray[Any]], None]]) -> None:
        """Copy columns to one stretch of pinned memory."""
        pinned = self._take(-(-sum(map(room_of, columns)) // RING_BYTES) * RING_BYTES)
        middle = carved(pinned, columns)
        with device_span(DEVICE_TO_HOST, "chunks", self._out, bytes=bytes_of(columns)):
            for column, target in zip(columns, middle, strict=True):
                copy(target.ctypes.data, column.data.ptr, column.nbytes, TO_HOST, self._out)
        gone = _event(self._out)
        calls = [
            self._writers.submit(_consume, gone, target, consume)
            for target, consume in zip(middle, consumers, strict=True)
        ]
        self._emptying.append((calls, pinned))
        self._behind_now += pinned.nbytes

    def _leave(self, arrays: Any) -> None:
        """Keep arrays on the device alive until the copies queued so far are done."""
        gone = cupy().cuda.Event(disable_timing=True)
        gone.record(self._out)
        self._leaving.append((gone, arrays))
        while self._leaving and self._leaving[0][0].done:
            self._leaving.popleft()

    def _bring_chunk(self, columns: Sequence[Any], targets: Columns, chunk_rows: int) -> None:
        nbytes = sum(target.itemsize * chunk_rows + ALIGNMENT for target in targets)
        pinned = self._take(-(-nbytes // RING_BYTES) * RING_BYTES)
        middle = carved(pinned, targets)
        for column, target in zip(columns, middle, strict=True):
            copy(target.ctypes.data, column.data.ptr, target.nbytes, TO_HOST, self._out)
        gone = _event(self._out)
        self._emptying.append(([self._writers.submit(_empty, gone, middle, targets)], pinned))
        self._behind_now += pinned.nbytes

    def wait_for_results(self) -> None:
        """Wait until no result is being copied and the device memory of results is free."""
        with waiting(CALLER, "wait for results"):
            while self._leaving:
                self._leaving[0][0].synchronize()  # its arrays are released only afterwards
                self._leaving.popleft()

    def wait_for_targets(self) -> None:
        """Wait until all results so far, also those of the conveyors beside this one, are in their targets."""
        for conveyor in [self] if self._beside is None else list(self._beside):
            for event, _ in list(conveyor._leaving):
                event.synchronize()
            for futures, _ in list(conveyor._emptying):
                wait_for_all(futures)

    def _load(self, number: int) -> None:
        """Start the copies of a piece, unless they have been started."""
        if number < self._next_to_load:
            return
        self._next_to_load += 1
        with waiting(CALLER, "wait for pinned memory to be filled"):
            filled = self._filling.take()
        slot = number % SLOTS
        if self._free_slot[slot] is not None:
            self._in.wait_event(self._free_slot[slot])
        columns = carved(self._slots[slot], filled)
        with device_span(HOST_TO_DEVICE, f"piece {number}", self._in, bytes=bytes_of(filled)):
            for target, column in zip(columns, filled, strict=True):
                copy(target.data.ptr, column.ctypes.data, column.nbytes, TO_DEVICE, self._in)
        event = _event(self._in)
        self._loaded.append(_Loaded(slot, columns, event))
        self._filling.leaves(filled, event)

    def _take(self, nbytes: int) -> NDArray[np.uint8]:
        """Pinned memory for a chunk of a result; waits for the oldest chunks if the limit is reached."""
        while self._emptying and (self._behind_now + nbytes > self._behind or are_done(self._emptying[0][0])):
            futures, pinned = self._emptying.popleft()
            with waiting(CALLER, "wait for pinned memory to be emptied"):
                wait_for_all(futures)
            self._behind_now -= pinned.nbytes
            self._spare.append(pinned)
        fitting = [place for place, pinned in enumerate(self._spare) if pinned.nbytes >= nbytes]
        if fitting:
            return self._spare.pop(min(fitting, key=lambda place: self._spare[place].nbytes))
        if self._behind_now + sum(pinned.nbytes for pinned in self._spare) + nbytes > self._behind:
            self._spare.clear()
        return pinned_memory().take(nbytes)


def _empty(event: Any, sources: Sequence[NDArray[Any]], targets: Columns) -> None:
    event.synchronize()
    with span(WRITER, "empty pinned memory", bytes=bytes_of(sources)):
        for source, target in zip(sources, targets, strict=True):
            np.copyto(target, source)


def _consume(event: Any, column: NDArray[Any], consume: Callable[[NDArray[Any]], None]) -> None:
    event.synchronize()
    consume(column)
