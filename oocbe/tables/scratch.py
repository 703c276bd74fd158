"""Scratch folders: for files that are not needed after their owner has ended, for whatever reason.

A scratch folder is locked by its owner. Whoever makes the next one beside it removes those of this user whose owner has
died. The lock has a name of its own, :data:`MARKER`, which says that it is such a folder: a run directory, or a folder
of the user, may be called like one.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from oocbe.errors import DiskError
from oocbe.runtime.temporary_names import is_temporary
from oocbe.tables import disk
from oocbe.tables.folder_lock import FolderLock, host_of_owner

PREFIX = "oocbe-"
"""Beginning of the names of scratch folders."""

_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")
"""Names of scratch folders; what has another name is not even looked at."""

MARKER = "oocbe-scratch.lock"
"""Name of the lock of a scratch folder; a folder without it is never removed, whatever its own name is."""

NAMELESS = "oocbe-nameless"
"""Beginning of the name that a file has for a moment which is to have none; :mod:`oocbe.runtime.temporary_names`
adds to it what no user would."""

ATTEMPTS = 100
"""Attempts to make a folder that another process removes meanwhile."""

SETTLING_CHECKS, SETTLING_SECONDS = 10, 0.02
"""After an interruption: Zarr writes on threads of its own, and a file under way makes its folder anew once removed."""

FURTHER_TRIES = 2
"""To remove a folder in which a thread that works for a run that has failed is still writing a part of a table."""


def default_parent() -> Path:
    """Where scratch folders go: a batch job's own disk (``SLURM_TMPDIR``), ``TMPDIR``, or the system's folder."""
    slurm = os.environ.get("SLURM_TMPDIR", "")
    return Path(slurm) if slurm and Path(slurm).is_dir() else Path(tempfile.gettempdir())


class ScratchFolder:
    """A new folder, made at once and removed by :meth:`close`.

    Parameters
    ----------
    parent : where it is made; made itself where missing.

    Raises
    ------
    UsageError : the parent is a file. DiskError : it cannot be made.
    """

    def __init__(self, parent: Path) -> None:
        try:
            disk.make_folder_of_user(parent)
            remove_orphans(parent)
            self.path, self._lock = _make_locked(parent)
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise
            raise DiskError(
                f"no folder for tables can be made in {parent} ({error}); choose another with --workdir, or scratch of "
                "an operator"
            ) from None

    def close(self, interrupted: bool = False) -> None:
        """Remove the folder and all that is in it; ``interrupted``: perhaps in the middle of a write.

        What a failing disk does not let go is left to whoever makes the next scratch folder there.
        """
        for check in range(1 + (SETTLING_CHECKS if interrupted else FURTHER_TRIES)):
            if check:
                time.sleep(SETTLING_SECONDS)
            with suppress(OSError):
                _remove_locked(self.path)
            if not interrupted and not self.path.exists():  # else a worker has written while it was removed
                break
        self._lock.release()


def _remove_locked(path: Path) -> None:
    """Remove a scratch folder, the lock last: whoever is killed meanwhile leaves an orphan that can be recognised."""
    if path.is_dir():
        for entry in path.iterdir():
            if entry.name != MARKER:
                disk.remove(entry)
    disk.remove(path)


def _remove_dead(folder: Path) -> bool:
    """Remove a folder whose owner has died; whether that is so: one without a lock may be anybody's.

    Where file systems keep locks to each host, those of another one look free: what it has locked is left to it.

    DiskError : it has no lock, or cannot be locked. OSError : it cannot be removed.
    """
    if host_of_owner(folder, MARKER) not in ("", socket.gethostname()):
        return False
    lock = FolderLock.try_take(folder, create=False, name=MARKER)
    if not isinstance(lock, FolderLock):
        return False
    try:
        _remove_locked(folder)
    finally:
        lock.release()
    return True


def _make_locked(parent: Path) -> tuple[Path, FolderLock]:
    for _ in range(ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        # Another process that cleans up may take a folder whose lock is not held yet for an orphan.
        try:
            lock = FolderLock.try_take(path, create=True, name=MARKER)
        except DiskError:
            if path.exists():
                path.rmdir()
                raise
            continue
        except BaseException:  # a signal: the folder has no owner yet
            shutil.rmtree(path, ignore_errors=True)
            raise
        if isinstance(lock, FolderLock):
            return path, lock
    raise OSError(f"{ATTEMPTS} folders were removed while being made")


def is_scratch(path: Path) -> bool:
    """Whether this is a scratch folder, of whatever owner, or an empty one that is called so: its process may have been
    killed as it began or ended."""
    if not _NAME.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False
    return (path / MARKER).is_file() or not any(path.iterdir())


def remove_orphans(parent: Path) -> list[Path]:
    """Remove scratch folders of this user whose owner has died, and empty files that were to have no name.

    Returns them. What cannot be removed is left, and so is an empty folder: nothing tells it from one of the user's.
    """
    removed = []
    for path in sorted([*parent.glob(f"{PREFIX}*"), *parent.glob(f".{NAMELESS}.*")]):
        try:
            found = path.lstat()
            if found.st_uid != os.geteuid():
                continue
            if is_temporary(path.name):
                if not stat.S_ISREG(found.st_mode) or found.st_size:
                    continue
                path.unlink()
            elif not stat.S_ISDIR(found.st_mode) or not _NAME.fullmatch(path.name) or not _remove_dead(path):
                continue
        except (OSError, DiskError):
            continue
        removed.append(path)
    return removed
