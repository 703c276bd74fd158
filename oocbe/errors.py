"""The exception tree: every error that oocbe expects to raise derives from :class:`OocbeError`.

A message names what was wrong, where (file and line, table, bucket), and what to do. Each class carries the exit code
that the command line returns for it, so that the mapping lives in one place.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

Raised = TypeVar("Raised", bound=BaseException)

EXIT_OPTIMAL = 0
"""Exit code of a proven answer."""

EXIT_USAGE = 2
"""Exit code of wrong use or input."""

EXIT_INFEASIBLE = 10
"""Exit code where nothing is feasible."""

EXIT_NOTHING_BETTER = 11
"""Exit code where nothing is better than the value that was given."""

EXIT_LIMIT = 20
"""Exit code where a limit was reached before the proof."""

EXIT_RESOURCES = 30
"""Exit code where memory or disk ran out."""

EXIT_CORRUPT = 40
"""Exit code of corrupt data."""

EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT."""


MOST_DIGITS, SHOWN_DIGITS = 60, 12
"""Digits (and commas among them) up to which numbers are shown whole in messages, and those at the front of others."""

_LONG_NUMBER = re.compile(rf"[0-9][0-9,]{{{MOST_DIGITS},}}")


def _shortened(number: re.Match[str]) -> str:
    digits = number[0].replace(",", "")
    return f"{digits[:SHOWN_DIGITS]}… ({len(digits):,} digits)"


def amount(number: int, noun: str) -> str:
    """A number of things for a message: ``1 clause``, ``3,000 clauses``, ``2 probabilities``."""
    plural = f"{noun.removesuffix('y')}ies" if noun.endswith("ty") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def install_hint(*extras: str) -> str:
    """How an extra of oocbe, or one of several, is installed, as the end of a message: it is not on PyPI."""
    return "in a copy of oocbe's repository: " + " or ".join(f"pip install -e '.[{extra}]'" for extra in extras)


class OocbeError(Exception):
    """Base of all errors raised on purpose.

    Attributes
    ----------
    exit_code : int
        What ``oocbe`` returns to the shell when this error ends a command.
    """

    exit_code: int = EXIT_USAGE

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(_LONG_NUMBER.sub(_shortened, text) if isinstance(text, str) else text for text in arguments))


class UsageError(OocbeError):
    """An option, argument or combination of arguments that makes no sense."""


class FormatError(OocbeError):
    """A malformed input file.

    Parameters
    ----------
    path : the file read.
    line : 1-based line of the damage, or None where no line applies (binary data, unreadable archive).
    message : what was found and what was expected.
    """

    def __init__(self, path: str | Path, line: int | None, message: str) -> None:
        self.path = str(path)
        self.line = line
        where = self.path if line is None else f"{self.path}, line {line}"
        super().__init__(f"{where}: {message}")


class UnsupportedError(OocbeError):
    """Valid input that this version cannot treat; the message names the missing part."""


class ModelError(OocbeError):
    """A problem, function, constraint or table whose parts contradict one another."""


class ValueRangeError(OocbeError):
    """A sum or product of values that could leave the range of every supported dtype."""


class FloatRangeError(ValueRangeError):
    """An intermediate product of floats left the range of float64; the final result may be within it."""


class LimitError(OocbeError):
    """A time, row or gap limit given by the user was reached before the proof."""

    exit_code = EXIT_LIMIT


class TimeLimitError(LimitError):
    """The time limit was reached before the proof."""


class RequestedEndError(TimeLimitError):
    """A signal requested the end before the proof, whatever the time limit."""

    exit_code = EXIT_INTERRUPTED


class ResourceError(OocbeError):
    """Memory or disk ran out; the message has requested, used and limit in bytes."""

    exit_code = EXIT_RESOURCES


class DiskError(ResourceError):
    """A file of the work folder cannot be written: the disk or its limit is used up, or it fails.

    Attributes
    ----------
    is_full : whether using less disk space would help.
    """

    def __init__(self, message: str, is_full: bool = False) -> None:
        super().__init__(message)
        self.is_full = is_full


class ClusterError(OocbeError):
    """Work cannot continue: no worker is left, or the workers cannot process the requests."""

    exit_code = EXIT_RESOURCES


class CorruptDataError(OocbeError):
    """A stored table that is damaged: missing, truncated, swapped or altered chunks, or a wrong manifest."""

    exit_code = EXIT_CORRUPT


class InternalError(Exception):
    """Results that contradict each other: a mistake in oocbe, or memory that changed.

    No :class:`OocbeError`, as nothing may be expected to raise it, or go on after it; commands end with exit code 1.
    """


def interruption_in(error: BaseException) -> BaseException:
    """The Ctrl-C or request to terminate that became another error, or the error itself.

    A signal that is handled while a compiled function builds its result leaves an exception and a result, and Python
    reports that contradiction instead (SystemError), with the exception as its cause. One that is handled while a class
    is made, as modules load, becomes a RuntimeError. What is raised on purpose is no such error.
    """
    if isinstance(error, OocbeError):
        return error
    cause: BaseException | None = error
    while cause is not None:
        if not isinstance(cause, Exception):
            return cause
        cause = cause.__cause__ or cause.__context__
    return error


def without_frames(error: Raised) -> Raised:
    """An error without the frames that it and what led to it went through, and so without what these hold."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__
    return error
