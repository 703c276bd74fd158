"""Filling of pinned memory with pieces for a device, by a pool of threads.

Columns of any kind: parts of those on disk are read, checked and decoded by the threads. Arrays in main memory are
pinned where they are (:mod:`oocbe.kernels.cuda.transfer.in_place`), and copied only if the system does not pin them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.transfer.columns import Column, carved, room_of
from oocbe.kernels.cuda.transfer.in_place import pinned_in_place, worth_pinning
from oocbe.kernels.cuda.transfer.pinned import pinned_memory
from oocbe.runtime.tracing.recorder import CALLER, READER, span, waiting

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
    """Pieces filled by a pool's threads, or pinned by them where they are.

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
