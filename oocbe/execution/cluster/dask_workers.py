"""Workers managed by Dask distributed: segments are its tasks, and this process is its client.

Arguments are pickled here, so that Dask does not inspect them; results are a few numbers and a name. A result may be
lost with its worker in transit, so its transfer has a timeout, after which the segment is repeated.

The scheduler may disappear at any moment. Regardless of the exceptions of Dask's client, here or on one of its threads,
:meth:`DaskWorkers.check` uses only the client's status and the time of the scheduler's last answer, without waiting.

Settings of Dask that deviate from its defaults apply to processes that we start. An existing cluster has its own: no
result depends on them, as every segment can be repeated anywhere, and written parts count only once they are listed.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from oocbe.errors import ClusterError, install_hint
from oocbe.execution.cluster.segment_files import working_as
from oocbe.execution.cluster.workers import LostWorkError
from oocbe.model.results.progress_curve import RowsRead

if TYPE_CHECKING:
    from distributed import Client

QUIET = "CRITICAL"
"""Log level of Dask's messages about workers; our own messages report them."""

SETTINGS: dict[str, Any] = {
    # A worker that dies is held against all tasks that it had, also those that waited there. Ours counts for itself
    # how often a segment was lost, and what is written by a worker that died is never listed.
    "distributed.scheduler.allowed-failures": 20,
    # The loops of a first segment are compiled for up to a minute; on a full machine no message leaves meanwhile.
    "distributed.scheduler.worker-ttl": "15 minutes",
    # Segments are large, few and alike: nothing is gained by moving those that wait.
    "distributed.scheduler.work-stealing": False,
    # The budget of each segment is the arbiter of memory. Dask's manager would pause or end workers by the size of a
    # process, in which memory that is free, and files that are mapped, count as used.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    # A sampling profiler of its own takes a percent or two.
    "distributed.worker.profile.enabled": False,
    # Nor does anybody look at how the loops of messages and the machine are doing, fifty times a second and twice.
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    # Rows are in files, so there is no memory of Dask's to be managed.
    "distributed.scheduler.active-memory-manager.start": False,
    # Asking the driver makes a CUDA context before the worker's device is chosen.
    "distributed.diagnostics.nvml": False,
    # The loop of messages waits for compilers and for a full machine; that is no reason for a warning.
    "distributed.admin.tick.limit": "10 minutes",
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.timeouts.tcp": "120s",
    "distributed.logging": {"distributed": QUIET, "distributed.worker": QUIET, "distributed.scheduler": QUIET},
}
"""Settings of Dask by name."""

MISSING = f"workers need Dask distributed, which is not installed ({{error}}); {install_hint('cluster')}"
"""Error message if Dask is not installed; ``error`` : the import error."""


def apply() -> None:
    """Apply the settings in this whole process, which is one of ours; others, such as certificates, stay Dask's."""
    import dask

    dask.config.set(SETTINGS)


Argument = TypeVar("Argument")
Result = TypeVar("Result")

FETCH_SECONDS = 20.0
"""Timeout for a result of a few hundred bytes, in seconds; then it counts as lost."""

COUNT_SECONDS = 1.0
"""Interval between counts of the workers, in seconds."""

PATIENCE_SECONDS = 90.0
"""Maximum time without workers before the work is abandoned, in seconds. A restarted worker takes a few seconds, and
longer on a busy cluster."""

RESUME = "run it again: a solve that had a --workdir goes on with --resume, and all else begins anew"
"""Advice in errors about a lost cluster."""

GONE_SECONDS = 5.0
"""Timeout of a client's reconnection to its scheduler, in seconds; segments in progress are lost by then."""

END_SECONDS = 1.0
"""Timeout for the thread at the end, in seconds; if the scheduler was stopped, the thread's request never returns."""

_turn = threading.Lock()


def called(data: bytes) -> Any:
    """In a worker: call the sent function, one at a time; it may use all threads of the worker."""
    with _turn:
        from distributed import get_worker

        worker = get_worker()
        if "OOCBE_THREADS" not in os.environ:
            os.environ["OOCBE_THREADS"] = str(worker.state.nthreads)
        work, argument = pickle.loads(data)
        with working_as(str(worker.name)):
            return work(argument)


class DaskWorkers:
    """The :class:`oocbe.execution.cluster.workers.Workers` of a Dask client, which stays open; ``memory`` of a host."""

    def __init__(self, client: Client, memory: int | None = None) -> None:
        self.memory = memory
        self.readied: set[object] = set()
        self.rows: dict[str, int] = {}
        self.read = RowsRead()
        self.cluster = os.urandom(4).hex()
        self._client = client
        self._address = str(getattr(client.scheduler, "address", "the scheduler"))
        self._count = 0
        self._seen = self._answered = self._connected = time.monotonic()
        self._closing = threading.Event()
        self._hosts: Counter[str] = Counter()
        self._look()
        self._looking = threading.Thread(target=self._look_again, name="oocbe-cluster", daemon=True)
        self._looking.start()

    def close(self) -> None:
        """Stop monitoring the workers; the client stays open."""
        self._closing.set()
        self._looking.join(END_SECONDS)

    @property
    def count(self) -> int:
        """Number of workers at the last count."""
        return self._count

    @property
    def worker_share(self) -> float:
        """Equal shares for each worker of a host and this process."""
        return 1 / (max(self._hosts.values(), default=1) + 1)

    own_share = worker_share

    def submit(self, name: str, work: Callable[[Argument], Result], argument: Argument) -> Future[Result]:
        """Have a function called by a worker; see :class:`oocbe.execution.cluster.workers.Workers`."""
        made: Future[Result] = Future()
        data = pickle.dumps((work, argument), protocol=5)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of large graphs: lookups of a bucket may be megabytes
                submitted = self._client.submit(called, data, key=f"{name}-{os.urandom(8).hex()}", pure=False)
        except Exception as error:
            if self._client.status == "running":
                raise
            raise self._gone() from error
        made.add_done_callback(lambda future: _release(submitted) if future.cancelled() else None)
        submitted.add_done_callback(lambda future: self._settle(made, future))
        return made

    def check(self) -> None:
        """Raise ClusterError if there were no workers for too long, or the scheduler is lost."""
        now = time.monotonic()
        if self._client.status == "running":
            self._connected = now
        elif self._client.status in ("closed", "closing") or now - self._connected > GONE_SECONDS:
            raise self._gone()
        if now - self._answered > PATIENCE_SECONDS:
            raise ClusterError(
                f"the scheduler at {self._address} has not answered for {PATIENCE_SECONDS:.0f} seconds; {RESUME}"
            )
        if not self._count and now - self._seen > PATIENCE_SECONDS:
            raise ClusterError(
                f"no worker is left at {self._address} for {PATIENCE_SECONDS:.0f} seconds; start some, and {RESUME}"
            )

    def _gone(self) -> ClusterError:
        return ClusterError(f"the scheduler at {self._address} is gone; {RESUME}")

    def _settle(self, made: Future[Any], submitted: Any) -> None:
        """Pass a result on, on Dask's callback thread."""
        with suppress(InvalidStateError):  # it was cancelled
            try:
                made.set_result(self._fetched(submitted))
            except BaseException as error:
                made.set_exception(error)
        _release(submitted)

    def _fetched(self, submitted: Any) -> Any:
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        try:
            return submitted.result(timeout=FETCH_SECONDS)
        except (KilledWorker, FutureCancelledError, CancelledError, CommClosedError) as error:
            raise LostWorkError(f"{type(error).__name__}: {error}") from None
        except TimeoutError as error:
            if submitted.status == "error":
                raise
            raise LostWorkError(f"its result did not come in {FETCH_SECONDS:.0f} seconds ({error})") from None

    def _look_again(self) -> None:
        while not self._closing.wait(COUNT_SECONDS):
            self._look()

    def _look(self) -> None:
        """Count the workers; does nothing if the scheduler does not report them."""
        if self._client.status == "running":
            self._connected = time.monotonic()
        try:
            found = self._client.scheduler_info(n_workers=-1)
            with_hosts = found["workers"]  # missing if the client has lost its scheduler
        except Exception:
            return
        self._answered = time.monotonic()
        if "id" in found:  # of the scheduler: the same for all clients of these workers
            self.cluster = str(found["id"]).replace(" ", "-")
        self._hosts = Counter(str(worker.get("host", "")) for worker in with_hosts.values())
        self._count = len(with_hosts)
        if self._count:
            self._seen = time.monotonic()


def _release(submitted: Any) -> None:
    """Release a task at the scheduler; cancelling it would wait for the scheduler, which may not answer."""
    with suppress(Exception):  # the client is closed
        submitted.release()
