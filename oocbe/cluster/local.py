"""Workers on this host: processes that are started when the first segment is given away, and again when they die.

The scheduler is a thread of this process, on the loopback interface. Workers are processes of their own, one for each
share of the cores, or for each GPU, whose number is set before CUDA starts. A thread here looks after them: Dask's own
nannies and its cluster of specifications were seen to lose workers, or their settings, when these were killed again and
again.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from oocbe.cluster import dask_settings
from oocbe.cluster.dask_workers import DaskWorkers
from oocbe.errors import ClusterError, UnsupportedError
from oocbe.kernels.cpu.threads import thread_count
from oocbe.tables.scratch import ScratchFolder, default_parent

Told = TypeVar("Told")
Result = TypeVar("Result")

PACKAGE_FOLDER = Path(__file__).resolve().parents[2]
"""Where the package lies, for processes to find it."""

LOOPBACK = "127.0.0.1"
"""Whoever reaches the ports of a scheduler runs code there: nobody does through a network."""

LOOK_SECONDS = 0.1
"""So often the processes are looked at."""

MOST_FAILURES = 3
"""So many processes in a row that end by themselves, not killed, before they have done anything, are no accident."""

END_SECONDS = 5.0
"""So long a thread is waited for at the end."""


@dataclass
class _Process:
    """One worker: its place in the list, and the process that is it now."""

    number: int
    process: subprocess.Popen[bytes]
    log: Path
    failures: int = 0


@dataclass
class LocalWorkers:
    """Processes of this host as workers; a context manager that leaves no process and no file.

    Attributes
    ----------
    processes : how many. devices : number of the GPU of each; None: they share the cores.
    memory : limit of this host, shared with this process. environment : of the first process of each, besides this
        one's own; those started again have none of it.
    """

    processes: int
    devices: tuple[int, ...] | None = None
    memory: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    readied: set[object] = field(default_factory=set)
    rows: dict[str, int] = field(default_factory=dict)
    started: list[int] = field(default_factory=list)
    _dask: DaskWorkers | None = field(default=None, init=False, repr=False)
    _stack: ExitStack = field(default_factory=ExitStack, init=False, repr=False)
    _running: list[_Process] = field(default_factory=list, init=False, repr=False)
    _failure: str = field(default="", init=False)

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        self._dask = None

    @property
    def count(self) -> int:
        """How many there are, or will be."""
        return self.processes

    @property
    def worker_share(self) -> float:
        """As much for each process, and for this one."""
        return 1 / (self.processes + 1)

    own_share = worker_share

    @property
    def running(self) -> list[int]:
        """Numbers of the processes that are at work."""
        return [worker.process.pid for worker in self._running if worker.process.poll() is None]

    def submit(self, name: str, work: Callable[[Told], Result], told: Told) -> Future[Result]:
        """Have a function called by a worker; see :class:`oocbe.cluster.workers.Workers`."""
        if self._dask is None:
            self._start()
        assert self._dask is not None
        return self._dask.submit(name, work, told)

    def check(self) -> None:
        """Raise ClusterError where workers end as soon as they begin."""
        if self._failure:
            raise ClusterError(self._failure)
        if self._dask is not None:
            self._dask.check()

    def _start(self) -> None:
        """Start the scheduler and the processes.

        Raises
        ------
        UnsupportedError : Dask is not installed. DiskError : there is no place for its files.
        """
        try:
            import dask
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise UnsupportedError(dask_settings.MISSING.format(error=error)) from None
        stack = self._stack
        scratch = ScratchFolder(default_parent())
        stack.callback(scratch.close, interrupted=True)
        with dask.config.set(dask_settings.SETTINGS | {"temporary-directory": str(scratch.path)}):
            cluster: Any = stack.enter_context(
                LocalCluster(
                    n_workers=0, host=LOOPBACK, dashboard_address=f"{LOOPBACK}:0", silence_logs=logging.CRITICAL
                )
            )
            client: Any = stack.enter_context(Client(cluster, set_as_default=False))
        stopping = threading.Event()
        stack.callback(self._end)
        for number in range(self.processes):
            self._running.append(self._begin(number, cluster.scheduler_address, scratch.path, self.environment))
        watcher = threading.Thread(
            target=self._watch,
            args=(cluster.scheduler_address, scratch.path, stopping),
            name="oocbe-workers",
            daemon=True,
        )
        watcher.start()
        stack.callback(watcher.join, END_SECONDS)
        stack.callback(stopping.set)
        self._dask = DaskWorkers(client, self.memory)
        stack.callback(self._dask.close)

    def _begin(self, number: int, address: str, folder: Path, more: Mapping[str, str]) -> _Process:
        environment = {name: value for name, value in os.environ.items() if name != "OOCBE_FAULT"} | dict(more)
        path = [str(PACKAGE_FOLDER), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(path)
        environment["OOCBE_THREADS"] = str(max(1, thread_count() // self.processes))
        if self.devices is not None:
            # Where this process sees some devices only, its first one is the first of these.
            seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
            device = self.devices[number]
            environment["CUDA_VISIBLE_DEVICES"] = seen[device] if seen else str(device)
        command = [sys.executable, "-m", "oocbe.cluster.worker", address, "--name", f"worker {number + 1}"]
        command += ["--folder", str(folder), "--parent", str(os.getpid())]
        log = folder / f"worker-{number + 1}.log"
        with log.open("ab") as output:
            # A session of its own: Ctrl-C reaches this process alone, which ends the others.
            process = subprocess.Popen(
                command, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self.started.append(process.pid)
        return _Process(number, process, log)

    def _watch(self, address: str, folder: Path, stopping: threading.Event) -> None:
        """Start processes again that have died."""
        while not stopping.wait(LOOK_SECONDS):
            for place, worker in enumerate(self._running):
                code = worker.process.poll()
                if code is None:
                    continue
                failures = worker.failures + 1 if code > 0 else 0  # killed ones are below 0
                if failures >= MOST_FAILURES:
                    self._failure = (
                        f"worker {worker.number + 1} ended {failures} times by itself: {_last_line(worker.log)}"
                    )
                    return
                self._running[place] = self._begin(worker.number, address, folder, {})
                self._running[place].failures = failures

    def _end(self) -> None:
        """End the processes: nothing that they have is needed any more, and what they write is in scratch folders."""
        for worker in self._running:
            worker.process.kill()
        for worker in self._running:
            worker.process.wait()
        self._running = []


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1] if lines else "it said nothing"
