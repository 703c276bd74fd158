"""Opening a file for reading without blocking: only plain files are opened.

Opening a named pipe without a writer would block; a device may deliver endless bytes or none.
"""

from __future__ import annotations

import errno
import io
import os
import re
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape, glob
from pathlib import Path
from typing import Any

from oocbe.runtime.deadline import check_deadline
from oocbe.runtime.urls import refuse_url

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
"""Kinds of file system entries other than plain files, with their names in messages."""

WAITING_MILLISECONDS = 50
"""Milliseconds of one wait for a pipe; the deadline is checked between two waits."""

OPEN_FILES = ("/proc/", "/dev/fd/", "/dev/std")
"""Beginnings of paths of files that a process has open, such as a shell's nameless pipes."""


def kind_of(mode: int) -> str | None:
    """Name of the kind of a file mode (``st_mode``); None for a plain file."""
    return next((kind for is_one, kind in KINDS if is_one(mode)), None)


def matches(pattern: str | Path) -> list[str]:
    """The files of a pattern, sorted; none if it is itself a file's name. Its folders may have brackets."""
    if re.search("[*?[]", str(pattern)) is None or os.path.exists(pattern):  # noqa: PTH110 (no error for long texts)
        return []
    path = Path(pattern)
    folder = next((p for p in path.parents if os.path.isdir(p)), path.parent)  # noqa: PTH112
    return sorted(glob(str(Path(escape(str(folder)), path.relative_to(folder))), recursive=True))  # noqa: PTH207


def no_file(path: str | Path, kind: str) -> OSError:
    """The error for an entry that is not a file."""
    return OSError(errno.EINVAL, f"is no file but {kind}", str(path))


def plain_status(path: Path) -> os.stat_result:
    """Status of a file or link; OSError if it is missing, or not a file."""
    status = path.lstat()
    if (kind := kind_of(status.st_mode)) is not None:
        raise no_file(path, kind)
    return status


def open_plain(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open a plain file without blocking, closed in child processes; links are followed unless ``flags`` exclude it.

    Raises OSError: it cannot be opened; with "is no file but …" for a folder, pipe, socket or device.
    """
    try:
        handle = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EISDIR, errno.ENODEV) and (kind := kind_of(Path(path).stat().st_mode)):
            raise no_file(path, kind) from None
        raise
    kind = kind_of(os.fstat(handle).st_mode)
    if kind is not None:
        os.close(handle)
        raise no_file(path, kind)
    return handle


@contextmanager
def opened(path: str | Path, may_wait: bool = False) -> Iterator[io.BufferedReader[Any]]:
    """A file to be read once, or a pipe of the shell (``<(…)``), whose reading ends at the deadline.

    may_wait : whether named pipes are allowed, which block until a writer opens them.

    Raises OSError: it cannot be opened, or is neither; UsageError: a URL; TimeLimitError: reading, at the deadline.
    """
    refuse_url(path, "a file that is read")
    mode = Path(path).stat().st_mode
    if stat.S_ISFIFO(mode) and (may_wait or os.path.realpath(path).startswith(OPEN_FILES)):
        with io.BufferedReader(PipeReader(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))) as pipe:
            yield pipe
        return
    with os.fdopen(open_plain(path), "rb") as file:
        yield file


def read_text(path: str | Path) -> str:
    """All text of a file or pipe (:func:`opened`) in UTF-8; OSError or UnicodeDecodeError on failure."""
    with opened(path) as file:
        return file.read().decode("utf-8")


class PipeReader(io.RawIOBase):
    """Raw reader of an open pipe until the innermost deadline or a signal; ``is_owner``: it closes the handle."""

    def __init__(self, handle: int, is_owner: bool = True) -> None:
        super().__init__()
        self._handle, self._is_owner = handle, is_owner

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Wait for bytes, and read the available ones, at least one; 0 at the end."""
        ready = select.poll()
        ready.register(self._handle, select.POLLIN)
        while True:
            check_deadline()
            # A read from a named pipe before its first writer looks like the end; only poll distinguishes them.
            if ready.poll(WAITING_MILLISECONDS):
                with suppress(BlockingIOError):
                    return os.readv(self._handle, [buffer])

    def close(self) -> None:
        """Close the handle if owned."""
        if not self.closed and self._is_owner:
            os.close(self._handle)
        super().close()
