"""Loops in Python's interpreter while they are not compiled: the first tier of two.

Compiling a loop takes 0.1 to 4 s, and a small problem calls dozens of loops for some milliseconds each, a hundredth of
that when compiled. So the interpreter takes calls with few elements, until a loop has cost more than it may; then the
caller waits for the compiler. Another process compiles loops that are likely to be called again in the meantime.

Both tiers return the same: integers of the same value, floats up to the last digits of functions such as ``exp``.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError
from oocbe.kernels.cpu.compiler import Loop, compiler
from oocbe.runtime.deadline import current, is_flag

Function = TypeVar("Function", bound=Callable[..., Any])

INTERPRETED_ELEMENTS, MOST_ELEMENTS = 20_000, 1 << 20
"""Maximum elements of the arguments of a loop's first interpreted call, a pass over which takes about 10 ms, and of
any call: arrays that it may write are copied, which no limit of the memory counts."""

LOOP_SECONDS = 1.0
"""Processor seconds that the interpreter may spend on one loop: less than most compilations take. All seconds here are
those of a processor of ``PACE_SECONDS``; on a slower one they are longer, as compilations are."""

PROCESS_SECONDS = 4.0
"""The same of all loops of a process; ``OOCBE_INTERPRETED_SECONDS`` sets another number."""

PACE_READS, PACE_SECONDS, MOST_PACE = 4000, 0.00015, 8.0
"""Reads of an array by the interpreter, their processor seconds as assumed of a fast processor (two slow machines took
0.00055 and 0.00074), and the greatest ratio to these that is believed."""

LEFT_SECONDS, BACKGROUND_SECONDS = 0.02, 0.25
"""Interpreted seconds of a loop from which another process compiles it: after the end of this one, or at once, when it
competes with this one for the processors."""

POLL_STEPS = 1024
"""Steps of a range between two looks at the clock: about a millisecond."""

_STAND_INS: dict[int, Any] = {}
"""By identity of a loop or intrinsic that Python cannot interpret, or only slowly: the Python function in its place."""


def stands_in(loop: Any) -> Callable[[Function], Function]:
    """Interpret a function in place of a loop or an intrinsic (decorator)."""

    def register(function: Function) -> Function:
        _STAND_INS[id(loop)] = function
        return function

    return register


@cache
def interpreted(loop: Function) -> Function:
    """A loop, and the loops that it calls, for Python's interpreter: some hundred times slower than compiled."""
    function: Any = _STAND_INS.get(id(loop)) or loop.py_func  # type: ignore[attr-defined]
    codes = [function.__code__, *function.__code__.co_consts]  # those of comprehensions are among the constants
    found = {name: function.__globals__.get(name) for code in codes for name in getattr(code, "co_names", ())}
    loops = {name: interpreted(value) for name, value in found.items() if hasattr(value, "py_func")}
    loops |= {name: _STAND_INS[id(value)] for name, value in found.items() if id(value) in _STAND_INS}
    names = {**function.__globals__, "range": _timed_range, **loops}
    if "random" in function.__code__.co_names:
        names["np"] = _NUMPY
    made: Any = FunctionType(function.__code__, names, function.__name__)
    made.__defaults__ = function.__defaults__
    return cast(Function, made)


class _Draws:
    """The draws of compiled loops, which are those of NumPy's first generator; NumPy's own is left alone."""

    def __init__(self) -> None:
        self._generator = random.Random()
        self.random = self._generator.random

    def seed(self, seed: int) -> None:
        state = np.random.RandomState(int(seed)).get_state(legacy=False)["state"]
        self._generator.setstate((3, (*state["key"].tolist(), int(state["pos"])), None))

    def randint(self, end: int) -> int:
        if end <= 0:
            raise ValueError("empty range for randint")
        mask, drawn = (1 << (int(end) - 1).bit_length()) - 1, end
        while drawn >= end:
            drawn = self._generator.getrandbits(32) & mask if mask else 0
        return drawn

    def permutation(self, count: int) -> NDArray[np.int64]:
        found = np.arange(count)
        for i in range(count - 1, 0, -1):
            j = self.randint(i + 1)
            found[i], found[j] = found[j], found[i]
        return found


_NUMPY = SimpleNamespace(**{**vars(np), "random": _Draws()})
"""NumPy for interpreted loops that draw."""


@cache
def _pace() -> float:
    """How many times as long as ``PACE_SECONDS`` the interpreter takes for its reads here, at least 1."""
    numbers, found = np.arange(PACE_READS), math.inf
    for _ in range(3):
        begin = time.thread_time()
        for i in range(PACE_READS):
            numbers[i]
        found = min(found, time.thread_time() - begin)
    return min(max(1.0, found / PACE_SECONDS), MOST_PACE)


@cache
def _process_seconds() -> float:
    text = os.environ.get("OOCBE_INTERPRETED_SECONDS")
    if text is None:
        return PROCESS_SECONDS * _pace()
    with suppress(ValueError):
        if (seconds := float(text)) >= 0:
            return seconds
    raise UsageError(f"OOCBE_INTERPRETED_SECONDS must be a number of seconds, at least 0, not {text!r}")


def _loop_seconds() -> float:
    """Seconds for one loop; if the process has used up its own, each loop still gets some."""
    seconds = _process_seconds()
    return _pace() * LOOP_SECONDS if Interpreter.all_seconds < seconds else min(seconds, LEFT_SECONDS)


class _OutOfTimeError(Exception):
    """An interpreted call has taken too long."""


_look, _processor_end, _latest = math.inf, math.inf, math.inf
"""Limits of the main thread's interpreted call; other threads have none. Times of the next look at the processor's
clock, and of the end at the latest, by :func:`time.monotonic`; of the end by :func:`time.thread_time`, as the load of
a machine does not count."""


def _check_time() -> None:
    global _look
    now = time.monotonic()
    if now < _look or threading.current_thread() is not threading.main_thread():
        return
    left = min(_processor_end - time.thread_time(), _latest - now)
    if left <= 0:
        raise _OutOfTimeError
    _look = now + left


def _timed_range(*bounds: Any) -> Iterable[int]:
    """A range for interpreted loops, which looks at the clock: most loops over many steps have one inside."""
    _check_time()
    numbers = range(*bounds)
    return numbers if len(numbers) <= POLL_STEPS else _timed(numbers)


def _timed(numbers: range) -> Iterator[int]:
    for begin in range(0, len(numbers), POLL_STEPS):
        _check_time()
        yield from numbers[begin : begin + POLL_STEPS]


class Interpreter:
    """The calls of one loop that are interpreted.

    A call that takes too long, or whose integers overflow (NumPy keeps the width of narrow ones, compiled code does
    not), is undone and repeated compiled. Only the main thread interprets: other ones may share arrays that they write.
    """

    all_seconds = 0.0

    def __init__(self, compiled: Any, missing: Callable[[Any], Loop | None]) -> None:
        """``missing`` names the loop of some arguments if it is in no cache."""
        self._compiled, self._find_missing = compiled, missing
        self._seconds, self._elements = 0.0, 0
        self._is_refused = compiled.py_func.__closure__ is not None
        self._missing: Loop | None = None

    def takes(self, arguments: tuple[Any, ...]) -> bool:
        """Whether to interpret a call."""
        if self._is_refused or threading.current_thread() is not threading.main_thread():
            return False
        elements = _elements(arguments)
        if elements > MOST_ELEMENTS:
            return False
        self._missing = self._find_missing(arguments)
        if self._missing is None:  # the limit times the processor, which a warm start does not need
            return False
        limit = _loop_seconds()
        is_short = elements <= INTERPRETED_ELEMENTS or self._seconds * elements < limit * self._elements
        return self._seconds < limit and is_short

    def __call__(self, *arguments: Any) -> Any:
        """Interpret a call, or repeat it compiled."""
        global _look, _processor_end, _latest
        own = [array for array in _arrays(arguments) if array.flags.writeable and not is_flag(array)]
        before = [(array, array.copy()) for array in own]
        function: Any = interpreted(self._compiled)
        outer, begin, deadline, most = (_look, _processor_end, _latest), time.thread_time(), current(), _loop_seconds()
        _processor_end = min(_processor_end, begin + most)
        _latest = min(_latest, math.inf if deadline is None else deadline.end)
        _look = min(_look, time.monotonic() + most, _latest)
        try:
            with np.errstate(over="raise", divide="ignore", invalid="ignore", under="ignore"):
                return function(*arguments)
        except BaseException as error:
            for array, values in before:
                array[...] = values
            if not isinstance(error, Exception):
                raise
            self._is_refused = True
        finally:
            (_look, _processor_end, _latest), seconds = outer, time.thread_time() - begin
            self._seconds += seconds
            self._elements += _elements(arguments)
            Interpreter.all_seconds += seconds
            if self._missing is not None and deadline is not None and self._seconds > BACKGROUND_SECONDS * _pace():
                compiler.has_tried(self._missing)
            elif self._missing is not None and self._seconds > LEFT_SECONDS * _pace():
                compiler.leave(self._missing)
        return self._compiled(*arguments)


def _elements(argument: Any) -> int:
    if isinstance(argument, tuple):
        return sum(map(_elements, argument))
    return argument.size if isinstance(argument, np.ndarray) else 1


def _arrays(argument: Any) -> Iterator[Any]:
    if isinstance(argument, np.ndarray):
        yield argument
    elif isinstance(argument, tuple):
        for part in argument:
            yield from _arrays(part)
