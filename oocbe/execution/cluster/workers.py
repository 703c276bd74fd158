"""Workers that compute segments: the interface, and the current workers of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, TypeVar

from oocbe.errors import DiskError
from oocbe.model.results.progress_curve import RowsRead

if TYPE_CHECKING:
    from concurrent.futures import Future

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class LostWorkError(Exception):
    """The worker ended before its result arrived: the work must be repeated."""


class DiskShareError(DiskError):
    """A segment would write more than its share of the disk budget: it must be repeated alone."""


class Workers(Protocol):
    """Processes, or threads, that work for this one.

    memory : limit of a host in bytes; None: derived from each machine.
    worker_share : each worker's share of its host's memory limit. own_share : that of this process.
    readied : kinds of work whose loops are compiled, by names of the callers. rows : row of each worker in a trace.
    read : rows that they have read from stored tables, and those of them written by another worker.
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
        """Current number of workers."""

    @property
    def cluster(self) -> str:
        """Unique name of these workers as a group, without spaces; each run's workers have another one."""

    def submit(self, name: str, work: Callable[[Argument], Result], argument: Argument) -> Future[Result]:
        """Submit a function call to one of them; each worker runs one at a time.

        name : of the work, for display. work : a function of a module. argument : its argument; both are sent.
        The future's error is :class:`LostWorkError` if the worker was lost.
        """

    def check(self) -> None:
        """Raise :class:`oocbe.errors.ClusterError` if the work cannot continue."""


_current: ContextVar[Workers | None] = ContextVar("oocbe-workers", default=None)


def current() -> Workers | None:
    """The workers of the innermost block of :func:`use_workers`; None without workers."""
    return _current.get()


def read_by_workers() -> RowsRead | None:
    """Total reads of the current workers; None without workers."""
    workers = _current.get()
    return None if workers is None else workers.read


def read_since(before: RowsRead | None) -> RowsRead | None:
    """Reads of the current workers since an earlier :func:`read_by_workers`; None without workers."""
    now = read_by_workers()
    return now if now is None or before is None else now.without(before)


@contextmanager
def use_workers(workers: Workers | None) -> Iterator[None]:
    """Within the block, large buckets are cut into segments for these workers; None: no workers."""
    token = _current.set(workers)
    try:
        yield
    finally:
        _current.reset(token)
