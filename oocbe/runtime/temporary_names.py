"""Files and folders that are written under a hidden name beside their target, and then get its name.

The writer holds a lock (``flock``) on the file itself, or on one in the folder; the system releases it when the process
ends, however it ends. So the next writer of the same target distinguishes the remains of a killed process, which it
removes, from files still being written. Where a file system has no locks, or has them for each host only, no file of a
possible other writer is removed: the host is part of the name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oocbe.runtime.file_hook import before

MOST_NAME_CHARACTERS = 40
"""Characters of a target's name in that of its temporary one: file systems limit names to 255 bytes."""

SUFFIX = ".partial"
"""End of temporary names."""

_NAME = re.compile(r"\..+\.[0-9a-f]{8}\.[0-9a-f]{16}" + re.escape(SUFFIX), re.DOTALL)

LOCK_NAME = ".lock"
"""File in a folder that is being written; readers of other programs pass over hidden ones."""

ATTEMPTS = 100
"""Attempts to create a temporary file that another process may mistake for a dead one and remove."""


def temporary_name(name: str) -> str:
    """A hidden name for incomplete output; :func:`is_temporary` recognises it."""
    return f"{_prefix(name)}{secrets.token_hex(8)}{SUFFIX}"


def is_temporary(name: str) -> bool:
    """Whether a name is one of :func:`temporary_name`."""
    return _NAME.fullmatch(name) is not None


@contextmanager
def temporary_beside(target: Path, is_folder: bool = False) -> Iterator[Path]:
    """A new file or folder under a hidden name beside a target, to be filled and renamed within the block.

    It is empty but for the lock of a folder (:data:`LOCK_NAME`), which goes when the block ends. What still has the
    hidden name then is removed; so is before what killed processes of this user and host have left of the same target.

    Raises
    ------
    OSError : it cannot be made.
    """
    _remove_dead(target)
    for _ in range(ATTEMPTS):
        # Named before it is made: an interruption may come between any two steps.
        path = target.with_name(temporary_name(target.name))
        handle: int | None = None
        made: os.stat_result | None = None
        try:
            before("folder" if is_folder else "create", path)
            if is_folder:
                path.mkdir()
                made = path.lstat()
            else:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            handle = _locked(path)
            if handle is None:
                continue
            yield path
            return
        finally:
            with suppress(OSError):
                _remove(path)
            with suppress(OSError):
                if made is not None and os.path.samestat(made, target.lstat()):
                    (target / LOCK_NAME).unlink()
            if handle is not None and handle >= 0:
                os.close(handle)
    raise OSError(errno.EAGAIN, f"{ATTEMPTS} temporary files were removed while being made", str(target))


def keep_mode(path: Path, target: Path) -> None:
    """Give a file or folder the permissions of the one that it is about to replace, if there is one."""
    with suppress(FileNotFoundError):
        path.chmod(stat.S_IMODE(target.stat().st_mode))


def replace(path: Path, target: Path) -> None:
    """Give a file the name of a target, and the permissions of the file that had it."""
    keep_mode(path, target)
    before("rename", target)
    path.replace(target)


def _prefix(name: str) -> str:
    return f".{name[:MOST_NAME_CHARACTERS]}.{zlib.crc32(os.uname().nodename.encode()):08x}."


def _locked(path: Path) -> int | None:
    """A handle by which a file or folder is locked, -1 where there are no locks; None where another process has it."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    if path.is_dir():
        path, flags = path / LOCK_NAME, flags | os.O_CREAT
    try:
        handle = os.open(path, flags, 0o600)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # of a folder on a full disk, which the first file in it shows
            return -1
        raise
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and os.path.samestat(os.fstat(handle), path.lstat()):
            return handle
        found = None
    except OSError as error:
        found = None if error.errno in (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK) else -1
    os.close(handle)
    return found


def _remove_dead(target: Path) -> None:
    """Remove what killed processes of this user and host left of a target; what cannot be recognised stays."""
    prefix = _prefix(target.name)
    with suppress(OSError):
        for path in list(target.parent.iterdir()):
            if not (path.name.startswith(prefix) and is_temporary(path.name)):
                continue
            with suppress(OSError):
                is_other = path.is_symlink() or not (path.is_dir() or path.is_file())
                if is_other or path.lstat().st_uid != os.geteuid():
                    continue
                handle = _locked(path)
                if handle is not None and handle >= 0:
                    _remove(path)
                    os.close(handle)


def _remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, also while a thread is still putting a last file there."""
    before("remove", path)
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    for _ in range(ATTEMPTS):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.01)
