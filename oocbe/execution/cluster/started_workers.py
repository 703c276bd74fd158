"""Base of workers that this program starts itself: a scheduler in this process, started with the first segment.

Most problems dispatch no segment, so nothing is started, and Dask is not imported, before the first one.

Access to a port of a scheduler or worker permits running code there, and other users of this host can access its
loopback interface. So all connections use TLS with a key made for the run, and others are refused. During the run, the
key is in a folder that only this user can read.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self, TypeVar

from oocbe.errors import UnsupportedError
from oocbe.execution.cluster import dask_settings, tls
from oocbe.execution.cluster.dask_workers import DaskWorkers
from oocbe.model.results.rows_read import RowsRead
from oocbe.tables.scratch import ScratchFolder

if TYPE_CHECKING:
    from distributed import Client

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@dataclass(kw_only=True)
class StartedWorkers(ABC):
    """Workers that start with the first segment and end with the block; see
    :class:`oocbe.execution.cluster.workers.Workers`.

    Attributes
    ----------
    memory : limit of a host in bytes; None: derived from each machine.
    readied, rows, read, cluster : as for ``Workers``.
    """

    memory: int | None = None
    readied: set[object] = field(default_factory=set)
    rows: dict[str, int] = field(default_factory=dict)
    read: RowsRead = field(default_factory=RowsRead)
    cluster: str = field(default_factory=lambda: token_hex(4))
    _dask: DaskWorkers | None = field(default=None, init=False, repr=False)
    _stack: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        self._dask = None

    def submit(self, name: str, work: Callable[[Argument], Result], argument: Argument) -> Future[Result]:
        """Have a function called by a worker; see :class:`oocbe.execution.cluster.workers.Workers`."""
        if self._dask is None:
            client = self._start(self._stack)
            self._dask = DaskWorkers(client, self.memory)
            self._stack.callback(self._dask.close)
        return self._dask.submit(name, work, argument)

    def check(self) -> None:
        """Raise ClusterError if the work cannot continue."""
        if self._dask is not None:
            self._dask.check()

    @abstractmethod
    def _start(self, stack: ExitStack) -> Client:
        """Start a scheduler and all workers, which end with the stack; returns a client.

        Raises
        ------
        UnsupportedError : Dask, or another requirement, is not installed. DiskError : its files cannot be written.
        ClusterError : no worker can be started.
        """


@dataclass(frozen=True)
class Started:
    """A scheduler in this process.

    Attributes
    ----------
    address : of the scheduler. client : of it. folder : for files of the run, which only this user can read.
    environment : of its workers, besides this process's own: the paths of their certificates.
    """

    address: str
    client: Client
    folder: Path
    environment: Mapping[str, str]


def started_scheduler(stack: ExitStack, parent: Path, host: Callable[[], str]) -> Started:
    """Start a scheduler in this process, without workers; it ends with the stack.

    Parameters
    ----------
    parent : of the folder. host : returns the address on which it listens.
    """
    try:
        import dask
        from distributed import Client, SpecCluster

        from oocbe.execution.cluster.without_http import Scheduler

        security = tls.security_of_run()
        listens_on = host()
    except ImportError as error:
        raise UnsupportedError(dask_settings.MISSING.format(error=error)) from None
    scratch = ScratchFolder(parent)
    stack.callback(scratch.close, interrupted=True)
    options = {"host": listens_on, "port": 0, "protocol": "tls://", "security": security, "dashboard": False}
    with dask.config.set(dask_settings.SETTINGS | {"temporary-directory": str(scratch.path)}):
        cluster: Any = stack.enter_context(
            SpecCluster(
                scheduler={"cls": Scheduler, "options": options}, security=security, silence_logs=logging.CRITICAL
            )
        )
        client: Any = stack.enter_context(Client(cluster, security=security, set_as_default=False))
    environment = tls.environment_of_workers(security, scratch.path)
    return Started(cluster.scheduler_address, client, scratch.path, environment)
