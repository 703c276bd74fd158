"""Files and folders that are written under a hidden name beside their target, and then get its name.

Whoever is at work holds a lock (``flock``) on the file or folder itself, which the system gives up when the process
ends, however that is. So the next one that writes the same target can tell what a killed process has left, and removes
it, from what another one is still writing. Where a file system has no locks, or keeps them to each host, nothing that
could be another one's is removed: the host is part of the name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_NAME_CHARACTERS = 40
"""Characters of a target's name in that of its temporary one: file systems limit names to 255 bytes."""

SUFFIX = ".new"
"""End of temporary names."""

ATTEMPTS = 100
"""One that another process takes for a dead one's in the moment that it is made is made anew so often."""


@contextmanager
def temporary_beside(target: Path, is_folder: bool = False) -> Iterator[Path]:
    """A new, empty file or folder under a hidden name beside a target, to be filled and renamed within the block.

    What still has the hidden name at the end of the block is removed; so is before what killed processes of this user
    and host have left of the same target.

    Raises
    ------
    OSError : it cannot be made.
    """
    _remove_dead(target)
    for _ in range(ATTEMPTS):
        # Named before it is made: an interruption may come between any two steps.
        path = target.with_name(f"{_prefix(target)}{secrets.token_hex(8)}{SUFFIX}")
        handle: int | None = None
        try:
            if is_folder:
                path.mkdir()
            else:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            handle = _locked(path)
            if handle is None:
                continue
            yield path
            return
        finally:
            _remove(path)
            if handle is not None and handle >= 0:
                os.close(handle)
    raise OSError(errno.EAGAIN, f"{ATTEMPTS} temporary files were removed while being made", str(target))


def _prefix(target: Path) -> str:
    return f".{target.name[:MOST_NAME_CHARACTERS]}.{zlib.crc32(os.uname().nodename.encode()):08x}."


def _locked(path: Path) -> int | None:
    """A handle by which a file or folder is locked, -1 where there are no locks; None where another process has it."""
    try:
        handle = os.open(path, (os.O_RDONLY if path.is_dir() else os.O_RDWR) | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
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
    """Remove what killed processes of this user and host left of a target; what cannot be told, or removed, stays."""
    prefix = _prefix(target)
    with suppress(OSError):
        for path in list(target.parent.iterdir()):
            if not (path.name.startswith(prefix) and path.name.endswith(SUFFIX)):
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
    with suppress(OSError):
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
            return
        for _ in range(ATTEMPTS):
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                return
            time.sleep(0.01)
