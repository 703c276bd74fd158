"""Locks of folders, one process each; the operating system releases a lock when its owner dies.

The lock is ``flock`` on a file inside the folder. The file names the owner, for the error message of a second process.
The lock of a killed owner is free at once for the next process. Process numbers do not decide this: they are reused and
differ between containers.
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
"""Name of the lock file in a folder."""


class FolderLock:
    """A lock of this process until :meth:`release` or the end of the process.

    Attributes
    ----------
    previous : previous owner that did not release it, such as ``process 4711 on node3``; empty if there is none.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle: int | None = handle
        self.previous = _owner(handle)
        with suppress(OSError):  # the owner's name is for messages only; a lock works on a full disk
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    @classmethod
    def take(cls, folder: Path) -> FolderLock:
        """Lock an existing folder.

        Raises UsageError: another process has the lock, or the folder was removed meanwhile; DiskError: the file system
        has no locks, or the lock file cannot be created.
        """
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
