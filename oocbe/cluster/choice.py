"""The workers that options ask for, for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oocbe.cluster.local import LocalWorkers
from oocbe.cluster.workers import using
from oocbe.errors import ClusterError, UnsupportedError, UsageError
from oocbe.kernels.cpu.threads import thread_count
from oocbe.settings.option_values import WORKERS

if TYPE_CHECKING:
    from distributed import Client

    from oocbe.settings.options import SolveOptions

CONNECT_SECONDS = 30.0
"""So long a scheduler may take to answer."""


@contextmanager
def working(options: SolveOptions, client: Client | None = None) -> Iterator[None]:
    """Within the block, large buckets are shared out to the workers asked for; where none are, nothing changes.

    client : of a Dask cluster, which stays open; it comes before what the options say.

    Raises
    ------
    UsageError : both workers of this host and a cluster are asked for, or more GPUs than there are.
    UnsupportedError : Dask is not installed. ClusterError : the scheduler does not answer.
    """
    if client is not None:
        with _of_client(client, options.memory):
            yield
    elif options.cluster is not None:
        if options.workers is not None:
            raise UsageError(f"workers {options.workers} are of this host, and cluster {options.cluster} has its own")
        with _connected(options.cluster) as made, _of_client(made, options.memory):
            yield
    elif options.workers is not None:
        with local_workers(options.workers, options.memory) as workers, using(workers):
            yield
    else:
        yield


def local_workers(text: str, memory: int | None) -> LocalWorkers:
    """Workers of this host, none of which is started yet; errors as for :func:`working`."""
    found = WORKERS.fullmatch(text)
    assert found is not None
    kind, count = found[1] or found[3], int(found[2] or 0)
    if kind != "gpus":
        if kind is None and count > thread_count():
            raise UsageError(
                f"workers: {count} processes for {thread_count()} threads; ask for cpus:{count} if you mean that"
            )
        return LocalWorkers(count, memory=memory)
    from oocbe.kernels.cuda.device import cupy

    there = int(cupy().cuda.runtime.getDeviceCount())
    if count > there:
        raise UsageError(f"workers: gpus:{count} are asked for, and this host has {there}")
    devices = tuple(range(count or there))
    return LocalWorkers(len(devices), devices, memory)


@contextmanager
def _of_client(client: Client, memory: int | None) -> Iterator[None]:
    from oocbe.cluster.dask_workers import DaskWorkers

    workers = DaskWorkers(client, memory)
    try:
        with using(workers):
            yield
    finally:
        workers.close()


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at an address; with TLS, as Dask's configuration says."""
    from oocbe.cluster.dask_settings import MISSING

    try:
        from distributed import Client, Security
    except ImportError as error:
        raise UnsupportedError(MISSING.format(error=error)) from None
    try:
        security = Security() if address.startswith("tls://") else None
        made = Client(address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise ClusterError(f"no Dask scheduler answers at {address}: {error}") from None
    with made:
        yield made
