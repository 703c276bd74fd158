"""Pieces of work on streams: concurrent pieces, results in order, and a stop at the first error.

Piece i runs on stream ``i mod streams`` (Bistaffa, Bombieri and Farinelli 2016, figures 9 to 11), a thread that reads
and decodes the piece's rows, calls the kernels and passes results on, one at a time, through a queue of length one. The
caller takes them in the order of the pieces and encodes and writes them concurrently: reading, computing and writing of
different pieces overlap, and at most ``streams`` pieces, with one waiting result each, are in memory.

A piece receives its stream, so that a stream's resources (buffers, a CUDA stream with its events) are used by one piece
at a time: the next piece of a stream starts only after all results of the previous one were taken. For failed
allocations of a piece see :mod:`oocbe.runtime.pieces`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from queue import Empty, Full, Queue
from typing import Generic, TypeAlias, TypeVar

from oocbe.kernels.cpu.threads import Sharing, resting
from oocbe.runtime.process_memory import share_arenas
from oocbe.runtime.tracing.recorder import CALLER, STREAM, phase, rows_of, waiting, working_for
from oocbe.runtime.waiting import StoppedError, wait_for

Item = TypeVar("Item")

StreamedPiece: TypeAlias = Callable[[int], Iterator[Item]]
"""A piece of work: receives its stream and yields its results in order, on a thread of its own.

A result must not use buffers of the next piece on the same stream, unless it is consumed before the next result is
requested.
"""


class _End:
    """Marks the end of a piece's results."""


class _Lane(Generic[Item]):
    """One piece in progress on its stream."""

    def __init__(
        self, piece: StreamedPiece[Item], stream: int, row: int, stop: threading.Event, sharing: Sharing
    ) -> None:
        self.piece, self.stream, self._row, self._stop, self._sharing = piece, stream, row, stop, sharing
        self._queue: Queue[Item | _End] = Queue(maxsize=1)
        self.future: Future[None] | None = None

    def run(self) -> None:
        """On the stream's thread: compute results and pass them on."""
        try:
            with working_for(STREAM, self._row), self._sharing.at_work():
                results, end = self.piece(self.stream), _End()
                item: Item | _End | None = None
                while item is not end:
                    with phase("compute"):
                        item = next(results, end)
                    with phase("wait to hand over", is_wait=True), resting():
                        wait_for(partial(self._queue.put, item, True), Full, self._check_stopped)
        except StoppedError:
            pass

    def _check_stopped(self) -> None:
        if self._stop.is_set():
            raise StoppedError

    def results(self) -> Iterator[Item]:
        """On the caller's thread: results as they arrive; raises the piece's error."""
        while True:
            with waiting(CALLER, "wait for a result"), resting():
                item = wait_for(partial(self._queue.get, True), Empty, self._check_failed)
            if isinstance(item, _End):
                return
            yield item

    def _check_failed(self) -> None:
        assert self.future is not None
        if self.future.done() and self._queue.empty():
            self.future.result()  # raises what the piece raised
            raise RuntimeError("a piece ended without its end mark")


def run_in_order(pieces: Iterable[StreamedPiece[Item]], streams: int) -> Generator[Item, None, None]:
    """Compute pieces on ``streams`` threads and yield their results, piece after piece.

    Pieces are drawn from their iterator on the caller's thread whenever a stream is free. When this generator is
    closed, or an exception passes through it (a piece's error, Ctrl-C), no further piece starts, and it returns only
    after all threads have ended.
    """
    stop, sharing = threading.Event(), Sharing()
    lanes: deque[_Lane[Item]] = deque()
    share_arenas()
    pool = ThreadPoolExecutor(streams, thread_name_prefix="oocbe-stream")
    # Pieces may run streams of their own: those are drawn below.
    with rows_of(STREAM, streams) as rows:
        try:
            for number, piece in enumerate(pieces):
                lane = _Lane(piece, number % streams, rows[number % streams], stop, sharing)
                lane.future = pool.submit(copy_context().run, lane.run)  # the deadline, too
                lanes.append(lane)
                del lane, piece  # what a piece holds goes when its results are taken
                if len(lanes) == streams:
                    yield from lanes[0].results()
                    lanes.popleft()
            while lanes:
                yield from lanes[0].results()
                lanes.popleft()
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            for left in lanes:
                left.future = None  # its error has frames that refer to it: a cycle would keep rows and scratch files
