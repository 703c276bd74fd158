"""A memory limit that is checked during work, like a time limit (:mod:`oocbe.runtime.deadline`).

Tables, messages and buffers are counted before allocation (:mod:`oocbe.execution.budget`). Uncounted memory (the
objects of a reader, the lists of a search for orders) appears in the process's total. Long work checks it with its
deadline, and ends with an error before the system would kill the process.

Only the process's private memory counts: not pages of files (libraries, mapped tables), which the system can reclaim.
"""

from __future__ import annotations

import errno
import time
from contextvars import ContextVar, Token
from pathlib import Path
from typing import Self

from oocbe.errors import ResourceError
from oocbe.runtime import address_space
from oocbe.runtime.process_memory import own_memory

PROGRAM_BYTES = 192 << 20
"""Bytes for program parts loaded within a block, excluded from the limit: libraries and compiled loops take
about 40 MiB, and compiling loops for the first time about 120 MiB more."""

DEVICE = Path("/dev/nvidiactl")
"""File of NVIDIA's driver."""

DRIVER_BYTES = 256 << 20
"""Bytes for a driver that starts within a block, excluded from the limit where there is one: a context and the compiler
of kernels took 224 MiB on an H100."""

INTERVAL_SECONDS = 0.005
"""Interval between checks of the process's memory, in seconds; a check takes about 20 microseconds."""

REMEDY = "raise the limit (--memory, OOCBE_MEMORY, or the argument memory)"
"""Advice in errors about a limit that is too small."""

SIGNS: tuple[tuple[type[Exception], str], ...] = (
    (RuntimeError, "can't start new thread"),
    (RuntimeError, "not enough memory"),  # of a codec
    (Exception, "failed to launch worker thread"),  # of Arrow, an error of its own kind
    (ImportError, "cannot allocate memory"),
    (ImportError, "failed to map segment"),
    (ImportError, "cannot map"),  # of Arrow's loader
    (SystemError, "without exception set"),  # of compiled loops
    (SystemError, "without setting an exception"),  # of NumPy
)
"""Errors of threads and libraries after a failed allocation, each with a part of its text in lower case."""

SIGNS_UNDER_A_LIMIT: tuple[tuple[type[Exception], str], ...] = (
    (OSError, "failed to map segment"),
    (OSError, "could not find/load shared object file"),  # of llvmlite
    (SystemError, "initialization"),  # of modules in C
)
"""Errors with that meaning only under a limit on address space; otherwise of other causes (non-executable files)."""

_innermost: ContextVar[MemoryLimit | None] = ContextVar("oocbe-memory", default=None)


current = _innermost.get
"""Returns the limit of the innermost enclosing block; None outside of all, and on new threads."""


def is_want_of_memory(error: BaseException) -> bool:
    """Whether an error means a failed allocation: of a block, a thread, or a library."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    signs = [*SIGNS, *(() if address_space.limit() is None else SIGNS_UNDER_A_LIMIT)]
    text = str(error).lower()
    if any(isinstance(error, kind) and sign in text for kind, sign in signs):
        return not (isinstance(error, OSError) and error.errno is not None)
    cause = error.__cause__ or error.__context__
    return isinstance(error, ImportError | SystemError) and cause is not None and is_want_of_memory(cause)


class MemoryLimit:
    """A limit on the process's memory within a block; blocks nest, and the tightest limit applies.

    Errors of failed allocations leave the outermost block as :class:`ResourceError`.

    limit : bytes, in addition to the program itself and the memory in use before; as an attribute, those of the
        enclosing block if fewer.
    due : when the memory is to be measured again, on the clock of :func:`time.monotonic`.
    """

    def __init__(self, limit: int) -> None:
        driver = DRIVER_BYTES if DEVICE.exists() else 0
        self.limit, self._most = limit, limit + PROGRAM_BYTES + driver + own_memory()
        outer = _innermost.get()
        if outer is not None and outer._most < self._most:
            self.limit, self._most = outer.limit, outer._most
        self.due = 0.0
        self._tokens: list[Token[MemoryLimit | None]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_innermost.set(self))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _innermost.reset(self._tokens.pop())
        if _innermost.get() is None and error is not None and is_want_of_memory(error):
            details = f" ({error})" if str(error) else ""
            raise ResourceError(
                f"memory could not be had{details}; the limit is {self.limit:,} bytes; {REMEDY}, or lower it where the "
                "system gives the process less (ulimit)"
            ) from error

    def check(self) -> None:
        """Raise :class:`ResourceError` if the process exceeds the limit; due every few milliseconds only."""
        self.due = time.monotonic() + INTERVAL_SECONDS
        taken = own_memory()
        if taken > self._most:
            raise ResourceError(
                f"the process has taken {taken:,} bytes of memory; the limit is {self.limit:,} beside the "
                f"{self._most - self.limit:,} of the program; {REMEDY}"
            )
