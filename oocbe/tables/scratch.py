"""Scratch folders: for files that are not needed after the end of their owner, whatever its cause.

A scratch folder is locked by its owner. The creator of the next one beside it removes those of this user whose owner
has died. The name of the lock, :data:`MARKER`, identifies scratch folders: a run directory, or a folder of the user,
may have a similar folder name.

A lock of a folder is ``flock`` on a file inside it; the operating system releases it when its owner dies. The file
names the owner, for the error message of a second process. The lock of a killed owner is free at once for the next
process. Process numbers do not decide this: they are reused and differ between containers.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import stat
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

from oocbe.errors import DiskError, UsageError
from oocbe.runtime.plain_files import open_plain
from oocbe.runtime.temporary_names import is_temporary
from oocbe.tables import disk

LOCK_NAME = "lock"
"""Name of the lock file in a folder."""


class FolderLock:
    """A lock of this process until :meth:`release` or the end of the process."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle: int | None = handle
        with suppress(OSError):  # the owner's name is for messages only; a lock works on a full disk
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)

    @classmethod
    def take(cls, folder: Path) -> FolderLock:
        """Lock an existing folder; UsageError: another process has it, or it is gone; DiskError: no lock can be had."""
        taken = cls.try_take(folder, create=True)
        if isinstance(taken, cls):
            return taken
        raise UsageError(
            f"{folder}: in use by {taken or 'another process'}; wait until it has ended, or choose another folder"
        )

    @classmethod
    def try_take(cls, folder: Path, create: bool, name: str = LOCK_NAME) -> FolderLock | str:
        """The lock, or its owner (empty if unknown); ``create``: whether to create a missing lock file."""
        path = folder / name
        flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        try:
            handle = open_plain(path, flags)
        except OSError as error:
            raise DiskError(f"{path}: no lock can be made there ({error.strerror}); choose another folder") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A previous owner may have removed the file between the opening and the locking.
            there = path.exists() and os.path.samestat(os.fstat(handle), path.lstat())
            if there:
                return cls(path, handle)
            owner = ""
        except OSError as error:
            owner = _owner(handle)
            if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK):
                os.close(handle)
                raise DiskError(
                    f"{path}: this file system cannot lock files ({error.strerror}); choose a folder on another one"
                ) from None
        os.close(handle)
        return owner

    def release(self) -> None:
        """Release the lock; the file remains, empty."""
        if self._handle is not None:
            with suppress(OSError):
                os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None


def host_of_owner(folder: Path, name: str) -> str:
    """Host of the owner of a folder's lock, also of a killed one; empty if the file names nobody."""
    try:
        handle = open_plain(folder / name, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        return _owner(handle).partition(" on ")[2]
    finally:
        os.close(handle)


def _owner(handle: int) -> str:
    """Text of a lock file, without unprintable characters, which could confuse a terminal."""
    text = os.pread(handle, 300, 0).decode(errors="replace").strip()
    return "".join(character for character in text if character.isprintable())


PREFIX = "oocbe-"
"""Prefix of the names of scratch folders."""

_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")
"""Pattern of the names of scratch folders; other folders are ignored."""

MARKER = "oocbe-scratch.lock"
"""Name of the lock of a scratch folder; a folder without it is never removed, whatever its name."""

NAMELESS = "oocbe-nameless"
"""Prefix of the temporary name of a nameless file, completed by :mod:`oocbe.runtime.temporary_names` so that it does
not collide with users' names."""

ATTEMPTS = 100
"""Attempts to make a folder while another process removes it."""

SETTLING_CHECKS, SETTLING_SECONDS = 10, 0.02
"""Number of checks, and seconds between them, after an interruption: Zarr writes on threads of its own, and a pending
write recreates its removed folder."""

FURTHER_TRIES = 2
"""Further attempts to remove a folder while a worker thread of a failed run is still writing part of a table."""


def default_parent() -> Path:
    """Parent of scratch folders: a batch job's own disk (``SLURM_TMPDIR``), ``TMPDIR``, or the system's folder."""
    slurm = os.environ.get("SLURM_TMPDIR", "")
    return Path(slurm) if slurm and Path(slurm).is_dir() else Path(tempfile.gettempdir())


class ScratchFolder:
    """A new folder, created immediately and removed by :meth:`close`.

    Without :meth:`close`, or where a signal interrupts it or the creation, the folder ends with this object.

    parent : folder in which it is created; created if missing.
    Raises UsageError: the parent is a file; DiskError: the folder cannot be created.
    """

    def __init__(self, parent: Path) -> None:
        try:
            disk.make_folder_of_user(parent)
            remove_orphans(parent)
            self._make_locked(parent.absolute())
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise
            raise DiskError(
                f"no folder for tables can be made in {parent} ({error}); choose another with --workdir, or scratch of "
                "an operator"
            ) from None

    def close(self, interrupted: bool = False) -> None:
        """Remove the folder and its contents; ``interrupted``: writes may still be pending.

        What a failing disk does not remove is left to the creator of the next scratch folder there.
        """
        try:
            self._remove(interrupted)
        except BaseException:  # a signal, such as at the end of a grace period; the error keeps this object alive
            self._remove(True)
            raise
        self._lock.release()
        self._end.detach()

    def _remove(self, interrupted: bool) -> None:
        for check in range(1 + (SETTLING_CHECKS if interrupted else FURTHER_TRIES)):
            if check:
                time.sleep(SETTLING_SECONDS)
            with suppress(OSError):
                _remove_locked(self.path)
            if not interrupted and not self.path.exists():  # if it exists, a worker wrote during the removal
                break

    def _make_locked(self, parent: Path) -> None:
        for _ in range(ATTEMPTS):
            self.path = parent / f"{PREFIX}{os.urandom(4).hex()}"
            self._end = weakref.finalize(self, _remove_of_process, os.getpid(), self.path)  # first: a signal may follow
            try:
                self.path.mkdir(0o700)
            except FileExistsError:
                self._end.detach()
                continue
            # Another process that cleans up may consider a folder without a lock an orphan.
            try:
                lock = FolderLock.try_take(self.path, create=True, name=MARKER)
            except DiskError:
                if self.path.exists():
                    self.path.rmdir()
                    raise
                continue
            if isinstance(lock, FolderLock):
                self._lock = lock
                return
        raise OSError(f"{ATTEMPTS} folders were removed while being made")


def _remove_of_process(process: int, path: Path) -> None:
    """Remove a scratch folder, unless this process is a fork of its owner."""
    if os.getpid() == process:
        with suppress(OSError):
            _remove_locked(path)


def _remove_locked(path: Path) -> None:
    """Remove a scratch folder, the lock last, so that a kill meanwhile leaves a recognisable orphan."""
    if path.is_dir():
        for entry in path.iterdir():
            if entry.name != MARKER:
                disk.remove(entry)
    disk.remove(path)


def _remove_dead(folder: Path) -> bool:
    """Remove a folder whose owner has died, and return whether it has; folders without a lock are not touched.

    Folders locked by another host are left to it, because file systems with locks per host report them as free.

    DiskError : the folder has no lock, or cannot be locked. OSError : it cannot be removed.
    """
    if host_of_owner(folder, MARKER) not in ("", platform.node()):
        return False
    lock = FolderLock.try_take(folder, create=False, name=MARKER)
    if not isinstance(lock, FolderLock):
        return False
    try:
        _remove_locked(folder)
    finally:
        lock.release()
    return True


def is_scratch(path: Path) -> bool:
    """Whether this is a scratch folder of any owner, or an empty one with such a name.

    An empty one may be left by a process that was killed at its beginning or end.
    """
    if not _NAME.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False
    return (path / MARKER).is_file() or not any(path.iterdir())


def remove_orphans(parent: Path) -> list[Path]:
    """Remove orphaned scratch folders of this user, and empty files with temporary names of nameless ones.

    Returns them. Skipped are files that cannot be removed, and empty folders, which may be the user's.
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
