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
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from itertools import accumulate, takewhile
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.spans import device_span
from oocbe.kernels.cuda.transfer.memory import held_by
from oocbe.kernels.cuda.transfer.pinned import (
    ALIGNMENT,
    TO_DEVICE,
    TO_HOST,
    Column,
    Columns,
    bytes_of,
    carved,
    copy,
    is_pinned,
    pinned_in_place,
    pinned_memory,
    room_of,
    worth_pinning,
)
from oocbe.runtime.tracing.recorder import CALLER, DEVICE_TO_HOST, HOST_TO_DEVICE, READER, STREAM, WRITER, span, waiting

LOOK_UP_SECONDS = 0.2
"""Wait interval of a thread, in seconds: signals are handled between intervals."""

FILLERS_A_PIECE = 8
"""Threads of a pool that fill one piece, so that the first piece is ready sooner; the next are filled concurrently."""

LEAST_PART_BYTES = 4 << 20
"""Minimum size of the parts in which a column in memory is filled, in bytes."""

MOST_COPYING = 4
"""Maximum number of a pool's pieces on the bus or waiting for it: it bounds the memory of faster fillers."""


class _Filled(NamedTuple):
    """A piece's columns in pinned memory, and the futures of the threads that fill them."""

    columns: Sequence[Any]
    parts: Sequence[Future[None]]


class PoolFilling:
    """Pieces filled by a pool's threads, which read, check and decode columns on disk, and pin columns in memory where
    they are, or copy them if the system does not pin them.

    pieces : columns of each. threads : of the pool. host_bytes : limit of pinned memory for pieces; None: no limit.
    """

    def __init__(self, pieces: Sequence[Sequence[Column]], threads: int, host_bytes: int | None) -> None:
        self._pieces = pieces
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="oocbe-fill")
        self._device = cupy().cuda.Device()
        self._ahead = -(-threads // FILLERS_A_PIECE) + 1
        if host_bytes is not None:
            # A piece's pinned memory is free after the next one's copy.
            self._ahead = max(1, min(self._ahead, host_bytes // max(1, largest_piece(pieces)) - 2))
        self._filling: deque[Future[_Filled]] = deque()
        self._copying: deque[tuple[Any, Any]] = deque()  # pinned memory to be returned to its pool after the event
        self._next = 0
        self._is_own = False
        arrays = (column for piece in pieces for column in piece if isinstance(column, np.ndarray))
        self._worth = worth_pinning(arrays)

    def ahead_of(self, number: int) -> None:
        """Start filling the pieces after this one, as memory permits."""
        while self._copying and self._copying[0][0].done:
            self._copying.popleft()
        if len(self._copying) > MOST_COPYING:
            with waiting(CALLER, "wait for the bus"):
                self._copying[0][0].synchronize()  # its memory is released only afterwards
                self._copying.popleft()
        while self._next < min(len(self._pieces), number + self._ahead):
            self._filling.append(self._readers.submit(self._fill, self._pieces[self._next]))
            self._next += 1

    def is_next_filled(self) -> bool:
        """Whether :meth:`take` would return without waiting."""
        first = next(iter(self._filling), None)
        return first is not None and first.done() and are_done(first.result().parts)

    def take(self) -> Sequence[Any]:
        """The next piece's columns in pinned memory; waits for them, and raises the errors of the filling threads."""
        filled: _Filled = wait(self._filling.popleft())
        wait_for_all(filled.parts)
        self._is_own = bool(filled.parts)
        return filled.columns

    def leaves(self, filled: Sequence[Any], event: Any) -> None:
        """Release a piece's memory for reuse after an event."""
        if self._is_own:  # and not the caller's pinned memory
            self._copying.append((event, filled))

    def let_go(self) -> None:
        """Release the memory of all pieces, after all copies."""
        self._copying.clear()

    def close(self) -> None:
        """Wait for all threads."""
        self._readers.shutdown(wait=True, cancel_futures=True)

    def _fill(self, columns: Sequence[Column]) -> _Filled:
        """Pin arrays where they are, and start threads that copy other columns into pinned memory, in parts."""
        with self._device:
            is_there = [isinstance(c, np.ndarray) and pinned_in_place(c, self._worth) for c in columns]
            others = [column for column, is_pinned in zip(columns, is_there, strict=True) if not is_pinned]
            made = carved(pinned_memory().take(sum(map(room_of, others))), others) if others else []
        rest = iter(made)
        filled = [column if is_pinned else next(rest) for column, is_pinned in zip(columns, is_there, strict=True)]
        calls: list[tuple[int, Callable[[], None]]] = []
        for target, column in zip(made, others, strict=True):
            if isinstance(column, np.ndarray):
                step = max(LEAST_PART_BYTES, -(-column.nbytes // FILLERS_A_PIECE)) // column.itemsize
                parts = [slice(low, low + step) for low in range(0, len(column), step)]
                calls += [(target[p].nbytes, partial(np.copyto, target[p], column[p])) for p in parts]
            else:
                calls += column.reads_into(target)
        shares = [calls[first::FILLERS_A_PIECE] for first in range(FILLERS_A_PIECE)]
        return _Filled(filled, [self._readers.submit(_run_all, share) for share in shares if share])


def largest_piece(pieces: Sequence[Sequence[Column]]) -> int:
    """Bytes of the largest piece."""
    return max((sum(map(room_of, columns)) for columns in pieces), default=0)


def wait(future: Future[Any]) -> Any:
    """A future's result; signals are handled during the wait."""
    while True:
        try:
            return future.result(timeout=LOOK_UP_SECONDS)
        except TimeoutError:
            if future.done():
                return future.result()


def wait_for_all(futures: Sequence[Future[None]]) -> None:
    """Wait until all are done; raises the first one's error."""
    for future in futures:
        wait(future)


def are_done(futures: Sequence[Future[None]]) -> bool:
    """Whether all are done."""
    return all(future.done() for future in futures)


def _run_all(calls: Sequence[tuple[int, Callable[[], None]]]) -> None:
    with span(READER, "fill pinned memory", bytes=sum(nbytes for nbytes, _ in calls)):
        for _, call in calls:
            call()


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
"""Size of result chunks, in bytes a column: several threads empty one result; one ring of pinned chunks serves all."""

SLOTS = 2
"""Pieces in flight at a time: one is copied while the other is computed."""

RESULTS = 2
"""A piece is computed after the result of the piece so many before it has left the device. Where the bus is slower than
the kernels, results would otherwise fill its memory, and each failed allocation takes some 40 ms."""

SHARE_BEHIND = 0.5
"""Share of the pinned memory for results."""

RING_BYTES = 4 << 20
"""Allocation unit of pinned memory for results, in bytes: makes chunks reusable."""


_idle_streams: defaultdict[int, deque[tuple[Any, Any, Any]]] = defaultdict(deque)
"""Of each device, the streams of conveyors that have ended: CuPy's pool keeps freed memory for the stream that used it,
so that new streams would take their memory from the driver again."""


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

    pieces : columns of each piece, (rows,) each and contiguous, in host memory or to be read into it.
    host_bytes : limit of pinned memory, except for the needs of a single piece; None: no limit.
    sharing : number of conveyors that run at the same time, each for a GPU; they share threads and pinned memory.
    beside : all conveyors with results in the same targets; this one is added, the caller removes it. None: none.
    device_bytes : device memory that a piece takes, with its inputs and the next one's; 0: unknown.
    stream : of the kernels. is_shared : whether other conveyors run at the same time.
    """

    def __init__(
        self,
        pieces: Sequence[Sequence[Column]],
        host_bytes: int | None = None,
        sharing: int = 1,
        beside: list[Conveyor] | None = None,
        device_bytes: int = 0,
    ) -> None:
        module = cupy()
        self._pieces, self.is_shared = pieces, sharing > 1
        host_bytes = None if host_bytes is None else host_bytes // sharing
        self._idle = _idle_streams[module.cuda.runtime.getDevice()]
        try:
            streams = self._idle.pop()  # another thread may have taken the last ones
        except IndexError:
            streams = tuple(module.cuda.Stream(non_blocking=True) for _ in range(3))
        self._in, self._out, self.stream = self._streams = streams
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
            # The pool cuts the arrays of all pieces from one block. It would otherwise take blocks from the driver, and
            # at its limit return those of unsuitable sizes for each piece, in some 40 ms.
            with suppress(module.cuda.memory.OutOfMemoryError):
                module.empty(device_bytes, dtype=np.uint8)
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
        self._sent: deque[Any] = deque()
        self._loaded: deque[_Loaded] = deque()
        room = None if host_bytes is None else int(host_bytes * (1 - SHARE_BEHIND))
        self._filling = PoolFilling(pieces, fillers, room)  # last, as its threads may start immediately
        held_by(self, is_leaving=True)
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
            ends.callback(self._idle.append, self._streams)
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
            if len(self._sent) == RESULTS:
                with waiting(CALLER, "wait for results"):
                    self._sent.popleft().synchronize()
                self._release()
            self.stream.wait_event(loaded.event)
            with span(CALLER, f"queue piece {number}"), device_span(STREAM, f"piece {number}", self.stream):
                compute(number, loaded.columns)
            done = cupy().cuda.Event(disable_timing=True)
            done.record(self.stream)
            self._free_slot[loaded.slot] = done
            self._sent.append(_event(self._out))

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
        self._release()

    def _release(self) -> None:
        """Release arrays on the device whose copies are done."""
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

    def free_device_memory(self) -> bool:
        """Wait until no result is being copied and the device memory of results is free; returns whether any was."""
        any_left = bool(self._leaving)
        with waiting(CALLER, "wait for results"):
            while self._leaving:
                self._leaving[0][0].synchronize()  # its arrays are released only afterwards
                self._leaving.popleft()
        return any_left

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


LARGE_BYTES = 1 << 25
"""Minimum total size of arrays, in bytes, for a copy by several threads."""

PINNED_BYTES = 1 << 29
"""Limit of pinned memory, in bytes, half of it for arrays in flight: seven chunks at a time."""


def bring_home(arrays: Sequence[Any]) -> list[NDArray[Any]]:
    """Host copies, in C order, of device arrays (items,) or (rows, items); waits for kernels that write them.

    Large arrays are copied by a conveyor, as the driver copies into fresh pageable memory at 2 GB/s.
    """
    found = [np.empty(array.shape, dtype=array.dtype) for array in arrays]
    pairs = [pair for array, copy in zip(arrays, found, strict=True) for pair in _stretches(array, copy)]
    nbytes = sum(array.nbytes for array in arrays)
    if nbytes >= LARGE_BYTES and all(source.flags.c_contiguous for source, _ in pairs):
        try:
            _through_pinned_memory(pairs)
        except MemoryError:
            pass  # no pinned memory: the driver copies without it
        else:
            return found
    with device_span(DEVICE_TO_HOST, "download", bytes=nbytes):
        for source, row in pairs:
            cupy().asnumpy(source, out=row)
    return found


def _through_pinned_memory(pairs: Sequence[tuple[Any, NDArray[Any]]]) -> None:
    cupy().cuda.get_current_stream().synchronize()
    with Conveyor([], PINNED_BYTES) as conveyor:
        for source, row in pairs:
            conveyor.bring_back([source], [row])


def _stretches(array: Any, copy: NDArray[Any]) -> list[tuple[Any, NDArray[Any]]]:
    """Pairs of source and target of single copies: a contiguous array as a whole, others row by row.

    Rows of a part of a table are not adjacent, and there may be no memory for a contiguous copy.
    """
    if array.ndim == 1 or array.flags.c_contiguous:
        return [(array.reshape(-1), copy.reshape(-1))]
    return list(zip(array, copy, strict=True))
