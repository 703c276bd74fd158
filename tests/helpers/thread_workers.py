"""Threads of this process as workers: segments take every step of workers' without other processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from secrets import token_hex
from threading import current_thread
from typing import TypeVar

from oocbe.execution.cluster.segment_files import working_as
from oocbe.model.results.progress_curve import RowsRead

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@dataclass
class InThreads:
    """Threads of this process as workers.

    Attributes
    ----------
    threads : their number. Others as for :class:`oocbe.execution.cluster.workers.Workers`.
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
        """Equal shares for this thread and all others."""
        return 1 / (self.threads + 1)

    own_share = worker_share

    @property
    def count(self) -> int:
        """Number of threads."""
        return self.threads

    def submit(self, name: str, work: Callable[[Argument], Result], argument: Argument) -> Future[Result]:
        """Submit a function call to a thread."""
        return self._pool.submit(_called, work, argument)

    def check(self) -> None:
        """Do nothing: threads are always available."""


def _called(work: Callable[[Argument], Result], argument: Argument) -> Result:
    """Call the function on a thread, in the role of a worker."""
    with working_as(current_thread().name):
        return work(argument)
