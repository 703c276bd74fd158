"""From exceptions to exit codes: the one place where a command's failure becomes a message and a number.

Every command is wrapped by :func:`guarded`. Errors are printed on standard error in one line, without a traceback
unless ``--debug`` asks for it. Besides the codes in :mod:`oocbe.errors` there are those of the shell: 130 after Ctrl-C,
143 after SIGTERM, 129 after SIGHUP, 141 when the reader of our output went away.

A first signal is a request where work can wind down (:mod:`oocbe.runtime.interruption`): the command then prints and
writes what is known by itself. Anywhere else it raises, and what ``--json`` promised is printed here.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ParamSpec

import typer

from oocbe.cli.envelope import begin, failure
from oocbe.cli.memory import limited
from oocbe.cli.output import note, print_json
from oocbe.errors import EXIT_INTERRUPTED, RequestedEndError
from oocbe.model.results import failure as failures
from oocbe.model.results.failure import Failure, failure_of
from oocbe.runtime.address_space import ARRAYS_BYTES, require
from oocbe.runtime.interruption import END_SIGNALS, Interruption, heard
from oocbe.runtime.memory import is_want_of_memory
from oocbe.runtime.urls import refuse_url

EXITS_BY_SIGNAL = tuple(128 + number for number in END_SIGNALS)
"""Exit codes after a signal, as a shell tells them."""

EXIT_BROKEN_PIPE = 128 + 13
"""Exit code where the reader of the output went away: SIGPIPE, which the signal module lacks on some systems."""

AGAIN_SECONDS = 0.01
"""After so long an interruption that was lost arrives again."""

Parameters = ParamSpec("Parameters")

ended_with: int | None = None
"""Exit code of the command that this process has run, from its end on: whatever comes then, that is the answer."""


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived; raised so that temporary files are removed on the way out, as after Ctrl-C.

    Attributes
    ----------
    number : of the signal.
    """

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(number)
        self.number = number


def guarded(command: Callable[Parameters, int | None]) -> Callable[Parameters, None]:
    """Wrap a command that returns its exit code (None: 0) so that its failures become messages and exit codes.

    A command that has a ``debug`` parameter shows the traceback when it is set.
    """

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        begin(command.__name__, kwargs)
        with heard(_raised()) as interruption:
            try:
                require(ARRAYS_BYTES, "loading NumPy")
                _refuse_urls(kwargs)
                with _lost_interruptions_come_again(interruption), limited(kwargs.get("memory")):
                    code = command(*args, **kwargs) or 0
                    sys.stdout.flush()  # a reader that went away shows here and not in the interpreter's exit
                    if code == EXIT_INTERRUPTED:
                        note(f"oocbe: {message_of(KeyboardInterrupt())}")
            except typer.Exit:
                raise
            except (Exception, KeyboardInterrupt, Terminated) as caught:
                error = interruption.behind(caught)
                interruption.heed()
                is_interruption = isinstance(error, KeyboardInterrupt | Terminated | RequestedEndError)
                code = exit_code_of(error)
                files = kwargs.get("files")
                if is_interruption and isinstance(files, list) and len(files) > 1:
                    interruption.is_answered = True  # a line a file, and none of them had begun
                if kwargs.get("json") and not interruption.is_answered and not isinstance(error, BrokenPipeError):
                    with suppress(OSError):  # standard output may be what failed
                        print_json(failure("interrupted") if is_interruption else failure("error", _error_json(error)))
                report(error, debug=bool(kwargs.get("debug")))
                # A Ctrl-C inside code that was given as text (Numba makes such) leaves a mark by which Python, run with
                # -m, kills itself with SIGINT at its end, whatever exit code is asked for. Evaluating text removes it.
                eval("None")
            if code == EXIT_INTERRUPTED and interruption.number is not None:
                code = 128 + interruption.number
            global ended_with
            ended_with = code
        raise typer.Exit(code)

    return run


def _refuse_urls(parameters: Mapping[str, object]) -> None:
    """Refuse (UsageError) URLs where a command takes paths; one that takes URLs, too, takes text."""
    for name, value in parameters.items():
        for given in value if isinstance(value, list) else [value]:
            if isinstance(given, Path):
                is_argument = name in ("file", "files", "tree", "out")
                refuse_url(given, f"the argument {name.upper()}" if is_argument else f"--{name.replace('_', '-')}")


def _error_json(error: BaseException) -> dict[str, object]:
    """An error as JSON: its kind, the message that is printed, and the command's exit code."""
    if isinstance(error, Exception):
        return failure_of(error).to_json()
    return Failure(type(error).__name__, message_of(error), exit_code_of(error)).to_json()


def _raised() -> dict[int, Callable[[], BaseException]]:
    """What signals raise that are no requests; a shell starts what runs in the background with Ctrl-C ignored, and
    ``nohup`` with SIGHUP."""
    raised = {number: partial(Terminated, number) for number in END_SIGNALS} | {signal.SIGINT: KeyboardInterrupt}
    return {number: make for number, make in raised.items() if signal.getsignal(number) is not signal.SIG_IGN}


def exit_code_of(error: BaseException) -> int:
    """What the shell is told about an exception."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if isinstance(error, Terminated):
        return 128 + error.number
    if isinstance(error, BrokenPipeError):
        return EXIT_BROKEN_PIPE
    assert isinstance(error, Exception)
    return failures.exit_code_of(error)


def message_of(error: BaseException) -> str:
    """One line for people about an exception: what was wrong and, where it is known, what to do."""
    if isinstance(error, KeyboardInterrupt | Terminated):
        if _was_interrupted_before(error):
            return "interrupted again while temporary files were removed; the next run removes what is left"
        return "interrupted; temporary files are removed"
    return failures.message_of(error)


def _was_interrupted_before(error: BaseException) -> bool:
    """Whether an interruption came while the program was ending because of another one."""
    before = error.__context__
    while before is not None and not isinstance(before, KeyboardInterrupt | Terminated):
        before = before.__context__
    return before is not None


def report(error: BaseException, debug: bool) -> None:
    """Say on standard error what went wrong; nothing where the reader of the output went away."""
    if isinstance(error, BrokenPipeError):
        # The interpreter flushes standard output once more when it ends; give it somewhere to put the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if debug:
        import traceback

        traceback.print_exception(error)
    typer.echo(f"oocbe: {message_of(error)}", err=True)


@contextmanager
def _lost_interruptions_come_again(interruption: Interruption) -> Iterator[None]:
    """Within the block, a signal that Python could only print arrives once more.

    What is raised while Python calls a destructor or a callback of a weak reference goes nowhere. A solve would run on.
    """
    timers: list[threading.Timer] = []

    def again(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_value is not None and is_want_of_memory(unraisable.exc_value):
            return  # whoever wanted memory says so; a destructor had none to say more
        if not issubclass(unraisable.exc_type, KeyboardInterrupt | Terminated):
            before(unraisable)
            return
        number = unraisable.exc_value.number if isinstance(unraisable.exc_value, Terminated) else signal.SIGINT
        # Later, and out of the callback: here it would be lost again.
        timers.append(threading.Timer(AGAIN_SECONDS, interruption.arrive_again, (number,)))
        timers[-1].daemon = True
        timers[-1].start()

    before, sys.unraisablehook = sys.unraisablehook, again
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()
