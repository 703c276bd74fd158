"""From exceptions to messages and exit codes, for all commands.

Every command is wrapped by :func:`guarded`. Errors are printed on standard error in one line, without a traceback
unless ``--debug`` is given. Besides the codes in :mod:`oocbe.errors` there are those of the shell: 130 after Ctrl-C,
143 after SIGTERM, 129 after SIGHUP, 141 when the reader of the output has closed it.

Where work can wind down, a first signal is a request (:mod:`oocbe.runtime.interruption`), after which the command
prints and writes its partial result. Elsewhere it raises, and this module prints the JSON object of ``--json``.
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

from oocbe.cli.output import begin, failure, print_json, warn
from oocbe.errors import EXIT_INTERRUPTED, EXIT_RESOURCES, RequestedEndError
from oocbe.model.results import failure as failures
from oocbe.model.results.failure import Failure, failure_of
from oocbe.runtime.address_space import ARRAYS_BYTES, require
from oocbe.runtime.interruption import END_SIGNALS, Interruption, heard
from oocbe.runtime.memory import DEVICE, MemoryLimit, is_want_of_memory
from oocbe.runtime.urls import refuse_url

EXIT_BROKEN_PIPE = 128 + 13
"""Exit code after the reader of the output closed it: SIGPIPE, which the signal module lacks on some systems."""

AGAIN_SECONDS = 0.01
"""Delay before a lost interruption is raised again, in seconds."""

Parameters = ParamSpec("Parameters")

begun: float | None = None
"""When this process began, by :func:`time.perf_counter`, if it serves one command."""

asked_limit: float | None = None
"""Time limit of this process's command as it was given; its options have what the start of the process left of it."""

ended_with: int | None = None
"""Exit code of this process's command, set at its end; later events do not change it."""


class Terminated(BaseException):
    """SIGTERM or SIGHUP (``number``) arrived; raised so that temporary files are removed, as after Ctrl-C."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(number)
        self.number = number


def guarded(command: Callable[Parameters, int | None]) -> Callable[Parameters, None]:
    """Wrap a command that returns its exit code (None: 0) so that its failures become messages and exit codes.

    A command with a ``debug`` parameter shows the traceback if it is set.
    """

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        global ended_with
        begin(command.__name__, kwargs)
        code: int | None = None
        try:
            with heard(_raised()) as interruption:
                try:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)  # those that came while modules were loaded
                    require(ARRAYS_BYTES, "loading NumPy")
                    _refuse_urls(kwargs)
                    with _lost_interruptions_come_again(interruption), limited(kwargs.get("memory")):
                        code = command(*args, **kwargs) or 0
                        sys.stdout.flush()  # detects a closed reader here instead of at the interpreter's exit
                        if code == EXIT_INTERRUPTED:
                            warn(message_of(KeyboardInterrupt()))
                except typer.Exit:
                    raise
                except (Exception, KeyboardInterrupt, Terminated) as caught:
                    error = interruption.behind(caught)
                    interruption.heed()
                    is_interruption = isinstance(error, KeyboardInterrupt | Terminated | RequestedEndError)
                    code = exit_code_of(error)
                    if code == EXIT_RESOURCES and getattr(error, "filename", "") is None and kwargs.get("workdir"):
                        error.add_note("another --workdir may have more")
                    files = kwargs.get("files")
                    if is_interruption and command.__name__ == "solve" and isinstance(files, list) and len(files) > 1:
                        interruption.is_answered = True  # one line per file, and none had begun
                    if kwargs.get("json") and not interruption.is_answered and not isinstance(error, BrokenPipeError):
                        with suppress(OSError):  # standard output may be what failed
                            answer = failure("interrupted") if is_interruption else failure("error", _error_json(error))
                            print_json(answer)
                    report(error, debug=bool(kwargs.get("debug")))
                    # A Ctrl-C inside code from text (such as Numba's) sets a flag by which Python, run with -m, kills
                    # itself with SIGINT at its end, whatever the exit code. Evaluating text clears the flag.
                    eval("None")
                if code == EXIT_INTERRUPTED and interruption.number is not None:
                    code = 128 + interruption.number
                ended_with = code
        except (KeyboardInterrupt, Terminated) as late:  # between two of these blocks
            if code is None:
                code = exit_code_of(late)
                report(late, debug=False)
        ended_with = code
        raise typer.Exit(code)

    return run


def _refuse_urls(parameters: Mapping[str, object]) -> None:
    """Raise UsageError for a URL in a parameter of type path; parameters that accept URLs have type text."""
    for name, value in parameters.items():
        for given in value if isinstance(value, list) else [value]:
            if isinstance(given, Path):
                is_argument = name in ("file", "files", "tree", "out")
                refuse_url(given, f"the argument {name.upper()}" if is_argument else f"--{name.replace('_', '-')}")


def _error_json(error: BaseException) -> dict[str, object]:
    """An error as JSON: its kind, the printed message, and the command's exit code."""
    if isinstance(error, Exception):
        return failure_of(error).to_json()
    return Failure(type(error).__name__, message_of(error), exit_code_of(error)).to_json()


def _raised() -> dict[int, Callable[[], BaseException]]:
    """Exceptions for signals that are no requests, without ignored signals: a shell starts background processes with
    Ctrl-C ignored, and ``nohup`` with SIGHUP ignored."""
    raised = {number: partial(Terminated, number) for number in END_SIGNALS} | {signal.SIGINT: KeyboardInterrupt}
    return {number: make for number, make in raised.items() if signal.getsignal(number) is not signal.SIG_IGN}


def exit_code_of(error: BaseException) -> int:
    """The exit code for an exception."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if isinstance(error, Terminated):
        return 128 + error.number
    if isinstance(error, BrokenPipeError):
        return EXIT_BROKEN_PIPE
    assert isinstance(error, Exception)
    return failures.exit_code_of(error)


def message_of(error: BaseException) -> str:
    """One line about an exception: the error and, if known, a remedy."""
    if isinstance(error, KeyboardInterrupt | Terminated):
        if _was_interrupted_before(error):
            return "interrupted again while temporary files were removed; the next run removes what is left"
        return "interrupted; temporary files are removed"
    return failures.message_of(error)


def _was_interrupted_before(error: BaseException) -> bool:
    """Whether an interruption arrived while another one was ending the program."""
    before = error.__context__
    while before is not None and not isinstance(before, KeyboardInterrupt | Terminated):
        before = before.__context__
    return before is not None


def report(error: BaseException, debug: bool) -> None:
    """Print an error on standard error; nothing if the reader of the output has closed it."""
    if isinstance(error, BrokenPipeError):
        # The interpreter flushes standard output again at its end; redirect the rest to the null device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if debug:
        import traceback

        traceback.print_exception(error)
    warn(message_of(error))


@contextmanager
def _lost_interruptions_come_again(interruption: Interruption) -> Iterator[None]:
    """Within the block, a signal whose exception Python only printed is raised again.

    Python discards exceptions raised in a destructor or a callback of a weak reference, so that a solve would continue.
    """
    timers: list[threading.Timer] = []

    def again(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_value is not None and is_want_of_memory(unraisable.exc_value):
            return  # the failed allocation raises its own error
        if not issubclass(unraisable.exc_type, KeyboardInterrupt | Terminated):
            before(unraisable)
            return
        number = unraisable.exc_value.number if isinstance(unraisable.exc_value, Terminated) else signal.SIGINT
        # Later, and outside of the callback, where it would be lost again.
        timers.append(threading.Timer(AGAIN_SECONDS, interruption.arrive_again, (number,)))
        timers[-1].daemon = True
        timers[-1].start()

    def ended(failed: threading.ExceptHookArgs) -> None:
        """A thread that lacks memory says nothing: errors of work are passed on to the thread that waits for it."""
        if failed.exc_value is None or not is_want_of_memory(failed.exc_value):
            of_threads(failed)

    before, sys.unraisablehook = sys.unraisablehook, again
    of_threads, threading.excepthook = threading.excepthook, ended
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = before, of_threads
        for timer in timers:
            timer.cancel()


MEMORY_VARIABLE = "OOCBE_MEMORY"
"""Environment variable of the limit, which also applies to commands without the flag."""


@contextmanager
def limited(flag: object) -> Iterator[None]:
    """Within the block, limit the process's memory to that of the flag, or else the environment, plus the program.

    If neither sets a limit, readers and verbs observe the default one.
    """
    given = flag if isinstance(flag, str) else os.environ.get(MEMORY_VARIABLE)
    if not given:
        yield
        return
    from oocbe.model.settings.machine import available_processors  # imports NumPy, which other commands do not need
    from oocbe.model.settings.option_values import parse_bytes
    from oocbe.runtime.data_limit import data_limit

    limit = parse_bytes("--memory" if isinstance(flag, str) else MEMORY_VARIABLE, given)
    assert limit is not None
    with MemoryLimit(limit):
        if DEVICE.exists():  # the driver maps far more memory than it uses
            yield
            return
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow's own maps a gigabyte for its first array
        with data_limit.of(limit, available_processors()):
            yield
