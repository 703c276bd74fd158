"""The thread pool of all compiled loops, and the division of rows into ranges for it.

``OOCBE_THREADS`` sets the number of threads (default: the cores available to this process). Compiled loops release the
interpreter lock, so threads are enough. A forked child starts its own pool on first use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from threading import Condition, Lock, local
from typing import Any

from oocbe.errors import TimeLimitError, UsageError
from oocbe.model.settings.machine import available_processors
from oocbe.runtime.deadline import Deadline, current
from oocbe.runtime.process_memory import share_arenas
from oocbe.runtime.waiting import wait_for

SMALLEST_SHARE = 1 << 14
"""Minimum rows for another thread: below it the hand-over (some 20 microseconds) costs more than it saves."""

LARGEST_CALL = 1 << 25
"""Maximum rows or joined cells of a call (about 0.1 s); :func:`run_all` checks the deadline between calls."""

_lock = Lock()
_pool: ThreadPoolExecutor | None = None
_pool_threads = 0
_inside = local()


class Sharing:
    """Concurrent threads that each call :func:`run_all` and share the pool's threads.

    If each call were spread over all threads, calls would wait for one another, and the hand-over costs more than small
    calls.
    """

    def __init__(self) -> None:
        self._active = 0
        self._lock = Lock()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Within the block, this thread counts as active."""
        self._count(1)
        before, _inside.sharing = getattr(_inside, "sharing", None), self
        try:
            yield
        finally:
            _inside.sharing = before
            self._count(-1)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Within a block of :meth:`at_work`: this thread's share is available to the others."""
        self._count(-1)
        try:
            yield
        finally:
            self._count(1)

    def _count(self, more: int) -> None:
        with self._lock:
            self._active += more

    def share(self, threads: int) -> int:
        """Share of ``threads`` threads for one active thread."""
        return -(-threads // max(1, self._active))


def resting() -> AbstractContextManager[None]:
    """Within the block, this thread waits for another one, and other active threads get its share."""
    sharing: Sharing | None = getattr(_inside, "sharing", None)
    return nullcontext() if sharing is None else sharing.resting()


def thread_count() -> int:
    """Number of threads: ``OOCBE_THREADS``, or the cores available to this process, or its control group's quota.

    Raises UsageError: ``OOCBE_THREADS`` is not a positive integer.
    """
    text = os.environ.get("OOCBE_THREADS")
    if text is None:
        return available_processors()
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"OOCBE_THREADS must be a positive integer, not {text!r}")
    return int(text)


def threads_at_hand() -> int:
    """Number of concurrent calls that :func:`run_all` would make now: one within the pool, a share beside others."""
    if getattr(_inside, "worker", False):
        return 1
    threads = thread_count()
    sharing: Sharing | None = getattr(_inside, "sharing", None)
    return threads if sharing is None else sharing.share(threads)


def row_ranges(rows: int, piece_rows: int | None = None, pieces_a_thread: int = 1) -> list[tuple[int, int]]:
    """Cut ``range(rows)`` into half-open ranges: of ``piece_rows`` rows if given, else near-equal ones.

    Without ``piece_rows`` no range is below :data:`SMALLEST_SHARE` rows (unless it is the only one). Always at least
    one range, ``(0, 0)`` for no rows, so that a caller's loop body is reached.
    """
    if piece_rows is not None:
        pieces = max(1, -(-rows // max(1, piece_rows)))
    else:
        pieces = max(1, min(thread_count() * pieces_a_thread, rows // SMALLEST_SHARE), rows // LARGEST_CALL)
    return list(pairwise(rows * piece // pieces for piece in range(pieces + 1)))


def tiled_ranges(cells: int, tile: int, runs: int, work: int = 1) -> list[tuple[int, int, int, int]]:
    """Cut ``runs`` runs of ``cells`` cells for the threads: cells ``low`` to ``high`` of runs ``first`` to ``last``.

    If a run has many tiles, ranges are whole tiles of all runs; otherwise whole runs. work : cost of a cell, in rows;
    no range costs less than :data:`SMALLEST_SHARE` rows.
    """
    total = cells * runs * work
    pieces = max(1, min(4 * thread_count(), total // SMALLEST_SHARE), total // LARGEST_CALL)
    if pieces == 1:
        return [(0, cells, 0, runs)]
    tiles = -(-cells // tile)
    if tiles >= pieces:
        cuts = [min(cells, tiles * piece // pieces * tile) for piece in range(pieces + 1)]
        return [(low, high, 0, runs) for low, high in pairwise(cuts)]
    pieces = min(pieces, runs)
    cuts = [runs * piece // pieces for piece in range(pieces + 1)]
    return [(0, cells, first, last) for first, last in pairwise(cuts) if last > first]


def run_all(
    function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], interrupt: Callable[[], None] | None = None
) -> list[Any]:
    """Call ``function(*arguments)`` for each tuple of arguments, spread over the pool; results in their order.

    interrupt : makes running calls give up soon; called if the caller is interrupted. Needed for long calls: without it
        a single call runs in the caller and cannot be interrupted.

    A single call, or all calls with one thread, run in the caller (unless ``interrupt`` is given), as do calls from
    within the pool (a worker that waited for its own pool would deadlock). All calls have ended when this returns or
    raises; the first error (in the order of the calls) is raised. An interrupt of the caller (Ctrl-C), or the deadline
    of the enclosing block, cancels the calls that have not started.

    Raises TimeLimitError: that deadline came before all calls had begun.
    """
    work = list(calls)
    most = threads_at_hand()
    is_small = interrupt is None and (len(work) <= 1 or most == 1)
    deadline = current()
    if is_small or getattr(_inside, "worker", False):
        return [_called(function, arguments, deadline) for arguments in work]
    batch = _Batch(partial(_called, function, deadline=deadline), work)
    try:
        pool = _shared_pool(thread_count())
        # One future a thread, not a call, as each costs 30 microseconds: a sort has 256 calls for its buckets.
        # With the caller's deadline, which also ends a wait for a compilation.
        futures = [pool.submit(copy_context().run, batch.work) for _ in range(min(most, len(work)))]
        wait_for(partial(_all_done, futures), TimeoutError)
    except BaseException:
        if interrupt is not None:
            interrupt()
        batch.stop()
        raise
    return batch.results()


def _called(function: Callable[..., Any], arguments: tuple[Any, ...], deadline: Deadline | None) -> Any:
    """A call's result, after a check of the deadline."""
    if deadline is not None:
        deadline.check()
    return function(*arguments)


class _Batch:
    """Calls of one function, taken in order by several threads. After a stop none starts; running ones are awaited.

    Running threads are counted here and not by their futures: an interrupt may come before the caller has received the
    future of a thread that is already running.
    """

    def __init__(self, function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
        self._function, self._calls = function, calls
        self._results: list[Any] = [None] * len(calls)
        self._errors: dict[int, BaseException] = {}
        self._changed = Condition()
        self._running = self._begun = 0
        self._stopped = False

    def work(self) -> None:
        """Make calls until there are no more, or the batch is stopped."""
        with self._changed:
            self._running += 1
        try:
            while (number := self._next()) is not None:
                try:
                    self._results[number] = self._function(self._calls[number])
                except BaseException as error:
                    self._errors[number] = error
                    with self._changed:
                        self._stopped |= isinstance(error, TimeLimitError)  # it applies to all calls
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _next(self) -> int | None:
        with self._changed:
            if self._stopped or self._begun == len(self._calls):
                return None
            self._begun += 1
            return self._begun - 1

    def results(self) -> list[Any]:
        """Results of the calls; raises the first error, in the order of the calls."""
        if self._errors:
            try:
                raise self._errors[min(self._errors)]
            finally:
                self._errors.clear()  # their frames refer to this batch: a cycle would keep the arrays
        return self._results

    def stop(self) -> None:
        """Start no further call, and wait for running ones: they write into arrays of the caller."""
        with self._changed:
            self._stopped = True
            self._changed.wait_for(lambda: self._running == 0)


def _shared_pool(threads: int) -> ThreadPoolExecutor:
    global _pool, _pool_threads
    with _lock:
        if _pool is None or _pool_threads != threads:
            if _pool is not None:
                _pool.shutdown(wait=False)
            share_arenas()
            _pool = ThreadPoolExecutor(threads, thread_name_prefix="oocbe", initializer=_mark_worker)
            _pool_threads = threads
        return _pool


def _all_done(futures: Sequence[Future[Any]], seconds: float) -> None:
    if wait(futures, timeout=seconds).not_done:
        raise TimeoutError


def _mark_worker() -> None:
    _inside.worker = True


def _forget_pool() -> None:
    """Reset the pool in a forked child, where the parent's threads do not exist."""
    global _pool, _lock
    _pool, _lock = None, Lock()


os.register_at_fork(after_in_child=_forget_pool)
