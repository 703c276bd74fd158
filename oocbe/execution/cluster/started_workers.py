"""Base of workers that this program starts itself: a scheduler in this process, started with the first segment.

Most problems dispatch no segment, so nothing is started, and Dask is not imported, before the first one.

Access to a port of a scheduler or worker permits running code there, and other users of this host can access its
loopback interface. So all connections use TLS with a key made for the run, and others are refused. During the run, the
key is in a folder that only this user can read. Dask can make certificates itself, with an RSA key that takes 0.1 to
0.3 s; an elliptic-curve key takes no noticeable time.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self, TypeVar

from oocbe.errors import UnsupportedError
from oocbe.execution.cluster import dask_settings
from oocbe.execution.cluster.dask_workers import DaskWorkers
from oocbe.model.results.progress_curve import RowsRead
from oocbe.tables.scratch import ScratchFolder

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
    cluster: str = field(default_factory=lambda: token_hex(4))
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
            client = self._start(self._stack)
            self._dask = DaskWorkers(client, self.memory)
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

        from oocbe.execution.cluster.without_http import Scheduler

        security = security_of_run()
        listens_on = host()
    except ImportError as error:
        raise UnsupportedError(dask_settings.MISSING.format(error=error)) from None
    scratch = ScratchFolder(parent)
    stack.callback(scratch.close, interrupted=True)
    options = {"host": listens_on, "port": 0, "protocol": "tls://", "security": security, "dashboard": False}
    with dask.config.set(dask_settings.SETTINGS | {"temporary-directory": str(scratch.path)}):
        cluster: Any = stack.enter_context(
            SpecCluster(
                scheduler={"cls": Scheduler, "options": options}, security=security, silence_logs=logging.CRITICAL
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
