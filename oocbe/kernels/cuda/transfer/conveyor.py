"""A conveyor to the device and back: pinned memory at both ends, a stream each way beside the one of the kernels.

A copy between the device and ordinary memory runs at a fifth of the bus's speed and makes its thread wait. So threads
fill pinned memory with the next pieces' rows while earlier ones are on the bus, and empty pinned memory behind it;
columns that lie in pinned memory already are taken from there. One thread, the caller's, starts all copies and kernels:
it meets the streams in events, never in a wait for a copy.

Device memory for inputs is taken once, in two slots that take turns: one is filled while the kernels read the other.
Results belong to the kernels' stream, whose pool gets them back only when they have left the device.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import accumulate, takewhile
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.line_copy import copy_past_caches
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.spans import device_span
from oocbe.kernels.cuda.switching import quick_switching
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
from oocbe.kernels.cuda.transfer.pinned import pinned_memory
from oocbe.tracing.recorder import CALLER, DEVICE_TO_HOST, HOST_TO_DEVICE, READER, STREAM, WRITER, span, waiting

MOST_THREADS = 16
"""Threads that fill pinned memory, and that empty it: one moves 9 GB/s, or 4 into memory that was never used before."""

MOST_FILLERS = 15
"""Threads that fill pinned memory where nothing comes back: past the caches twelve copy 58 GB/s beside a bus of 53,
but here they wait for one another half of the time (benchmarks/RESULTS.md)."""

DISK_READERS = 20
"""Threads that read columns from disk: they wait for it, not for a core."""

CHUNK_BYTES = 32 << 20
"""Results come back in chunks of so many bytes a column: several threads empty one result, and a ring of equal chunks
of pinned memory serves all."""

SLOTS = 2
"""Pieces under way at a time: one is copied while the other is computed."""

LOOK_UP_SECONDS = 0.2
"""A waiting thread looks up this often, so that signals get through."""

FILLERS_A_PIECE = 8
"""Threads that fill one piece: the first piece is there the sooner, and the next ones are filled meanwhile."""

LEAST_PART_BYTES = 4 << 20
"""A column in memory is filled in parts of at least so many bytes."""

MOST_COPYING = SLOTS + 2
"""Pieces on the bus, or waiting for it, at most: threads that fill faster than it would take ever more memory."""

SHARE_BEHIND = 0.5
"""Share of the pinned memory allowed for results on their way."""

RING_BYTES = 4 << 20
"""Pinned memory for results is taken in multiples of so many bytes, so that pieces of it are used again."""


class _Filled(NamedTuple):
    """A piece's columns in pinned memory, and what fills them on other threads."""

    columns: Sequence[Any]
    parts: Sequence[Future[None]]


class _Loaded(NamedTuple):
    """A piece whose columns are on the device, or on their way: the event says when."""

    slot: int
    columns: list[Any]
    event: Any


class Conveyor:
    """Brings pieces to the device and results back; a context manager that waits for everything at its end.

    Parameters
    ----------
    pieces : columns of each piece, (rows,) each and contiguous, in main memory or to be read into it.
    host_bytes : pinned memory that may be taken, but for what a single piece needs; None: as much as is of use.
    brings_back : whether results will go back through the conveyor; more threads fill pinned memory where none do.
    """

    def __init__(
        self, pieces: Sequence[Sequence[Column]], host_bytes: int | None = None, brings_back: bool = True
    ) -> None:
        module = cupy()
        self._pieces = pieces
        self._in, self._out = (module.cuda.Stream(non_blocking=True) for _ in range(2))
        self.stream = module.cuda.Stream(non_blocking=True)
        # The thread that queues everything has a core of its own.
        threads = max(2, min(MOST_THREADS, len(os.sched_getaffinity(0)) - 1))
        fillers = max(1, threads * 2 // 5) if brings_back else min(threads, MOST_FILLERS)
        emptiers = max(1, threads - fillers)
        if pieces and not all(isinstance(column, np.ndarray) for column in pieces[0]):
            fillers = DISK_READERS
        elif all(map(is_pinned, pieces[0] if pieces else ())):
            fillers, emptiers = 1, max(1, threads - 1)
        self._readers = ThreadPoolExecutor(fillers, thread_name_prefix="oocbe-fill")
        self._writers = ThreadPoolExecutor(emptiers, thread_name_prefix="oocbe-empty")
        size = max((sum(map(room_of, columns)) for columns in pieces), default=0)
        with self.stream:
            self._slots = [module.empty(size, dtype=np.uint8) for _ in range(min(SLOTS, len(pieces)))]
        self.stream.synchronize()
        self._free_slot: list[Any] = [None] * SLOTS
        self._filling: deque[Future[_Filled]] = deque()
        self._spare: list[NDArray[np.uint8]] = []
        self._emptying: deque[tuple[list[Future[None]], NDArray[np.uint8]]] = deque()
        self._ahead = -(-fillers // FILLERS_A_PIECE) + 1
        self._behind = 2 * emptiers * CHUNK_BYTES
        self._host_bytes = host_bytes
        if host_bytes is not None:
            pinned_memory().keep_within(host_bytes)
            self._behind = min(self._behind, int(host_bytes * SHARE_BEHIND))
            # A piece's pinned memory is free when the next one's copy is over.
            self._ahead = max(1, min(self._ahead, int(host_bytes * (1 - SHARE_BEHIND)) // max(1, size) - SLOTS))
        self._behind_now = 0
        self._next_to_fill = self._next_to_load = 0
        self._leaving: deque[tuple[Any, Any]] = deque()
        self._copying: deque[tuple[Any, Any]] = deque()  # pinned memory that goes back to its pool after the event
        self._loaded: deque[_Loaded] = deque()

    def __enter__(self) -> Self:
        self.stream.__enter__()
        self._switching = quick_switching()
        self._switching.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as ends:  # all of them, in reverse, also where an interrupt comes in between
            for held in (self._copying, self._leaving):
                ends.callback(held.clear)
            ends.callback(self.stream.__exit__, kind, error, trace)
            for stream in (self._out, self.stream, self._in):
                ends.callback(stream.synchronize)
            ends.callback(self._writers.shutdown, wait=True)
            ends.callback(self._readers.shutdown, wait=True, cancel_futures=True)
            ends.callback(self._switching.__exit__, None, None, None)
        if error is None:
            while self._emptying:
                _wait_for_all(self._emptying.popleft()[0])

    def pieces(self, compute: Callable[[int, list[Any]], None]) -> None:
        """Call ``compute`` with each piece's number and its columns on the device, for the stream of the kernels.

        The columns are the piece's until ``compute`` has queued its last kernel.
        """
        for number in range(len(self._pieces)):
            self._fill_ahead(number)
            self._load(number)
            if number + 1 < len(self._pieces) and self._is_filled():
                self._load(number + 1)
            loaded = self._loaded.popleft()
            self.stream.wait_event(loaded.event)
            with span(CALLER, f"queue piece {number}"), device_span(STREAM, f"piece {number}", self.stream):
                compute(number, loaded.columns)
            done = cupy().cuda.Event(disable_timing=True)
            done.record(self.stream)
            self._free_slot[loaded.slot] = done

    def bring_back(self, columns: Sequence[Any], targets: Columns) -> None:
        """Start to bring a result's columns to main memory, each into its target (rows,), contiguous."""
        ready = cupy().cuda.Event(disable_timing=True)
        ready.record(self.stream)
        self._out.wait_event(ready)
        # Room for two results: this one must not wait for the one before, or the kernels of the next would.
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
        """Start to bring columns to main memory, each for a function there that is called on a thread of its own.

        consumers : given the column, (rows,), in memory that is used again when all have returned.
        """
        ready = cupy().cuda.Event(disable_timing=True)
        ready.record(self.stream)
        self._out.wait_event(ready)
        # As many at a time as leave room for others: these must not wait for all before to be consumed.
        most, first = min(CHUNK_BYTES, self._behind // 4), 0
        while first < len(columns):
            ends = accumulate(map(room_of, columns[first:]))
            last = first + max(1, sum(1 for _ in takewhile(lambda end: end <= most, ends)))
            self._deliver(columns[first:last], consumers[first:last])
            first = last
        self._leave(columns)

    def _deliver(self, columns: Sequence[Any], consumers: Sequence[Callable[[NDArray[Any]], None]]) -> None:
        """Bring columns to one stretch of pinned memory."""
        pinned = self._take(-(-sum(map(room_of, columns)) // RING_BYTES) * RING_BYTES)
        middle = carved(pinned, columns)
        with device_span(DEVICE_TO_HOST, "chunks", self._out, bytes=bytes_of(columns)):
            for column, target in zip(columns, middle, strict=True):
                copy(target.ctypes.data, column.data.ptr, column.nbytes, TO_HOST, self._out)
        gone = cupy().cuda.Event(block=True, disable_timing=True)
        gone.record(self._out)
        calls = [
            self._writers.submit(_consume, gone, target, consume)
            for target, consume in zip(middle, consumers, strict=True)
        ]
        self._emptying.append((calls, pinned))
        self._behind_now += pinned.nbytes

    def _leave(self, arrays: Any) -> None:
        """Hold arrays on the device until the copies queued so far are over."""
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
        # Threads that wait for this sleep: there are as many as cores, and others have work.
        gone = cupy().cuda.Event(block=True, disable_timing=True)
        gone.record(self._out)
        self._emptying.append(([self._writers.submit(_empty, gone, middle, targets)], pinned))
        self._behind_now += pinned.nbytes

    def wait_for_results(self) -> None:
        """Until no result is on its way: what they held on the device is free."""
        with waiting(CALLER, "wait for results"):
            while self._leaving:
                self._leaving[0][0].synchronize()  # and only then let go of its arrays
                self._leaving.popleft()

    def wait_for_targets(self) -> None:
        """Until all results so far are where they belong."""
        self.wait_for_results()
        for futures, _ in self._emptying:
            _wait_for_all(futures)

    def _fill_ahead(self, number: int) -> None:
        while self._copying and self._copying[0][0].done:
            self._copying.popleft()
        if len(self._copying) > MOST_COPYING:
            with waiting(CALLER, "wait for the bus"):
                self._copying[0][0].synchronize()  # and only then let go of its memory
                self._copying.popleft()
        while self._next_to_fill < min(len(self._pieces), number + self._ahead):
            columns = self._pieces[self._next_to_fill]
            if all(map(is_pinned, columns)):
                self._filling.append(_known(_Filled(columns, ())))
            else:
                self._filling.append(self._readers.submit(self._fill, columns))
            self._next_to_fill += 1

    def _fill(self, columns: Sequence[Column]) -> _Filled:
        """Have the columns put into pinned memory, in parts, by threads of their own."""
        filled = carved(pinned_memory().take(sum(map(room_of, columns))), columns)
        calls: list[tuple[int, Callable[[], None]]] = []
        for target, column in zip(filled, columns, strict=True):
            if isinstance(column, np.ndarray):
                step = max(LEAST_PART_BYTES, -(-column.nbytes // FILLERS_A_PIECE)) // column.itemsize
                parts = [slice(low, low + step) for low in range(0, len(column), step)]
                calls += [(target[p].nbytes, partial(copy_past_caches, target[p], column[p])) for p in parts]
            else:
                calls += column.reads_into(target)
        shares = [calls[first::FILLERS_A_PIECE] for first in range(FILLERS_A_PIECE)]
        return _Filled(filled, [self._readers.submit(_run_all, share) for share in shares if share])

    def _is_filled(self) -> bool:
        """Whether the next piece to be loaded is in pinned memory."""
        first = next(iter(self._filling), None)
        return first is not None and first.done() and _are_done(first.result().parts)

    def _load(self, number: int) -> None:
        """Start the copies of a piece, unless they were started before."""
        if number < self._next_to_load:
            return
        self._next_to_load += 1
        with waiting(CALLER, "wait for pinned memory to be filled"):
            filled, parts = _wait(self._filling.popleft())
            _wait_for_all(parts)
        slot = number % SLOTS
        if self._free_slot[slot] is not None:
            self._in.wait_event(self._free_slot[slot])
        columns = carved(self._slots[slot], filled)
        with device_span(HOST_TO_DEVICE, f"piece {number}", self._in, bytes=bytes_of(filled)):
            for target, column in zip(columns, filled, strict=True):
                copy(target.data.ptr, column.ctypes.data, column.nbytes, TO_DEVICE, self._in)
        event = cupy().cuda.Event(block=True, disable_timing=True)
        event.record(self._in)
        self._loaded.append(_Loaded(slot, columns, event))
        if filled is not self._pieces[number]:
            self._copying.append((event, filled))

    def _take(self, nbytes: int) -> NDArray[np.uint8]:
        """Pinned memory for a chunk of a result; waits for the oldest ones when many are on their way."""
        while self._emptying and (self._behind_now + nbytes > self._behind or _are_done(self._emptying[0][0])):
            futures, pinned = self._emptying.popleft()
            with waiting(CALLER, "wait for pinned memory to be emptied"):
                _wait_for_all(futures)
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


def _run_all(calls: Sequence[tuple[int, Callable[[], None]]]) -> None:
    with span(READER, "fill pinned memory", bytes=sum(nbytes for nbytes, _ in calls)):
        for _, call in calls:
            call()


def _consume(event: Any, column: NDArray[Any], consume: Callable[[NDArray[Any]], None]) -> None:
    event.synchronize()
    consume(column)


def _known(result: Any) -> Future[Any]:
    """A future that needs no waiting for."""
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def _are_done(futures: Sequence[Future[None]]) -> bool:
    return all(future.done() for future in futures)


def _wait_for_all(futures: Sequence[Future[None]]) -> None:
    for future in futures:
        _wait(future)


def _wait(future: Future[Any]) -> Any:
    while True:
        try:
            return future.result(timeout=LOOK_UP_SECONDS)
        except TimeoutError:
            if future.done():
                return future.result()
