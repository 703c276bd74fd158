"""Files and folders written under a hidden name beside their target, and then renamed.

The writer has a lock (``flock``) on the file itself, or on one in the folder; the system releases it when the process
ends in any way. The next writer of the same target thereby distinguishes the remains of a killed process, which it
removes, from files still being written. On file systems without locks, or with locks per host only, no file of a
possible other writer is removed: the host is part of the name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oocbe.runtime.faults import before

MOST_NAME_CHARACTERS = 40
"""Characters of a target's name in that of its temporary one: file systems limit names to 255 bytes."""

SUFFIX = ".partial"
"""End of temporary names."""

_NAME = re.compile(r"\..+\.[0-9a-f]{8}\.[0-9a-f]{16}" + re.escape(SUFFIX), re.DOTALL)

LOCK_NAME = ".lock"
"""Lock file in a folder that is being written; hidden, so that other programs ignore it."""

ATTEMPTS = 100
"""Attempts to create a temporary file, since another process may mistake it for a leftover and remove it."""


def temporary_name(name: str) -> str:
    """A hidden name for incomplete output; :func:`is_temporary` recognises it."""
    return f"{_prefix(name)}{os.urandom(8).hex()}{SUFFIX}"


def is_temporary(name: str) -> bool:
    """Whether a name was made by :func:`temporary_name`."""
    return _NAME.fullmatch(name) is not None


@contextmanager
def temporary_beside(target: Path, is_folder: bool = False) -> Iterator[Path]:
    """A new file or folder under a hidden name beside a target, to be filled and renamed within the block.

    It is empty except for a folder's lock (:data:`LOCK_NAME`), which is removed at the end of the block, as is anything
    still under the hidden name. Leftovers of killed processes of this user and host for the same target are removed
    first.

    Raises OSError: it cannot be created.
    """
    _remove_dead(target)
    for _ in range(ATTEMPTS):
        # The name is chosen before the creation: an interruption may occur between any two steps.
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
                remove(path)
            with suppress(OSError):
                if made is not None and os.path.samestat(made, target.lstat()):
                    (target / LOCK_NAME).unlink()
            if handle is not None and handle >= 0:
                os.close(handle)
    raise OSError(errno.EAGAIN, f"{ATTEMPTS} temporary files were removed while being made", str(target))


def keep_mode(path: Path, target: Path) -> None:
    """Set the permissions of a file or folder to those of the one that it is about to replace, if any."""
    with suppress(FileNotFoundError):
        path.chmod(stat.S_IMODE(target.stat().st_mode))


def replace(path: Path, target: Path) -> None:
    """Rename a file to a target, and set the permissions to those of the replaced file."""
    keep_mode(path, target)
    before("rename", target)
    path.replace(target)


def _prefix(name: str) -> str:
    return f".{name[:MOST_NAME_CHARACTERS]}.{zlib.crc32(os.uname().nodename.encode()):08x}."


def _locked(path: Path) -> int | None:
    """Handle of a lock on a file or folder; -1 where there are no locks; None if another process has it."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    if path.is_dir():
        path, flags = path / LOCK_NAME, flags | os.O_CREAT
    try:
        handle = os.open(path, flags, 0o600)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # a folder on a full disk: its first file will report it
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
    """Remove leftovers of killed processes of this user and host for a target; unrecognised files remain."""
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
                    try:
                        remove(path)
                    finally:
                        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with its contents, if it exists. Links are not followed.

    Works also while the thread of an interrupted write is still creating its last file there.
    """
    before("remove", path)
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    for _ in range(ATTEMPTS):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.01)
    shutil.rmtree(path)
