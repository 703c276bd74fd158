"""The workers that options ask for, for as long as a block lasts."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from oocbe.errors import ClusterError, UnsupportedError, UsageError
from oocbe.execution.cluster.local import LocalWorkers
from oocbe.execution.cluster.slurm import SlurmWorkers
from oocbe.execution.cluster.slurm_settings import SlurmSettings
from oocbe.execution.cluster.workers import use_workers
from oocbe.kernels.cpu.threads import thread_count
from oocbe.model.settings.option_values import SLURM, WORKERS

if TYPE_CHECKING:
    from distributed import Client

    from oocbe.model.settings.options import SolveOptions

CONNECT_SECONDS = 10.0
"""So long a scheduler may take to answer; one that was killed is waited for as long, as its address says nothing."""


def use_workers_of(options: SolveOptions, client: Client | None = None) -> AbstractContextManager[None]:
    """:func:`use_cluster` what the options of a solve ask for."""
    return use_cluster(options.workers, options.cluster, options.memory, client)


@contextmanager
def use_cluster(
    workers: str | None, cluster: str | None, memory: int | None, client: Client | None = None
) -> Iterator[None]:
    """Within the block, large buckets and operations are shared out to workers; where none are asked for, as outside.

    Parameters
    ----------
    workers, cluster : as ``--workers`` and ``--cluster`` say. memory : limit of a host, in bytes.
    client : of a Dask cluster, which stays open; it comes before the others.

    Raises
    ------
    UsageError : both workers of this host and a cluster are asked for, or more GPUs than there are, or can be used.
    UnsupportedError : Dask is not installed. ClusterError : the scheduler does not answer.
    """
    if client is not None:
        with _of_client(client, memory):
            yield
    elif cluster is not None and cluster.startswith(SLURM):
        with slurm_workers(Path(cluster.removeprefix(SLURM)), workers, memory) as jobs, use_workers(jobs):
            yield
    elif cluster is not None:
        if workers is not None:
            raise UsageError(f"workers {workers} are of this host, and cluster {cluster} has its own")
        with _connected(cluster) as made, _of_client(made, memory):
            yield
    elif workers is not None:
        with local_workers(workers, memory) as local, use_workers(local):
            yield
    else:
        yield


def local_workers(text: str, memory: int | None) -> LocalWorkers:
    """Workers of this host, none of which is started yet; errors as for :func:`use_workers_of`."""
    found = WORKERS.fullmatch(text)
    assert found is not None
    kind, count = found[1] or found[3], int(found[2] or 0)
    if kind != "gpus":
        if kind is None and count > thread_count():
            is_job = "SLURM_JOB_ID" in os.environ
            of_job = " (the task of a SLURM job has as many as --cpus-per-task says)" if is_job else ""
            raise UsageError(
                f"workers: {count} processes for {thread_count()} threads; ask for cpus:{count} if you mean that"
                + of_job
            )
        return LocalWorkers(count, memory=memory)
    from oocbe.kernels.cuda.device import cupy, why_unavailable

    reason = why_unavailable()
    if reason is not None:
        raise UsageError(f"workers: {text} are asked for, and no GPU can be used: {reason}; ask for cpus:N without one")
    there = int(cupy().cuda.runtime.getDeviceCount())
    if count > there:
        raise UsageError(f"workers: gpus:{count} are asked for, and this host has {there}")
    devices = tuple(range(count or there))
    return LocalWorkers(len(devices), devices, memory=memory)


def slurm_workers(file: Path, text: str | None, memory: int | None) -> SlurmWorkers:
    """Workers in SLURM jobs, none of which is submitted yet.

    text : how many, as ``--workers`` says.

    Raises
    ------
    UsageError : no number of workers, or settings that are none.
    """
    found = WORKERS.fullmatch(text or "")
    count = int(found[2] or 0) if found is not None else 0
    if found is None or not count or (found[1] or found[3]) == "gpus":
        raise UsageError(f"cluster slurm:{file}: say how many workers there are to be, by --workers 8 or so")
    return SlurmWorkers(SlurmSettings.read(file), count, memory=memory)


@contextmanager
def _of_client(client: Client, memory: int | None) -> Iterator[None]:
    from oocbe.execution.cluster.dask_workers import DaskWorkers

    workers = DaskWorkers(client, memory)
    try:
        with use_workers(workers):
            yield
    finally:
        workers.close()


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at an address; with TLS, as Dask's configuration says."""
    from oocbe.execution.cluster.dask_settings import MISSING, QUIET

    try:
        from distributed import Client, Security
    except ImportError as error:
        raise UnsupportedError(MISSING.format(error=error)) from None
    try:
        security = Security() if address.startswith("tls://") else None
        made = Client(address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise ClusterError(f"no Dask scheduler answers at {address}: {error}") from None
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(QUIET)  # a scheduler that is gone is told of by our own messages
    try:
        with made:
            yield made
    finally:
        logger.setLevel(level)
