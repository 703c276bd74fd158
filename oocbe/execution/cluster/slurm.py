"""Workers in SLURM jobs: the scheduler is a thread of this process, and jobs are submitted with the first work.

All traffic between hosts is encrypted: certificates are made for the run, in a shared folder that only its user can
read. Jobs may stay in the queue for any time; the first worker is awaited until the time limit, or until SLURM lists
none of the jobs. Jobs are cancelled at the end.

Their settings are a file in the format of dask-jobqueue. It is YAML: the section ``jobqueue: slurm:`` of a Dask
configuration, or the contents of such a section alone.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from oocbe.errors import ClusterError, UsageError
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


NEW_STARTS = 50
"""Maximum restarts of a worker within its job after it was killed or failed; the worker's log has the reason."""

OF_OTHERS = (
    "dashboard-address", "death-timeout", "extra", "n-workers", "scheduler-options", "shebang", "worker-command",
    "worker-extra-args",
)  # fmt: skip
"""Keys of dask-jobqueue without a meaning for workers of this program; they are ignored."""

FORMER = {"job-extra": "job-extra-directives", "env-extra": "job-script-prologue"}
"""Former names of keys."""


@dataclass(frozen=True)
class SlurmSettings:
    """Settings of a job.

    cores, memory : of a job; memory as for ``--mem``, or as for dask-jobqueue (``16GB``). None: SLURM's default.
    processes : workers of a job, which share the cores, and its GPUs.
    name, queue, account, walltime : as for ``sbatch``.
    interface : of the network through which workers reach the scheduler, such as ``ib0``; None: the host's own name.
    python : interpreter of workers. shared_temp_directory : visible to all hosts, for scripts, logs and certificates;
        None: the working directory of this program. log_directory : None: there as well, and removed at the end.
    local_directory : of the hosts, for workers' temporary files; None: ``SLURM_TMPDIR`` or ``TMPDIR``.
    job_cpu, job_mem : replace cores and memory in the script. job_extra_directives : additional ones.
    job_directives_skip : texts; directives that contain one are omitted.
    job_script_prologue : lines before the workers.
    """

    cores: int = 1
    memory: str | None = None
    processes: int = 1
    name: str = "oocbe"
    queue: str | None = None
    account: str | None = None
    walltime: str | None = None
    interface: str | None = None
    python: str = sys.executable
    shared_temp_directory: Path | None = None
    log_directory: Path | None = None
    local_directory: str | None = None
    job_cpu: int | None = None
    job_mem: str | None = None
    job_extra_directives: tuple[str, ...] = ()
    job_directives_skip: tuple[str, ...] = ()
    job_script_prologue: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        """The settings of a file.

        Raises
        ------
        UsageError : it cannot be read, has another format, or has an unknown key.
        """
        import yaml  # which Dask needs, too

        try:
            content = yaml.safe_load(path.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UsageError(f"{path}: not to be read as settings of jobs: {error}") from None
        for section in ("jobqueue", "slurm"):
            if isinstance(content, dict) and section in content:
                content = content[section]
        if not isinstance(content, dict):
            raise UsageError(f"{path}: no section jobqueue: slurm: with the settings of a job, such as cores: 16")
        return cls._of(path, {str(key).replace("_", "-"): value for key, value in content.items()})

    @classmethod
    def _of(cls, path: Path, content: Mapping[str, Any]) -> Self:
        names = {f.name.replace("_", "-"): f for f in fields(cls)}
        found: dict[str, Any] = {}
        for given, value in content.items():
            key = FORMER.get(given, given)
            if key not in names and key not in OF_OTHERS:
                raise UsageError(f"{path}: {key} is no setting of a job; known are {', '.join(names)}")
            if key in names and value is not None:
                found[names[key].name] = _typed(path, key, str(names[key].type), value)
        made = cls(**found)
        if made.cores < 1 or not 1 <= made.processes <= made.cores:
            raise UsageError(
                f"{path}: cores {made.cores}, processes {made.processes}: each process needs a core or more"
            )
        return made

    def script(self, address: str, environment: Mapping[str, str], logs: Path) -> str:
        """The job's script, for a scheduler's address, a log folder, and more environment of workers."""
        directives = [
            f"--job-name={self.name}",
            f"--output={logs}/job-%j.log",
            "--nodes=1 --ntasks=1",
            f"--cpus-per-task={self.job_cpu or self.cores}",
            *(f"--{key}={value}" for key, value in self._limits().items() if value is not None),
            *self.job_extra_directives,
        ]
        chosen = [line for line in directives if not any(text in line for text in self.job_directives_skip)]
        variables = {"OOCBE_THREADS": str(max(1, self.cores // self.processes))} | dict(environment)
        if self.local_directory is not None:
            variables |= {"TMPDIR": self.local_directory, "SLURM_TMPDIR": ""}
        command = f"{shlex.quote(self.python)} -P -m oocbe.execution.cluster.worker {shlex.quote(address)}"
        return "\n".join(
            [
                "#!/usr/bin/env bash",
                *(f"#SBATCH {line}" for line in chosen),
                *self.job_script_prologue,
                *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
                "work() {  # number of the worker; one that is killed is started again",
                '  if [ "${#devices[@]}" -ge ' + str(max(2, self.processes)) + " ]; then",
                '    export CUDA_VISIBLE_DEVICES="${devices[$1]}"',
                "  fi",
                f"  for start in $(seq {NEW_STARTS}); do",
                f'    {command} --name "job ${{SLURM_JOB_ID:-$$}} worker $1" && return',
                "    sleep 1",
                "  done",
                "}",
                'IFS=, read -ra devices <<< "${CUDA_VISIBLE_DEVICES:-}"',
                f"for number in $(seq 0 {self.processes - 1}); do work $number & done",
                "wait",
                "",
            ]
        )

    def _limits(self) -> dict[str, str | None]:
        memory = self.job_mem or self.memory
        if memory is not None:  # dask-jobqueue's 16GB, 16 GiB; SLURM has letters alone, of 1024
            memory = memory.replace(" ", "").removesuffix("B").removesuffix("i")
        return {"partition": self.queue, "account": self.account, "time": self.walltime, "mem": memory}


def _typed(path: Path, key: str, kind: str, value: object) -> Any:
    """A value of the file, converted to the type of its setting."""
    if "tuple" in kind:
        lines = [value] if isinstance(value, str) else value
        if isinstance(lines, list) and all(isinstance(line, str) for line in lines):
            return tuple(lines)
        raise UsageError(f"{path}: {key} must be a list of lines, not {value!r}")
    if "int" in kind:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise UsageError(f"{path}: {key} must be a whole number, not {value!r}")
    if isinstance(value, dict | list | bool):
        raise UsageError(f"{path}: {key} must be text, not {value!r}")
    if key == "walltime" and isinstance(value, int):  # YAML reads 01:00:00 as a number of base 60
        return f"{value // 3600:02}:{value // 60 % 60:02}:{value % 60:02}"
    return Path(str(value)).expanduser() if "Path" in kind else str(value)
