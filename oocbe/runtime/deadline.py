"""A time limit for compiled loops: a flag set by a timer or a signal.

Loops run without the interpreter lock and have no clock. They poll the flag and return early; the caller then calls
:meth:`Deadline.check`.

Deadlines nest: an inner one ends no later than the outer one, and :func:`check_deadline` checks the innermost.
Therefore long work far below a command (a reader, a relaxation, pieces shared by threads) needs no deadline argument.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import Self, TypeVar
from weakref import ReferenceType, WeakValueDictionary, finalize, ref

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import RequestedEndError, TimeLimitError
from oocbe.runtime.compilation import Stopwatch
from oocbe.runtime.interruption import current as current_interruption
from oocbe.runtime.memory import current as memory_limit

Item = TypeVar("Item")

MENTIONED_SHARE = 0.1
"""Minimum share of the time spent compiling to be reported at a limit; less would not have changed the result."""

_innermost: ContextVar[Deadline | None] = ContextVar("oocbe-deadline", default=None)

_flags: WeakValueDictionary[int, NDArray[np.int64]] = WeakValueDictionary()
"""Flags of all deadlines, by identity."""


def current() -> Deadline | None:
    """The deadline of the innermost enclosing block; None outside of all, and on new threads."""
    return _innermost.get()


def is_flag(array: NDArray[np.generic]) -> bool:
    """Whether an array is the flag of a deadline, which another thread may set at any time."""
    return id(array) in _flags


def check_deadline() -> None:
    """Raise the innermost block's :class:`TimeLimitError`, or :class:`ResourceError` beyond its memory limit."""
    now, limit, deadline = time.monotonic(), memory_limit(), _innermost.get()
    if limit is not None and now >= limit.due:
        limit.check()
    # The only tests in the common case: some solves make 100,000 checks in a second.
    if deadline is not None and (deadline.is_set or now >= deadline.end):
        deadline.check()


LOOK_SECONDS = 1e-3
"""Interval of the checks of :func:`looked`, in seconds: a look at the clock takes a third to a fourth of a check."""


def looked(items: Iterable[Item], step: int = 1) -> Iterator[Item]:
    """The items, with :func:`check_deadline` before the first and before each ``step``-th one that comes a millisecond
    or more after the last check.

    For loops over up to a million functions of a problem, or over all lines or tokens of a file.
    """
    due = -math.inf
    for number, item in enumerate(items):
        if number % step == 0 and (now := time.monotonic()) >= due:
            check_deadline()
            due = now + LOOK_SECONDS
        yield item


def current_flag() -> NDArray[np.int64]:
    """The flag of the deadline of the innermost block, for compiled loops; outside of all, one that is never set.

    A loop that finds it set returns an unfinished result: its caller must :func:`check_deadline` before using it.
    """
    deadline = _innermost.get()
    return np.zeros(1, dtype=np.int64) if deadline is None else deadline.flag


@contextmanager
def unlimited() -> Iterator[None]:
    """Within the block there is no deadline: for the processing of partial results after one."""
    token = _innermost.set(None)
    try:
        yield
    finally:
        _innermost.reset(token)


@contextmanager
def suppressed_limit() -> Iterator[None]:
    """Suppress a block's TimeLimitError, but not the end that a signal requests."""
    try:
        yield
    except RequestedEndError:
        raise
    except TimeLimitError:
        pass


class Deadline:
    """A time limit; as a context manager it is the current one within the block, which also ends its timer.

    A signal to end on the thread of its creation also triggers it (:mod:`oocbe.runtime.interruption`).

    seconds : from now, but no later than the deadline of the enclosing block; None: that deadline.
    end : on the clock of :func:`time.monotonic`; infinite without a limit.
    flag, is_set : int64 (1,), 0 until the deadline passes or an interruption arrives, then 1; the same as a bool.
    outermost : the deadline of the outermost enclosing block, possibly this one.
    """

    def __init__(self, seconds: float | None = None) -> None:
        outer = _innermost.get()
        self.outermost: Deadline = self if outer is None else outer.outermost
        self._compiling: Stopwatch = Stopwatch() if outer is None else outer._compiling
        if outer is not None and outer.end < math.inf:
            seconds = outer.remaining if seconds is None else min(seconds, outer.remaining)
        self.end: float = math.inf if seconds is None else time.monotonic() + seconds
        self._tokens: list[Token[Deadline | None]] = []
        self.is_set, self.flag = False, np.zeros(1, dtype=np.int64)
        _flags[id(self.flag)] = self.flag
        self._interruption = current_interruption()
        if self._interruption is not None:
            self._interruption.watch(self)
        self._timer: threading.Timer | None = None
        if seconds is not None and seconds <= threading.TIMEOUT_MAX:  # about 292 years; larger limits need no timer
            self._timer = threading.Timer(seconds, _interrupt, [ref(self)])
            self._timer.daemon = True
            self._timer.start()
            finalize(self, self._timer.cancel)  # a deadline that is no context manager leaves no thread either

    def __enter__(self) -> Self:
        self._tokens.append(_innermost.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _innermost.reset(self._tokens.pop())
        self.close()

    def close(self) -> None:
        """End the timer; :attr:`passed` stays valid."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def is_requested(self) -> bool:
        """Whether a signal to end has arrived."""
        return self._interruption is not None and self._interruption.is_requested

    @property
    def remaining(self) -> float:
        """Seconds left, at least 0; infinite without a limit."""
        return 0.0 if self.is_requested else max(0.0, self.end - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed."""
        return self.is_requested or self.is_set or time.monotonic() >= self.end

    def check(self) -> None:
        """Raise :class:`TimeLimitError` after the deadline, :class:`RequestedEndError` after a signal."""
        if self.passed:
            self.check_requested()
            raise TimeLimitError(self.reason)

    @property
    def reason(self) -> str:
        """Message for a passed deadline; with advice if compilation took much of the time."""
        compiled = self._compiling.compiled
        reached = "the time limit was reached"
        if compiled < MENTIONED_SHARE * self._compiling.elapsed:
            return reached
        return (
            f"{reached}; {compiled:.1f} s went into compiling loops: run `oocbe warm-up` once for this machine, "
            "and later runs find them in its cache"
        )

    def check_requested(self) -> None:
        """Raise :class:`RequestedEndError` after a signal to end."""
        if self._interruption is not None and self._interruption.is_requested:
            raise RequestedEndError(self._interruption.reason)

    def interrupt(self) -> None:
        """Set the flag, so that loops return now."""
        self.is_set, self.flag[0] = True, 1


LEAST_KEPT, MOST_KEPT = 0.05, 0.8
"""Seconds that are too few to be kept, as a solve may end within a second after its limit; and share of the time left
that is kept, at most."""


def keeping(seconds: float) -> AbstractContextManager[object]:
    """A block that ends so many seconds before the enclosing deadline; :data:`MOST_KEPT` of the time left, at most."""
    outer = _innermost.get()
    if seconds < LEAST_KEPT or outer is None or outer.end == math.inf:
        return nullcontext()
    return Deadline(outer.remaining - min(seconds, MOST_KEPT * outer.remaining))


def _interrupt(deadline: ReferenceType[Deadline]) -> None:
    """Interrupt a deadline that is still in use: its timer does not keep it."""
    if (used := deadline()) is not None:
        used.interrupt()
