"""Waiting for other threads without becoming deaf: to signals, and to what ends the wait for another reason."""

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

LOOK_UP_SECONDS = 0.2
"""Waiting threads look up this often. A signal that arrives just before a thread blocks on a lock does not wake it."""

HANDLERS_BACK_SECONDS = 0.002
"""While foreign code runs on a thread of its own, handlers of signals are put back this often."""


def wait_for(
    attempt: Callable[[float], Result], not_yet: type[Exception], check: Callable[[], None] = lambda: None
) -> Result:
    """What an attempt returns that may take time.

    Parameters
    ----------
    attempt : waits so many seconds at most, and raises ``not_yet`` where that was not enough.
    check : called before each attempt; raises what is to end the wait.
    """
    while True:
        check()
        try:
            return attempt(LOOK_UP_SECONDS)
        except not_yet:
            continue


def interruptibly(work: Callable[[], object]) -> None:
    """Run foreign code that takes long and looks at nothing, such as a compiler, on a thread of its own.

    Signals and the current deadline end the wait; the code itself then goes on in the background. Handlers of
    signals are put back while it runs: NVRTC has its own meanwhile, which end the process without a word.

    Raises
    ------
    TimeLimitError, RequestedEndError : the current deadline came.
    """
    done: Future[object] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="oocbe-compiler", daemon=True).start()
    handlers = {}
    if threading.current_thread() is threading.main_thread():  # elsewhere Python sets no handlers
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
