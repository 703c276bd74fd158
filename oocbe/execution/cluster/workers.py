"""Who does segments of work: one interface, the current workers of a block, and threads of this process as workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from secrets import token_hex
from threading import current_thread
from typing import Any, Protocol, TypeVar

from oocbe.errors import DiskError
from oocbe.execution.cluster.ownership import working_as
from oocbe.model.results.rows_read import RowsRead

Told = TypeVar("Told")
Result = TypeVar("Result")


class LostWorkError(Exception):
    """Work whose worker ended before its result was here: it is to be done again."""


class DiskShareError(DiskError):
    """A segment would write more than its share of what all of them may: it is to be done again when it is alone."""


class Workers(Protocol):
    """Processes, or threads, that work for this one.

    Attributes
    ----------
    memory : limit of a host in bytes; None: what follows from each machine.
    worker_share : of the memory limit of a host that each of them may take there. own_share : that this process may.
    readied : what has been compiled for them, by names of those who ask. rows : row of each in a trace.
    read : rows that they have read of stored tables, and how many of these another of them had written.
    """

    memory: int | None
    readied: set[object]
    rows: dict[str, int]
    read: RowsRead

    @property
    def worker_share(self) -> float:
        """See above."""

    @property
    def own_share(self) -> float:
        """See above."""

    @property
    def count(self) -> int:
        """How many are there now."""

    @property
    def cluster(self) -> str:
        """Name of all of them together, without spaces: no others have it, nor those that another run starts."""

    def submit(self, name: str, work: Callable[[Told], Result], told: Told) -> Future[Result]:
        """Have a function called by one of them, one at a time each.

        Parameters
        ----------
        name : of the work, for people. work : a function of a module. told : all that it needs; both are sent.

        The future's error is :class:`LostWorkError` where the worker was lost.
        """

    def check(self) -> None:
        """Raise :class:`oocbe.errors.ClusterError` where the work cannot go on."""


_current: ContextVar[Workers | None] = ContextVar("oocbe-workers", default=None)


def current() -> Workers | None:
    """The workers of the innermost block of :func:`use_workers`; None where this process works alone."""
    return _current.get()


def read_by_workers() -> RowsRead | None:
    """What the current workers have read since they are there; None where this process works alone."""
    workers = _current.get()
    return None if workers is None else workers.read


def read_since(before: RowsRead | None) -> RowsRead | None:
    """What the current workers have read since :func:`read_by_workers` said so; None where this process works alone."""
    now = read_by_workers()
    return now if now is None or before is None else now.without(before)


@contextmanager
def use_workers(workers: Workers | None) -> Iterator[None]:
    """Within the block, large buckets are cut into segments for these workers; None: this process works alone."""
    token = _current.set(workers)
    try:
        yield
    finally:
        _current.reset(token)


@dataclass
class InThreads:
    """Threads of this process as workers: for tests, and for work that does not use threads itself.

    Attributes
    ----------
    threads : how many. others : as for :class:`Workers`.
    """

    threads: int
    memory: int | None = None
    readied: set[object] = field(default_factory=set)
    rows: dict[str, int] = field(default_factory=dict)
    read: RowsRead = field(default_factory=RowsRead)
    cluster: str = field(default_factory=lambda: token_hex(4))
    _pool: ThreadPoolExecutor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="oocbe-worker")

    def __enter__(self) -> InThreads:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def worker_share(self) -> float:
        """The same for this thread and all others."""
        return 1 / (self.threads + 1)

    own_share = worker_share

    @property
    def count(self) -> int:
        """How many threads."""
        return self.threads

    def submit(self, name: str, work: Callable[[Told], Result], told: Told) -> Future[Result]:
        """Have a function called on a thread; see :class:`Workers`."""
        return self._pool.submit(_called, work, told)

    def check(self) -> None:
        """Threads are always there."""


def _called(work: Callable[[Told], Result], told: Told) -> Result:
    """On a thread: call the function, as the worker that this thread is."""
    with working_as(current_thread().name):
        return work(told)


def cancel(futures: list[Future[Any]]) -> None:
    """Have work that has not begun not begin."""
    for future in futures:
        future.cancel()
