"""Opening a file to read without ever waiting for it: what is no file is refused, not opened.

A named pipe without a writer would be waited for, a device may give bytes without end or none at all.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
"""Kinds of entries of a file system that are no plain files, and their names in messages."""

WAITING_MILLISECONDS = 50
"""Milliseconds of one wait for a pipe; the deadline is checked between two waits."""

_UNNAMED = ("/proc/", "/dev/fd/")
"""Where pipes of a shell are found, by way of the process that has them open: they have no name of their own."""


def kind_of(mode: int) -> str | None:
    """What has such a mode (``st_mode``), in words; None for a plain file."""
    return next((kind for is_one, kind in KINDS if is_one(mode)), None)


def no_file(path: str | Path, kind: str) -> OSError:
    """The error about something that is no file."""
    return OSError(errno.EINVAL, f"is no file but {kind}", str(path))


def plain_status(path: Path) -> os.stat_result:
    """What the system knows of a file or a link; OSError where there is none, or something that is no file."""
    status = path.lstat()
    if (kind := kind_of(status.st_mode)) is not None:
        raise no_file(path, kind)
    return status


def open_plain(path: str | Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open a plain file, at once, and close it again in children; links are followed unless ``flags`` say otherwise.

    Raises
    ------
    OSError : it cannot be opened; with "is no file but …" where a folder, pipe, socket or device has the name.
    """
    try:
        handle = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)
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
    """A file to be read once, or a pipe of the shell (``<(…)``), of which reading ends when the deadline comes.

    may_wait : whether a pipe with a name does as well, which has to be waited for until somebody writes into it.

    Raises
    ------
    OSError : it cannot be opened, or is neither. UsageError : a URL. TimeLimitError : while reading, where the deadline
        of the block comes.
    """
    refuse_url(path, "a file that is read")
    mode = Path(path).stat().st_mode
    if stat.S_ISFIFO(mode) and (may_wait or os.path.realpath(path).startswith(_UNNAMED)):
        with io.BufferedReader(PipeReader(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))) as pipe:
            yield pipe
        return
    with os.fdopen(open_plain(path), "rb") as file:
        yield file


def read_text(path: str | Path) -> str:
    """All of a file or pipe (:func:`opened`) that is UTF-8; OSError, or UnicodeDecodeError, where it is none."""
    with opened(path) as file:
        return file.read().decode("utf-8")


class PipeReader(io.RawIOBase):
    """What comes in by a pipe, whose reading ends when the innermost deadline comes, or a signal.

    Parameters
    ----------
    handle : open for reading. is_owner : whether it is closed with this.
    """

    def __init__(self, handle: int, is_owner: bool = True) -> None:
        super().__init__()
        self._handle, self._is_owner = handle, is_owner

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Wait for bytes, and read those that are there, at least one; 0 at the end."""
        ready = select.poll()
        ready.register(self._handle, select.POLLIN)
        while True:
            check_deadline()
            # A pipe with a name says nothing before its first writer: poll alone tells that from the end.
            if ready.poll(WAITING_MILLISECONDS):
                with suppress(BlockingIOError):
                    return os.readv(self._handle, [buffer])

    def close(self) -> None:
        """Close the handle where it is its own."""
        if not self.closed and self._is_owner:
            os.close(self._handle)
        super().close()
