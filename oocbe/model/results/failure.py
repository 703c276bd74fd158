"""An error as a record: of a command, or of one of many problems in another process."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from oocbe.errors import EXIT_RESOURCES, EXIT_USAGE, OocbeError, RequestedEndError, TimeLimitError
from oocbe.runtime.address_space import limit, remedy
from oocbe.runtime.memory import is_want_of_memory

EXIT_INTERNAL = 1
"""Exit code of an internal error of oocbe."""

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""System errors of an exhausted disk, quota or file size limit."""


@dataclass(frozen=True)
class Failure:
    """A failure: its error's class, or ``InternalError``; message with its remedy, if known; and exit code."""

    kind: str
    message: str
    exit_code: int

    def to_json(self) -> dict[str, object]:
        """The failure in JSON types."""
        return {"type": self.kind, "message": self.message, "exit_code": self.exit_code}


def failure_of(error: Exception) -> Failure:
    """The record of an error."""
    code = exit_code_of(error)
    return Failure(type(error).__name__ if code != EXIT_INTERNAL else "InternalError", message_of(error), code)


def exit_code_of(error: Exception) -> int:
    """Exit code of an error."""
    if isinstance(error, OocbeError):
        return error.exit_code
    if is_want_of_memory(error) or (isinstance(error, OSError) and error.errno in FULL_DISK):
        return EXIT_RESOURCES
    return EXIT_USAGE if isinstance(error, OSError) else EXIT_INTERNAL


def message_of(error: BaseException) -> str:
    """One-line description of an error, with its notes."""
    return "; ".join([_description_of(error), *getattr(error, "__notes__", [])])


def _description_of(error: BaseException) -> str:
    if isinstance(error, TimeLimitError) and not isinstance(error, RequestedEndError):
        return f"{error}; no answer was found in time"
    if isinstance(error, OocbeError):
        return str(error)
    if is_want_of_memory(error):
        most = limit()
        hint = "" if most is None else f"; {remedy(most)}"
        return f"out of memory; a lower --memory makes oocbe keep less in memory at a time{hint}"
    if isinstance(error, OSError):
        is_bare = isinstance(error, FileNotFoundError) and error.strerror == os.strerror(errno.ENOENT)
        nameless = "the current folder: " if is_bare else ""  # os.getcwd; libraries name the file in the text
        where = f"{error.filename}: " if error.filename else nameless
        hint = "; free some space" if error.errno in FULL_DISK else ""
        return f"{where}{error.strerror or error}{hint}"
    return f"internal error, please report it: {type(error).__name__}: {error} (--debug shows where)"
