"""URLs of object stores where paths are given: told from paths, and refused where only files of this machine do."""

from __future__ import annotations

import os
import re
from pathlib import Path

from oocbe.errors import UsageError

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/(/?)(.*)", re.DOTALL)


def url_of(path: str | Path) -> str | None:
    """The URL that a path is, or was: as a path, ``s3://bucket/key`` has lost a slash. None for any other path."""
    found = _URL.fullmatch(os.fspath(path))
    if found is None or (not found[2] and isinstance(path, str)):
        return None
    return f"{found[1]}://{found[3]}"


def refuse_url(path: str | Path, what: str) -> None:
    """Refuse (UsageError) the URL of an object store where only a file or folder of this machine does.

    what : was to be there, such as ``a problem`` or ``--solution``.
    """
    if (url := url_of(path)) is not None:
        raise UsageError(
            f"{url}: {what} has to be on this machine; only stored tables and Parquet are read from object stores, and "
            "written there: copy it, and name the path of the copy"
        )
