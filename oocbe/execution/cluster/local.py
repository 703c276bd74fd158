"""Workers on this host: processes that are started with the first segment, and restarted when they die.

The scheduler is a thread of this process. It and the workers listen on the loopback interface only, and accept only
holders of the run's key. Each worker is a process with a share of the cores, or with a GPU, whose number is set before
CUDA starts. A thread of this process monitors them: Dask's own nannies and its ``SpecCluster`` were observed to lose
workers, or their settings, when workers were killed repeatedly.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from oocbe.errors import ClusterError
from oocbe.execution.cluster.started_workers import Started, StartedWorkers, started_scheduler
from oocbe.kernels.cpu.threads import thread_count
from oocbe.runtime.data_limit import data_limit
from oocbe.runtime.parents import child_command, child_environment
from oocbe.runtime.waiting import LOOK_UP_SECONDS
from oocbe.tables.scratch import default_parent

if TYPE_CHECKING:
    from distributed import Client

LOOPBACK = "127.0.0.1"
"""Address of scheduler and workers; their ports are not reachable through a network."""

MOST_FAILURES = 3
"""Number of consecutive processes that exit by themselves, not killed, before any work; then the workers fail."""

END_SECONDS = 5.0
"""Timeout for a thread at the end, in seconds."""


@dataclass
class _Process:
    """One worker: its position in the list, and its current process."""

    number: int
    process: subprocess.Popen[bytes]
    log: Path
    failures: int = 0


@dataclass
class LocalWorkers(StartedWorkers):
    """Processes of this host as workers; a context manager that leaves no process and no file.

    processes : their number. devices : number of the GPU of each; None: they share the cores.
    environment : added to this process's own for the first process of each worker, but not for restarted ones.
    memory : limit of this host, shared with this process.
    """

    processes: int
    devices: tuple[int, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    started: list[int] = field(default_factory=list, kw_only=True)
    _running: list[_Process] = field(default_factory=list, init=False, repr=False)
    _failure: str = field(default="", init=False)

    @property
    def count(self) -> int:
        """Number of workers, also before their start."""
        return self.processes

    @property
    def worker_share(self) -> float:
        """Equal shares for each process and this one."""
        return 1 / (self.processes + 1)

    own_share = worker_share

    @property
    def running(self) -> list[int]:
        """Process numbers of the running workers."""
        return [worker.process.pid for worker in self._running if worker.process.poll() is None]

    def check(self) -> None:
        """Raise ClusterError if workers exit immediately after their start."""
        if self._failure:
            raise ClusterError(self._failure)
        super().check()

    def _start(self, stack: ExitStack) -> Client:
        """Start the scheduler and the processes; see :class:`StartedWorkers`."""
        started = started_scheduler(stack, default_parent(), lambda: LOOPBACK)
        stopping = threading.Event()
        stack.callback(self._end)
        for number in range(self.processes):
            self._running.append(self._begin(number, started, self.environment))
        watcher = threading.Thread(target=self._watch, args=(started, stopping), name="oocbe-workers", daemon=True)
        watcher.start()
        stack.callback(watcher.join, END_SECONDS)
        stack.callback(stopping.set)
        return started.client

    def _begin(self, number: int, started: Started, more: Mapping[str, str]) -> _Process:
        environment = {name: value for name, value in child_environment().items() if name != "OOCBE_FAULT"}
        environment |= {**started.environment, **more}
        environment["OOCBE_THREADS"] = str(max(1, thread_count() // self.processes))
        if self.devices is not None:
            # Where this process sees some devices only, its first one is the first of these.
            seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
            device = self.devices[number]
            environment["CUDA_VISIBLE_DEVICES"] = seen[device] if seen else str(device)
        command = child_command("oocbe.execution.cluster.worker", started.address, "--name", f"worker {number + 1}")
        command += ["--folder", str(started.folder), "--parent", str(os.getpid())]
        log = started.folder / f"worker-{number + 1}.log"
        with log.open("ab") as output:
            # A session of its own: Ctrl-C reaches this process alone, which ends the others.
            process = subprocess.Popen(
                command, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        data_limit.spare(process.pid)
        self.started.append(process.pid)
        return _Process(number, process, log)

    def _watch(self, started: Started, stopping: threading.Event) -> None:
        """Restart processes that have died."""
        while not stopping.wait(LOOK_UP_SECONDS):
            for place, worker in enumerate(self._running):
                code = worker.process.poll()
                if code is None:
                    continue
                failures = worker.failures + 1 if code > 0 else 0  # killed ones are below 0
                if failures >= MOST_FAILURES:
                    self._failure = (
                        f"worker {worker.number + 1} exited {failures} times at its start: {_last_line(worker.log)}"
                    )
                    return
                self._running[place] = self._begin(worker.number, started, {})
                self._running[place].failures = failures

    def _end(self) -> None:
        """End the processes; their state is no longer needed, and their files are in scratch folders."""
        for worker in self._running:
            worker.process.kill()
        for worker in self._running:
            worker.process.wait()
        self._running = []


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1] if lines else "it printed nothing"
