"""What workers that this program starts itself have alike: a scheduler in this process, begun with the first segment.

Most problems never give a segment away, so nothing is started, and nothing of Dask imported, before one is.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self, TypeVar

from oocbe.cluster import dask_settings
from oocbe.cluster.dask_workers import DaskWorkers
from oocbe.errors import UnsupportedError
from oocbe.results.rows_read import RowsRead
from oocbe.tables.scratch import ScratchFolder

if TYPE_CHECKING:
    from distributed import Client, Security

Told = TypeVar("Told")
Result = TypeVar("Result")


@dataclass(kw_only=True)
class StartedWorkers(ABC):
    """Workers that begin with the first segment and end with the block; see :class:`oocbe.cluster.workers.Workers`.

    Attributes
    ----------
    memory : limit of a host in bytes; None: what follows from each machine.
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

    def submit(self, name: str, work: Callable[[Told], Result], told: Told) -> Future[Result]:
        """Have a function called by a worker; see :class:`oocbe.cluster.workers.Workers`."""
        if self._dask is None:
            client = self._start(self._stack)
            self._dask = DaskWorkers(client, self.memory)
            self._stack.callback(self._dask.close)
        return self._dask.submit(name, work, told)

    def check(self) -> None:
        """Raise ClusterError where the work cannot go on."""
        if self._dask is not None:
            self._dask.check()

    @abstractmethod
    def _start(self, stack: ExitStack) -> Client:
        """Start a scheduler and all workers, which end with the stack; a client.

        Raises
        ------
        UnsupportedError : Dask, or what else it takes, is not installed. DiskError : no place for its files.
        ClusterError : no worker can be started.
        """


def started_scheduler(
    stack: ExitStack, parent: Path, host: str, security: Security | None = None
) -> tuple[str, Client, Path]:
    """Start a scheduler in this process, without workers: its address, a client, and a folder, which end with a stack.

    Parameters
    ----------
    parent : of the folder. host : address that it listens on. security : certificates, for a host that others reach.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise missing(error) from None
    scratch = ScratchFolder(parent)
    stack.callback(scratch.close, interrupted=True)
    more: dict[str, Any] = {"dashboard_address": f"{host}:0"}
    if security is not None:  # nor does anything listen there that is not encrypted
        more = {"dashboard_address": None, "protocol": "tls://", "security": security}
    with dask.config.set(dask_settings.SETTINGS | {"temporary-directory": str(scratch.path)}):
        cluster: Any = stack.enter_context(LocalCluster(n_workers=0, host=host, silence_logs=logging.CRITICAL, **more))
        client: Any = stack.enter_context(Client(cluster, security=security, set_as_default=False))
    return cluster.scheduler_address, client, scratch.path


def missing(error: ImportError) -> UnsupportedError:
    """The error where Dask, or what it needs, is not installed."""
    return UnsupportedError(dask_settings.MISSING.format(error=error))
