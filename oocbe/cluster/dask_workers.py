"""Workers that Dask distributed looks after: segments are its tasks, and this process is its client.

What is sent is pickled here, so that Dask does not look through it; what comes back is a few numbers and a name. A
result may be lost with its worker on its way, so it is waited for so long and no longer, and its segment done again.
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
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeVar

from oocbe.cluster.ownership import working_as
from oocbe.cluster.workers import LostWorkError
from oocbe.errors import ClusterError
from oocbe.results.rows_read import RowsRead

if TYPE_CHECKING:
    from distributed import Client

Told = TypeVar("Told")
Result = TypeVar("Result")

FETCH_SECONDS = 20.0
"""A result, a few hundred bytes, that takes longer is lost."""

COUNT_SECONDS = 1.0
"""So often workers are counted."""

PATIENCE_SECONDS = 90.0
"""So long there may be no worker before the work is given up: one that is started anew takes a few seconds, and one of
a busy cluster longer."""

_turn = threading.Lock()


def called(data: bytes) -> Any:
    """In a worker: call the function that was sent, one at a time; all threads of the worker are for it."""
    with _turn:
        from distributed import get_worker

        worker = get_worker()
        if "OOCBE_THREADS" not in os.environ:
            os.environ["OOCBE_THREADS"] = str(worker.state.nthreads)
        work, told = pickle.loads(data)
        with working_as(str(worker.name)):
            return work(told)


class DaskWorkers:
    """The workers of a Dask client; see :class:`oocbe.cluster.workers.Workers`.

    Parameters
    ----------
    client : of a cluster; it stays open. memory : limit of a host, or None.
    """

    def __init__(self, client: Client, memory: int | None = None) -> None:
        self.memory = memory
        self.readied: set[object] = set()
        self.rows: dict[str, int] = {}
        self.read = RowsRead()
        self.cluster = token_hex(4)
        self._client = client
        self._count, self._seen, self._failure = 0, time.monotonic(), ""
        self._closing = threading.Event()
        self._hosts: Counter[str] = Counter()
        self._look()
        self._looking = threading.Thread(target=self._look_again, name="oocbe-cluster", daemon=True)
        self._looking.start()

    def close(self) -> None:
        """Look after the workers no more; the client is left open."""
        self._closing.set()
        self._looking.join()

    @property
    def count(self) -> int:
        """How many there were when they were last counted."""
        return self._count

    @property
    def worker_share(self) -> float:
        """As much for each worker of a host, and this process."""
        return 1 / (max(self._hosts.values(), default=1) + 1)

    own_share = worker_share

    def submit(self, name: str, work: Callable[[Told], Result], told: Told) -> Future[Result]:
        """Have a function called by a worker; see :class:`oocbe.cluster.workers.Workers`."""
        made: Future[Result] = Future()
        data = pickle.dumps((work, told), protocol=5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large graphs: lookups of a bucket may be megabytes
            asked = self._client.submit(called, data, key=f"{name}-{token_hex(8)}", pure=False)
        made.add_done_callback(lambda future: asked.cancel() if future.cancelled() else None)
        asked.add_done_callback(lambda future: self._settle(made, future))
        return made

    def check(self) -> None:
        """Raise ClusterError where no worker has been there for long, or the scheduler is gone."""
        if self._failure:
            raise ClusterError(self._failure)
        if self._count:
            return
        if time.monotonic() - self._seen > PATIENCE_SECONDS:
            raise ClusterError(
                f"no worker is left at {self._address} for {PATIENCE_SECONDS:.0f} seconds; start some, and go on with "
                "--resume where there is a --workdir"
            )

    @property
    def _address(self) -> str:
        return str(getattr(self._client.scheduler, "address", "the scheduler"))

    def _settle(self, made: Future[Any], asked: Any) -> None:
        """Hand a result on, on Dask's thread for that."""
        with suppress(InvalidStateError):  # it was cancelled
            try:
                made.set_result(self._fetched(asked))
            except BaseException as error:
                made.set_exception(error)
        with suppress(Exception):
            asked.release()

    def _fetched(self, asked: Any) -> Any:
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        try:
            return asked.result(timeout=FETCH_SECONDS)
        except (KilledWorker, FutureCancelledError, CancelledError, CommClosedError) as error:
            raise LostWorkError(f"{type(error).__name__}: {error}") from None
        except TimeoutError as error:
            if asked.status == "error":
                raise
            raise LostWorkError(f"its result did not come in {FETCH_SECONDS:.0f} seconds ({error})") from None

    def _look_again(self) -> None:
        while not self._closing.wait(COUNT_SECONDS):
            self._look()

    def _look(self) -> None:
        """Count the workers, and note it where the scheduler is gone."""
        if self._client.status in ("closed", "closing"):
            self._failure = f"the scheduler at {self._address} is gone; go on with --resume where there is a --workdir"
            return
        try:
            found = self._client.scheduler_info(n_workers=-1)
        except Exception as error:
            if time.monotonic() - self._seen > PATIENCE_SECONDS:
                self._failure = f"the scheduler at {self._address} does not answer ({error})"
            return
        if "id" in found:  # of the scheduler: the same for everybody who asks these workers
            self.cluster = str(found["id"]).replace(" ", "-")
        with_hosts = found["workers"]
        self._hosts = Counter(str(worker.get("host", "")) for worker in with_hosts.values())
        self._count = len(with_hosts)
        if self._count:
            self._seen = time.monotonic()
