"""Folders for cached compiled code: whether one is writable, and a private substitute."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from pathlib import Path


def can_be_written(folder: str | Path) -> bool:
    """Whether files can be created in a folder, which is created if missing."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file, in a folder that is created if missing; other processes see all of it or nothing."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # a crash of the system would leave the name without the content
    Path(file.name).replace(path)


def private_scratch(name: str) -> str | None:
    """A folder for temporary files, private to this user, since its contents are executed.

    An existing folder of that name that others could access is not used: a new one is created, and removed at the end.
    None if no temporary files can be created.
    """
    try:
        folder = Path(tempfile.gettempdir(), f"{name}-{os.geteuid()}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            if not _is_private(folder):
                folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
    except OSError:
        return None
    return str(folder) if os.access(folder, os.W_OK | os.X_OK) else None


def _is_private(folder: Path) -> bool:
    """Whether this is a folder, not a link, accessible to this user only."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
