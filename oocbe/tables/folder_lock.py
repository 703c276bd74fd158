"""One process a folder: a lock that the operating system gives up when its owner dies.

The lock is ``flock`` on a file inside the folder; the file says which process holds it, for the message that a second
one gets. A killed owner's lock is free at once, so the next process takes it over; process numbers are not trusted for
that, because they are reused and differ between containers.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

from oocbe.errors import DiskError, UsageError
from oocbe.runtime.plain_files import open_plain

LOCK_NAME = "lock"
"""Name of the file in a folder that its owner has locked."""


class FolderLock:
    """A lock that this process holds until :meth:`release` or its end.

    Attributes
    ----------
    previous : who held it before and did not release it, such as ``process 4711 on node3``; empty where nobody.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle: int | None = handle
        self.previous = _owner(handle)
        with suppress(OSError):  # who holds it is for messages; the lock itself takes no room on a full disk
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    @classmethod
    def take(cls, folder: Path) -> FolderLock:
        """Lock a folder that exists.

        Raises
        ------
        UsageError : another process holds it, or the folder was removed meanwhile.
        DiskError : the file system has no locks, or the lock file cannot be made.
        """
        taken = cls.try_take(folder, create=True)
        if isinstance(taken, cls):
            return taken
        raise UsageError(
            f"{folder}: in use by {taken or 'another process'}; wait until it has ended, or choose another folder"
        )

    @classmethod
    def try_take(cls, folder: Path, create: bool, name: str = LOCK_NAME) -> FolderLock | str:
        """The lock, or who holds it (empty where that is unknown); ``create``: make the lock file where missing."""
        path = folder / name
        flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        try:
            handle = open_plain(path, flags)
        except OSError as error:
            raise DiskError(f"{path}: no lock can be made there ({error.strerror}); choose another folder") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever cleaned up before us may have removed the file between our opening and our locking it.
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
        """Give the lock up; the file stays, empty."""
        if self._handle is not None:
            with suppress(OSError):
                os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None


def host_of_owner(folder: Path, name: str) -> str:
    """Host of the process that has locked a folder, or was killed while it had; empty where nobody is named there."""
    try:
        handle = open_plain(folder / name, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        return _owner(handle).partition(" on ")[2]
    finally:
        os.close(handle)


def _owner(handle: int) -> str:
    """Text of a lock file, without characters that could confuse a terminal."""
    text = os.pread(handle, 300, 0).decode(errors="replace").strip()
    return "".join(character for character in text if character.isprintable())
