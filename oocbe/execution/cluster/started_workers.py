"""Workers that this program starts itself, on this host or in SLURM jobs: the scheduler is a thread of this process.

Most problems dispatch no segment, so nothing is started, and Dask is not imported, before the first one.

Access to a port of a scheduler or worker permits running code there, and other users of this host can access its
loopback interface. So all connections use TLS with a key made for the run, and others are refused. During the run, the
key is in a folder that only this user can read. Dask can make certificates itself, with an RSA key that takes 0.1 to
0.3 s; an elliptic-curve key takes no noticeable time.

On this host the scheduler and the workers listen on the loopback interface only. Each worker is a process with a share
of the cores, or with a GPU, whose number is set before CUDA starts. A thread of this process monitors and restarts
them: Dask's own nannies and its ``SpecCluster`` were observed to lose workers, or their settings, when workers were
killed repeatedly.

SLURM jobs are submitted with the first work, and find the key in a shared folder. Jobs may stay in the queue for any
time; the first worker is awaited until the time limit, or until SLURM lists none of the jobs. Jobs are cancelled at the
end.

Their settings are a file in the format of dask-jobqueue. It is YAML: the section ``jobqueue: slurm:`` of a Dask
configuration, or the contents of such a section alone.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from oocbe.errors import ClusterError, UnsupportedError, UsageError
from oocbe.execution.cluster import dask_workers
from oocbe.execution.cluster.dask_workers import DaskWorkers
from oocbe.kernels.cpu.threads import thread_count
from oocbe.model.results.progress_curve import RowsRead
from oocbe.runtime.data_limit import data_limit
from oocbe.runtime.parents import child_command, child_environment, python_path
from oocbe.runtime.waiting import LOOK_UP_SECONDS
from oocbe.tables.scratch import ScratchFolder, default_parent

if TYPE_CHECKING:
    from distributed import Client, Security

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@dataclass(kw_only=True)
class StartedWorkers(ABC):
    """Workers that start with the first segment and end with the block; see
    :class:`oocbe.execution.cluster.workers.Workers`.

    memory : limit of a host in bytes; None: derived from each machine.
    readied, rows, read, cluster : as for ``Workers``.
    """

    memory: int | None = None
    readied: set[object] = field(default_factory=set)
    rows: dict[str, int] = field(default_factory=dict)
    read: RowsRead = field(default_factory=RowsRead)
    cluster: str = field(default_factory=lambda: os.urandom(4).hex())
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
            self._dask = DaskWorkers(self._start(self._stack), self.memory)
            self._stack.callback(self._dask.close)
        return self._dask.submit(name, work, argument)

    def check(self) -> None:
        """Raise ClusterError if the work cannot continue."""
        if self._dask is not None:
            self._dask.check()

    @abstractmethod
    def _start(self, stack: ExitStack) -> Client:
        """Start a scheduler and all workers, which end with the stack; returns a client.
        Raises UnsupportedError if Dask, or another requirement, is not installed, DiskError if its files cannot be
        written, and ClusterError if no worker can be started."""


@dataclass(frozen=True)
class Started:
    """A scheduler in this process.

    address : of the scheduler. client : of it. folder : for files of the run, which only this user can read.
    environment : of its workers, besides this process's own: the paths of their certificates.
    """

    address: str
    client: Client
    folder: Path
    environment: Mapping[str, str]


def started_scheduler(stack: ExitStack, parent: Path, host: Callable[[], str]) -> Started:
    """Start a scheduler, without workers, that ends with the stack; ``host``: gives the address it listens on."""
    try:
        import dask
        from distributed import Client, SpecCluster

        from oocbe.execution.cluster.without_http import SchedulerWithoutHTTP

        security = security_of_run()
        listens_on = host()
    except ImportError as error:
        raise UnsupportedError(dask_workers.MISSING.format(error=error)) from None
    scratch = ScratchFolder(parent)
    stack.callback(scratch.close, interrupted=True)
    options = {"host": listens_on, "port": 0, "protocol": "tls://", "security": security, "dashboard": False}
    with dask.config.set(dask_workers.SETTINGS | {"temporary-directory": str(scratch.path)}):
        cluster: Any = stack.enter_context(
            SpecCluster(
                scheduler={"cls": SchedulerWithoutHTTP, "options": options},
                security=security,
                silence_logs=logging.CRITICAL,
            )
        )
        client: Any = stack.enter_context(Client(cluster, security=security, set_as_default=False))
    environment = environment_of_workers(security, scratch.path)
    return Started(cluster.scheduler_address, client, scratch.path, environment)


LIFETIME = timedelta(days=365)
"""Validity of the certificate: longer than any run."""

CLOCKS_APART = timedelta(days=1)
"""Permitted difference of the hosts' clocks: the start of the certificate's validity is set back by it."""

KEY, CERTIFICATE = "key.pem", "certificate.pem"
"""Names of the files that workers read."""


def security_of_run() -> Security:
    """Security settings of a run's connections; ImportError if Dask or ``cryptography`` is not installed."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from distributed import Security

    key, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "oocbe")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - CLOCKS_APART).not_valid_after(now + LIFETIME)
    certificate = builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    whose = ("client", "scheduler", "worker")
    files = {f"tls_{who}_{what}": text for who in whose for what, text in (("key", secret), ("cert", certificate))}
    return Security(require_encryption=True, tls_ca_file=certificate, **files)


def environment_of_workers(security: Security, folder: Path) -> dict[str, str]:
    """Write the certificates of workers into a folder; returns the environment with their paths for Dask."""
    for name, text in ((KEY, security.tls_worker_key), (CERTIFICATE, security.tls_worker_cert)):
        file = folder / name
        file.touch(mode=0o600)
        file.write_text(str(text))
    place = "DASK_DISTRIBUTED__COMM__TLS__"
    return {
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
        f"{place}CA_FILE": str(folder / CERTIFICATE),
        f"{place}WORKER__KEY": str(folder / KEY),
        f"{place}WORKER__CERT": str(folder / CERTIFICATE),
    }


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


def _last_line(*logs: Path) -> str:
    lines = [line.strip() for log in logs if log.is_file() for line in log.read_text(errors="replace").splitlines()]
    return next(filter(None, reversed(lines)), "nothing was printed")


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
                last = _last_line(*(self._logs / f"job-{job}.log" for job in self.jobs))
                raise ClusterError(f"jobs {', '.join(self.jobs)} ended before a worker connected: {last}")

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

        Raises UsageError: it cannot be read, has another format, or has an unknown key.
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
