"""Filling of pinned memory with pieces for a device: by a pool of threads, or by threads in a ring.

A pool handles columns of any kind, parts of which other threads read, check and decode. If all columns are arrays in
host memory, only copies remain, at the speed of the bus or more. Then every call that releases the interpreter and
waits for it again is time without copies. So threads without the interpreter go from part to part of the columns
through a ring of pinned memory, each with a share of every part. The ring is small enough for the processor's caches,
from which the device reads it: neither the copy nor the transfer then takes bandwidth of the main memory
(:mod:`oocbe.kernels.cpu.line_copy`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import InternalError
from oocbe.kernels.cpu.line_copy import copy_past_caches, fill_ring, wait_for_piece
from oocbe.kernels.cpu.native import LINE_BYTES
from oocbe.kernels.cuda.transfer.columns import Column, Columns, bytes_of, carved, is_pinned, room_of
from oocbe.kernels.cuda.transfer.pinned import pinned_memory
from oocbe.runtime.tracing.recorder import CALLER, READER, span, waiting
from oocbe.runtime.waiting import StoppedError

LOOK_UP_SECONDS = 0.2
"""Wait interval of a thread, in seconds: signals are handled between intervals."""

FILLERS_A_PIECE = 8
"""Threads of a pool that fill one piece, so that the first piece is ready sooner; the next are filled concurrently."""

LEAST_PART_BYTES = 4 << 20
"""Minimum size of the parts in which a column in memory is filled, in bytes."""

MOST_COPYING = 4
"""Maximum number of a pool's pieces on the bus or waiting for it: it bounds the memory of faster fillers."""

PART_BYTES = 8 << 20
"""Maximum size of a part of a column in a ring, in bytes."""

RING_PARTS = 6
"""Capacity of a ring, in parts: filled, on the bus, or to be filled again. 48 MiB stay in the caches; with 128 MiB, the
speed of copies to and from the device together fell from 50 to 38 GB/s each way."""


class _Filled(NamedTuple):
    """A piece's columns in pinned memory, and the futures of the threads that fill them."""

    columns: Sequence[Any]
    parts: Sequence[Future[None]]


class PoolFilling:
    """Pieces filled by a pool's threads; columns in pinned memory are used directly.

    pieces : columns of each. threads : of the pool. host_bytes : limit of pinned memory for pieces; None: no limit.
    """

    def __init__(self, pieces: Sequence[Sequence[Column]], threads: int, host_bytes: int | None) -> None:
        self._pieces = pieces
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="oocbe-fill")
        self._ahead = -(-threads // FILLERS_A_PIECE) + 1
        if host_bytes is not None:
            # A piece's pinned memory is free after the next one's copy.
            self._ahead = max(1, min(self._ahead, host_bytes // max(1, largest_piece(pieces)) - 2))
        self._filling: deque[Future[_Filled]] = deque()
        self._copying: deque[tuple[Any, Any]] = deque()  # pinned memory to be returned to its pool after the event
        self._next = 0
        self._is_own = False

    def ahead_of(self, number: int) -> None:
        """Start filling the pieces after this one, as memory permits."""
        while self._copying and self._copying[0][0].done:
            self._copying.popleft()
        if len(self._copying) > MOST_COPYING:
            with waiting(CALLER, "wait for the bus"):
                self._copying[0][0].synchronize()  # its memory is released only afterwards
                self._copying.popleft()
        while self._next < min(len(self._pieces), number + self._ahead):
            columns = self._pieces[self._next]
            if all(map(is_pinned, columns)):
                self._filling.append(_known(_Filled(columns, ())))
            else:
                self._filling.append(self._readers.submit(self._fill, columns))
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
        """Start threads that copy the columns into pinned memory, in parts."""
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


class RingFilling:
    """Parts of arrays, copied by threads around a ring of pinned memory without the interpreter.

    columns : arrays, contiguous each; their parts follow one another (:func:`parts_of`).
    threads : number of copying threads. host_bytes : limit of pinned memory, at least two parts; None: no limit.
    """

    def __init__(self, columns: Columns, threads: int, host_bytes: int | None) -> None:
        self._parts = [part for column in columns for part in parts_of(column)]
        room = max(map(room_of, self._parts), default=0)
        places = min(RING_PARTS, len(self._parts))
        if host_bytes is not None:
            places = max(2, min(places, host_bytes // max(1, room)))
        memory = pinned_memory().take(room * places)
        self._rooms = [memory[place * room : (place + 1) * room] for place in range(places)]
        self._nbytes = bytes_of(columns)
        copies = np.array([[(part.ctypes.data, part.nbytes, 0)] for part in self._parts], dtype=np.int64)
        copies = copies.reshape(-1, 1, 3)
        # One line per thread for its filled parts, one for reusable parts, and one for the stop flag.
        self._state = np.zeros((threads + 2, LINE_BYTES // 8), dtype=np.int64)
        self._filled, self._ring = self._state[:threads, 0], self._state[threads:, 0]
        self._copying: deque[Any] = deque()
        self._next = 0
        self._threads = [
            threading.Thread(
                target=self._fill,
                args=(copies, np.array([memory.ctypes.data, room, places]), number),
                name=f"oocbe-fill-{number}",
                daemon=True,
            )
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads; :meth:`stop` and :meth:`close` end them."""
        for thread in self._threads:
            thread.start()

    def take(self) -> Any:
        """The next part in pinned memory, waited for; StoppedError: the ring stopped; InternalError: a thread ended."""
        while not self._filled.min() > self._next:
            self._free_places()
            if self._ring[1]:
                raise StoppedError
            if self._next >= self._ring[0] + len(self._rooms):
                self._copying.popleft().synchronize()
                self._ring[0] += 1
            elif any(not thread.is_alive() and self._filled[n] <= self._next for n, thread in enumerate(self._threads)):
                raise InternalError(f"a thread that fills pinned memory ended before part {self._next}")
            else:
                wait_for_piece(self._state, self._next)  # polls of the interpreter would delay the caller's thread
        part = carved(self._rooms[self._next % len(self._rooms)], [self._parts[self._next]])[0]
        self._next += 1
        return part

    def leaves(self, event: Any) -> None:
        """Release the memory of the part taken last for reuse after an event."""
        self._copying.append(event)
        self._free_places()

    def _free_places(self) -> None:
        while self._copying and self._copying[0].done:
            self._copying.popleft()
            self._ring[0] += 1

    def let_go(self) -> None:
        """Release the memory, after all copies."""
        self._copying.clear()
        self._rooms.clear()

    def stop(self) -> None:
        """End all threads after their current part, and a wait for them."""
        self._ring[1] = 1

    def close(self) -> None:
        """End all threads, and wait for them."""
        self.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _fill(self, copies: NDArray[np.int64], ring: NDArray[np.int64], number: int) -> None:
        with span(READER, "fill pinned memory", bytes=self._nbytes // len(self._threads)):
            fill_ring(copies, ring, self._state, number)


def parts_of(column: NDArray[Any]) -> list[NDArray[Any]]:
    """Parts of a column that go through a ring one by one; none of an empty column."""
    step = max(1, PART_BYTES // column.itemsize)
    return [column[low : low + step] for low in range(0, len(column), step)]


def has_ring(pieces: Sequence[Sequence[Column]]) -> bool:
    """Whether pieces are copied through a ring: all columns are arrays in memory that is not pinned."""
    columns = [column for piece in pieces for column in piece]
    return bool(pieces) and all(isinstance(column, np.ndarray) and not is_pinned(column) for column in columns)


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


def _known(result: Any) -> Future[Any]:
    """A completed future."""
    future: Future[Any] = Future()
    future.set_result(result)
    return future
