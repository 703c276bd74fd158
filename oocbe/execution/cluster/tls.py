"""Certificates made for a run: only processes with its key can connect.

Dask can make certificates itself, with an RSA key that takes 0.1 to 0.3 s; an elliptic-curve key takes no noticeable
time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Security

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
