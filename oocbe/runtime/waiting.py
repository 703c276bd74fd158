"""Waiting for other threads that signals, deadlines and other checks can end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import TypeVar

from oocbe.runtime.deadline import check_deadline
from oocbe.runtime.interruption import END_SIGNALS

Result = TypeVar("Result")

LOOK_UP_SECONDS = 0.1
"""Longest wait without a check of signals, the time limit and processes, in seconds. A signal just before a thread
blocks on a lock does not wake it."""

HANDLERS_BACK_SECONDS = 0.002
"""Interval between restorations of signal handlers while foreign code runs on its own thread, in seconds."""


class StoppedError(Exception):
    """A wait was ended by another thread: the awaited work has been stopped."""


def wait_for(
    attempt: Callable[[float], Result], not_yet: type[Exception], check: Callable[[], None] = lambda: None
) -> Result:
    """Repeat an attempt until it returns a result.

    attempt : receives a time limit in seconds, and raises ``not_yet`` after it.
    check : called before each attempt; raises an error to end the wait.
    """
    while True:
        check()
        try:
            return attempt(LOOK_UP_SECONDS)
        except not_yet:
            continue


def interruptibly(work: Callable[[], object]) -> None:
    """Run long foreign code without checks, such as a compiler, on its own thread.

    Signals and the current deadline end the wait; the code itself continues in the background. Signal handlers are
    restored while it runs, because NVRTC installs its own, which end the process without a message.

    Raises TimeLimitError, RequestedEndError: the current deadline passed.
    """
    done: Future[object] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="oocbe-compiler", daemon=True).start()
    handlers = {}
    if threading.current_thread() is threading.main_thread():  # Python sets handlers on the main thread only
        handlers = {number: signal.getsignal(number) for number in END_SIGNALS}
    while True:
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)
        check_deadline()
        try:
            done.result(HANDLERS_BACK_SECONDS)
            return
        except NotYet:
            if done.done():  # just now, or an error of the work itself
                done.result()
                return
