"""A process that computes segments for the scheduler at an address.

``python -P -m oocbe.execution.cluster.worker ADDRESS [--name NAME] [--folder FOLDER] [--parent PROCESS]``. On the nodes
of a cluster a batch script starts one for each GPU, or share of the cores (``OOCBE_THREADS``), and
``CUDA_VISIBLE_DEVICES`` selects a worker's device. With ``--parent`` the process ends with its parent.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from oocbe.errors import EXIT_RESOURCES
from oocbe.execution.cluster.dask_workers import apply
from oocbe.runtime.parents import end_with
from oocbe.tables.scratch import ScratchFolder, default_parent

START_SECONDS = 120
"""Timeout of a worker's connection to its scheduler, in seconds; a batch system may start the scheduler later."""


def main() -> None:
    """Work until the scheduler closes the connection or disappears."""
    parser = argparse.ArgumentParser(prog="python -P -m oocbe.execution.cluster.worker", description=__doc__)
    parser.add_argument("address", help="of the scheduler, such as tls://node1:8786")
    parser.add_argument("--name", help="for people; otherwise the address of the worker")
    parser.add_argument("--folder", type=Path, help="for files of Dask; otherwise one that is removed at the end")
    parser.add_argument("--parent", type=int, help="number of the process with which this one ends")
    given = parser.parse_args()
    if given.parent is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; whoever started this process ends it
        end_with(given.parent)
    apply()
    if given.folder is not None:
        _work(given.address, given.name, given.folder)
        return
    scratch = ScratchFolder(default_parent())  # where this process is killed, the next one here removes it

    def end(number: int, _: object) -> None:
        """End the process, because the batch system ends the job and no result is needed."""
        scratch.close(interrupted=True)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
    try:
        _work(given.address, given.name, scratch.path)
    finally:
        scratch.close(interrupted=True)


def _work(address: str, name: str | None, folder: Path) -> None:
    try:
        asyncio.run(_serve(address, name, folder))
    except TimeoutError:
        print(f"oocbe worker: no scheduler answers at {address} for {START_SECONDS} seconds", file=sys.stderr)
        sys.exit(EXIT_RESOURCES)


async def _serve(address: str, name: str | None, folder: Path) -> None:
    from distributed import Security
    from distributed.comm import get_local_address_for, parse_address

    from oocbe.execution.cluster.without_http import WorkerWithoutHTTP

    security = Security() if address.startswith("tls://") else None  # from Dask's own configuration
    async with WorkerWithoutHTTP(
        address,
        host=parse_address(get_local_address_for(address))[1],  # on the scheduler's network, and no other
        nthreads=1,  # of Dask's: one segment at a time, with all threads of the process
        name=name,
        security=security,
        memory_limit=0,
        local_directory=str(folder),
        dashboard=False,
        death_timeout=START_SECONDS,
        silence_logs=50,
    ) as worker:
        await worker.finished()


if __name__ == "__main__":
    main()
