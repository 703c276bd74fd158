"""A time limit that compiled loops can see: a flag that a timer sets, or a signal.

Loops run without the interpreter lock and know nothing of clocks. They look at the flag now and then and return early;
whoever called them asks :meth:`Deadline.check`.

Deadlines nest: within a block of one, another ends no later, and :func:`check_deadline` asks the innermost. So whatever
takes long far below a command (a reader, a relaxation, pieces of work that threads take in turn) need not be handed
one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import RequestedEndError, TimeLimitError
from oocbe.runtime.compilation import Stopwatch
from oocbe.runtime.interruption import current as current_interruption
from oocbe.runtime.memory import look_at_memory

Item = TypeVar("Item")

MENTIONED_SHARE = 0.1
"""Share of the time until a limit from which on compiling is told: less would not have changed what was reached."""

_innermost: ContextVar[Deadline | None] = ContextVar("oocbe-deadline", default=None)


def current() -> Deadline | None:
    """The deadline of the innermost block that this runs in; None outside of all, and on threads of their own."""
    return _innermost.get()


def check_deadline() -> None:
    """Raise :class:`TimeLimitError` where the deadline of the innermost block has come.

    Raise :class:`ResourceError` where the process has taken more memory than that block's limit.
    """
    look_at_memory()
    deadline = _innermost.get()
    if deadline is not None:
        deadline.check()


def looked(items: Iterable[Item]) -> Iterator[Item]:
    """The items; before each one :func:`check_deadline`. For loops over all functions of a problem, which may be a
    million."""
    for item in items:
        check_deadline()
        yield item


def current_flag() -> NDArray[np.int64]:
    """The flag of the deadline of the innermost block, for compiled loops; outside of all, one that is never set.

    A loop that saw it set leaves its result unfinished: its caller must :func:`check_deadline` before using that.
    """
    deadline = _innermost.get()
    return np.zeros(1, dtype=np.int64) if deadline is None else deadline.flag


@contextmanager
def unlimited() -> Iterator[None]:
    """Within the block there is no deadline: for what is done with what was found when one came."""
    token = _innermost.set(None)
    try:
        yield
    finally:
        _innermost.reset(token)


class Deadline:
    """A moment after which work ends; a context manager within which it is the current one, and that ends its timer.

    It also comes when a signal asks the thread that made it to end (:mod:`oocbe.runtime.interruption`).

    Parameters
    ----------
    seconds : from now, but no later than the deadline of the block that this runs in; None: when that one comes.

    Attributes
    ----------
    flag : int64 (1,), 0 until the moment has come or somebody interrupts, then 1.
    """

    def __init__(self, seconds: float | None = None) -> None:
        outer = _innermost.get()
        self._compiling: Stopwatch = Stopwatch() if outer is None else outer._compiling
        if outer is not None and outer._end is not None:
            seconds = outer.remaining if seconds is None else min(seconds, outer.remaining)
        self._end: float | None = None if seconds is None else time.monotonic() + seconds
        self._tokens: list[Token[Deadline | None]] = []
        self.flag: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._interruption = current_interruption()
        if self._interruption is not None:
            self._interruption.watch(self)
        self._timer: threading.Timer | None = None
        if seconds is not None and seconds <= threading.TIMEOUT_MAX:  # some 292 years, or longer than anyone waits
            self._timer = threading.Timer(seconds, self.interrupt)
            self._timer.daemon = True
            self._timer.start()

    def __enter__(self) -> Self:
        self._tokens.append(_innermost.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _innermost.reset(self._tokens.pop())
        self.close()

    def close(self) -> None:
        """End the timer; whether the moment has come is known all the same."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def is_requested(self) -> bool:
        """Whether a signal has asked to end."""
        return self._interruption is not None and self._interruption.is_requested

    @property
    def remaining(self) -> float:
        """Seconds left, at least 0; infinite without a limit."""
        if self.is_requested:
            return 0.0
        return float("inf") if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the moment has come."""
        interruption = self._interruption
        if interruption is not None and interruption.is_requested:
            return True
        return self._end is not None and (bool(self.flag[0]) or time.monotonic() >= self._end)

    def check(self) -> None:
        """Raise :class:`TimeLimitError` where the moment has come, :class:`RequestedEndError` where a signal came."""
        if self.passed:  # this alone while neither is so: some solves look twenty thousand times in a tenth of a second
            self.check_requested()
            raise TimeLimitError(self.reason)

    @property
    def reason(self) -> str:
        """What to say where the moment has come; and, where much of the time went into compiling, how to avoid that."""
        compiled = self._compiling.compiled
        reached = "the time limit was reached"
        if compiled < MENTIONED_SHARE * self._compiling.elapsed:
            return reached
        return (
            f"{reached}; {compiled:.1f} s went into compiling loops: run `oocbe warm-up` once for this machine, "
            "and later runs find them in its cache"
        )

    def check_requested(self) -> None:
        """Raise :class:`RequestedEndError` where a signal has asked to end."""
        if self._interruption is not None and self._interruption.is_requested:
            raise RequestedEndError(self._interruption.reason)

    def interrupt(self) -> None:
        """Make the loops that look at the flag return now."""
        self.flag[0] = 1
