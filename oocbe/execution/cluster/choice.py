"""The workers requested by options, for the duration of a block."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from oocbe.errors import ClusterError, UnsupportedError, UsageError
from oocbe.execution.cluster.dask_workers import MISSING, QUIET, DaskWorkers
from oocbe.execution.cluster.started_workers import LocalWorkers, SlurmSettings, SlurmWorkers
from oocbe.execution.cluster.workers import use_workers
from oocbe.kernels.cpu.threads import thread_count
from oocbe.model.settings.option_values import SLURM, WORKERS

if TYPE_CHECKING:
    from distributed import Client, Security

CONNECT_SECONDS = 10.0
"""Timeout of a connection to a scheduler, in seconds. It applies to a killed scheduler as well, as its address gives
no error."""


@contextmanager
def use_cluster(
    workers: str | None, cluster: str | None, memory: int | None, client: Client | None = None
) -> Iterator[None]:
    """Within the block, workers share large buckets and operations; if none are requested, nothing changes.

    workers, cluster : as for ``--workers`` and ``--cluster``. memory : limit of a host, in bytes.
    client : of a Dask cluster, which stays open; it takes precedence over the others.
    Raises UsageError: both workers of this host and a cluster are requested, or more GPUs than are present or usable;
    UnsupportedError: Dask is not installed; ClusterError: the scheduler does not answer.
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
    """Workers of this host, not started yet; errors as for :func:`use_cluster`."""
    found = WORKERS.fullmatch(text)
    assert found is not None
    kind, count = found[1] or found[3], int(found[2] or 0)
    if kind != "gpus":
        if kind is None and count > thread_count():
            is_job = "SLURM_JOB_ID" in os.environ
            of_job = " (the task of a SLURM job has as many as --cpus-per-task says)" if is_job else ""
            raise UsageError(
                f"workers: {count} processes for {thread_count()} threads; give cpus:{count} to start them nevertheless"
                + of_job
            )
        return LocalWorkers(count, memory=memory)
    from oocbe.kernels.cuda.device import cupy, why_unavailable

    reason = why_unavailable()
    if reason is not None:
        raise UsageError(
            f"workers: {text} requests GPUs, and no GPU can be used: {reason}; give cpus:N for workers without one"
        )
    there = int(cupy().cuda.runtime.getDeviceCount())
    if count > there:
        raise UsageError(f"workers: gpus:{count} requests {count} GPUs, and this host has {there}")
    devices = tuple(range(count or there))
    return LocalWorkers(len(devices), devices, memory=memory)


def slurm_workers(file: Path, text: str | None, memory: int | None) -> SlurmWorkers:
    """Workers in SLURM jobs, not yet submitted; ``text`` as for ``--workers``; UsageError: number or settings."""
    found = WORKERS.fullmatch(text or "")
    count = int(found[2] or 0) if found is not None else 0
    if found is None or not count or (found[1] or found[3]) == "gpus":
        raise UsageError(f"cluster slurm:{file}: give the number of workers, for example --workers 8")
    return SlurmWorkers(SlurmSettings.read(file), count, memory=memory)


@contextmanager
def _of_client(client: Client, memory: int | None) -> Iterator[None]:
    if not hasattr(client, "scheduler_info"):
        raise UsageError(f"client: {client!r:.100}: give a distributed.Client, or an address as cluster")
    workers = DaskWorkers(client, memory)
    try:
        with use_workers(workers):
            yield
    finally:
        workers.close()


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at an address, with the TLS settings of Dask's configuration."""
    try:
        from distributed import Client, Security
    except ImportError as error:
        raise UnsupportedError(MISSING.format(error=error)) from None
    try:
        security = Security() if address.startswith("tls://") else None
        if security is not None and security.get_connection_args("client")["ssl_context"] is None:
            raise UsageError(f"cluster {address}: Dask's configuration names no certificates; see docs/cluster.md")
        with ThreadPoolExecutor(1) as thread:  # the thread of a notebook has a loop
            thread.submit(asyncio.run, _ask(address, security or Security())).result()
        made = Client(address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TypeError, ValueError, RuntimeError, MemoryError) as error:
        # The text of another program is taken for sizes.
        what = "another program does" if isinstance(error, MemoryError) else str(error) or "the port is silent"
        raise ClusterError(f"no Dask scheduler answers at {address}: {what}") from None
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(QUIET)  # our own messages report a lost scheduler
    try:
        with made:
            yield made
    finally:
        logger.setLevel(level)


async def _ask(address: str, security: Security) -> None:
    """Connect once, in limited time; a client waits forever for a port that never answers."""
    from distributed.comm import connect

    answer = connect(address, CONNECT_SECONDS, **security.get_connection_args("client"))
    (await asyncio.wait_for(answer, CONNECT_SECONDS + 1.0)).abort()
