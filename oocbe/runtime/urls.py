"""Recognition of URLs of object stores among paths, and their refusal where only local files are supported."""

from __future__ import annotations

import os
import re
from pathlib import Path

from oocbe.errors import UsageError

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/(/?)(.*)", re.DOTALL)

SCHEMES = frozenset(("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https", "file", "memory"))
"""Schemes of URLs supported by obstore. Any other name with a colon and one slash is a folder's."""


def url_of(path: str | Path) -> str | None:
    """The URL of a text, or of a path made from it, in which ``s3://bucket/key`` lost a slash; else None."""
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise UsageError(f"{path!r:.100} is no path: give text, or a pathlib.Path without null characters")
    found = _URL.fullmatch(os.fspath(path))
    if found is None or (not found[2] and (isinstance(path, str) or found[1] not in SCHEMES)):
        return None
    return f"{found[1]}://{found[3]}"


def refuse_url(path: str | Path, what: str) -> None:
    """Refuse (UsageError) an object store's URL for a local file or folder; ``what``: such as ``a problem``."""
    if (url := url_of(path)) is not None:
        raise UsageError(
            f"{url}: {what} cannot be in an object store, only stored tables and Parquet files can: name a file or "
            "folder of this machine"
        )
