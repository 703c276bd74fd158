"""Workers in SLURM jobs: the scheduler is a thread of this process, and jobs are submitted with the first work.

All traffic between hosts is encrypted: certificates are made for the run, in a shared folder that only its user can
read. Jobs may stay in the queue for any time; the first worker is awaited until the time limit, or until SLURM lists
none of the jobs. Jobs are cancelled at the end.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from oocbe.errors import ClusterError
from oocbe.execution.cluster.slurm_settings import SlurmSettings
from oocbe.execution.cluster.started_workers import StartedWorkers, started_scheduler
from oocbe.runtime.parents import python_path

if TYPE_CHECKING:
    from distributed import Client

ASK_SECONDS = 15.0
"""Interval between queries for the jobs before the first worker connects, in seconds."""

COMMAND_SECONDS = 60.0
"""Timeout of a SLURM command, in seconds."""


@dataclass
class SlurmWorkers(StartedWorkers):
    """Workers in SLURM jobs; a context manager that leaves no jobs and no files except requested logs.

    Attributes
    ----------
    settings : of a job. wanted : minimum number of workers in all jobs together.
    memory : limit of each job in bytes, and of this process; None: derived from the job.
    """

    settings: SlurmSettings
    wanted: int
    jobs: list[str] = field(default_factory=list, kw_only=True)
    _logs: Path = field(default_factory=Path, init=False, repr=False)
    _listed_at: float = field(default=0.0, init=False, repr=False)
    _has_begun: bool = field(default=False, init=False, repr=False)

    @property
    def count(self) -> int:
        """Number of workers; before the first connects, the expected number."""
        there = 0 if self._dask is None else self._dask.count
        return there or self._job_count * self.settings.processes

    @property
    def worker_share(self) -> float:
        """Equal shares for the processes of a job; this process is outside of all jobs."""
        return 1 / self.settings.processes

    own_share = 1.0

    @property
    def _job_count(self) -> int:
        return -(-self.wanted // self.settings.processes)

    def check(self) -> None:
        """Raise ClusterError if no worker is left, or no job will provide one."""
        if self._dask is None:
            return
        if self._has_begun or self._dask.count:
            self._has_begun = True
            super().check()
        elif time.monotonic() - self._listed_at > ASK_SECONDS:
            self._listed_at = time.monotonic()
            listed = _slurm(["squeue", "--noheader", "--format=%i", f"--jobs={','.join(self.jobs)}"])
            if listed.returncode == 0 and not listed.stdout.strip():
                raise ClusterError(f"jobs {', '.join(self.jobs)} ended before a worker connected: {self._last_line()}")

    def _start(self, stack: ExitStack) -> Client:
        """Start the scheduler and submit the jobs; see :class:`StartedWorkers`."""
        settings = self.settings
        parent = (settings.shared_temp_directory or Path.cwd()).absolute()
        started = started_scheduler(stack, parent, self._host)
        self._logs = (settings.log_directory or started.folder).absolute()
        self._logs.mkdir(parents=True, exist_ok=True)
        script = started.folder / "job.sh"
        environment = {"PYTHONPATH": python_path(), **started.environment}
        script.write_text(settings.script(started.address, environment, self._logs))
        stack.callback(self._cancel)
        for _ in range(self._job_count):
            done = _slurm(["sbatch", "--parsable", str(script)])
            if done.returncode:
                raise ClusterError(f"sbatch takes no job: {done.stderr.strip() or done.stdout.strip()}")
            self.jobs.append(done.stdout.strip().partition(";")[0])
        self._listed_at = time.monotonic()
        return started.client

    def _host(self) -> str:
        """Address of this process for jobs."""
        from distributed.utils import get_ip, get_ip_interface

        found: str = get_ip() if self.settings.interface is None else get_ip_interface(self.settings.interface)
        return found

    def _cancel(self) -> None:
        if self.jobs:
            _slurm(["scancel", *self.jobs])

    def _last_line(self) -> str:
        logs = [self._logs / f"job-{job}.log" for job in self.jobs]
        lines = [line for log in logs if log.is_file() for line in log.read_text(errors="replace").splitlines()]
        return next((line.strip() for line in reversed(lines) if line.strip()), "they printed nothing")


def _slurm(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a SLURM command; one that cannot be started is returned as failed, with the reason."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
