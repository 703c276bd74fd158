"""Failures become one line on standard error and an exit code; a traceback only with --debug."""

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from oocbe import errors
from oocbe.cli import inspect
from oocbe.cli.failures import Terminated, exit_code_of, guarded, message_of
from oocbe.cli.main import app

GRID = str(Path(__file__).parents[2] / "examples" / "grid.wcsp")

FAILURES = [
    (errors.UsageError("use"), 2, "use"),
    (errors.FormatError("f.spot", 3, "bad"), 2, "f.spot, line 3: bad"),
    (errors.ModelError("model"), 2, "model"),
    (errors.LimitError("limit"), 20, "limit"),
    (errors.ResourceError("memory"), 30, "memory"),
    (errors.CorruptDataError("chunk 3"), 40, "chunk 3"),
    (MemoryError(), 30, "--memory"),
    (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/disk"), 30, "--workdir"),
    (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), 30, "--workdir"),
    (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/secret"), 2, "/secret: Permission denied"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (Terminated(), 143, "interrupted"),
    (ZeroDivisionError("oops"), 1, "internal error"),
]


@pytest.mark.parametrize(("error", "code", "part"), FAILURES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("debug", [False, True])
def test_a_failure_of_a_command(
    error: BaseException, code: int, part: str, debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "load", raiser(error))
    done = CliRunner().invoke(app, ["inspect", GRID, *(["--debug"] if debug else [])])
    assert done.exit_code == code
    assert done.stdout == ""
    assert part in done.stderr
    assert ("Traceback" in done.stderr) == debug
    assert debug or len(done.stderr.splitlines()) == 1


def raiser(error: BaseException) -> Callable[..., object]:
    def fail(*arguments: object) -> object:
        raise error

    return fail


def test_the_reader_that_went_away_has_the_shell_s_code() -> None:
    assert exit_code_of(BrokenPipeError()) == 141


def test_an_internal_error_asks_to_be_reported() -> None:
    assert "report" in message_of(ValueError("oops"))
    assert "ValueError: oops" in message_of(ValueError("oops"))


@pytest.mark.parametrize("first", [KeyboardInterrupt, Terminated])
def test_a_second_interruption_does_not_say_that_all_is_removed(first, capsys):
    @guarded
    def command():
        try:
            raise first
        finally:
            raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == 130
    assert "the next run removes what is left" in capsys.readouterr().err
    assert message_of(first()) == "interrupted; temporary files are removed"


@pytest.mark.parametrize(("flag", "value"), [("--order-seconds", "x"), ("--chunk-rows", "0"), ("--time-limit", "-1")])
def test_an_option_that_makes_no_sense_is_called_as_it_was_given(flag, value, monkeypatch):
    done = CliRunner().invoke(app, ["solve", GRID, flag, value])
    assert (done.exit_code, done.stderr.split(": ")[1]) == (2, flag)
    variable = "OOCBE_" + flag.strip("-").replace("-", "_").upper()
    monkeypatch.setenv(variable, value)
    done = CliRunner().invoke(app, ["solve", GRID])
    assert (done.exit_code, done.stderr.split(": ")[1]) == (2, variable)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_that_python_drops_comes_again(number, code, interrupts_heard):
    """What a signal's handler raises in a destructor goes nowhere."""

    class Dying:
        def __del__(self):
            signal.raise_signal(number)
            for _ in range(10_000):  # the handler is called somewhere here
                pass

    seen = []

    @guarded
    def command():
        dying = Dying()
        del dying
        seen.append("ran on")
        time.sleep(20)

    before = sys.unraisablehook
    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == code
    assert seen == ["ran on"]
    assert sys.unraisablehook is before


def test_other_errors_in_destructors_are_shown_as_ever(monkeypatch):
    class Dying:
        def __del__(self):
            raise KeyError("lost")

    @guarded
    def command():
        Dying()

    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == 0
    assert [unraisable.exc_type for unraisable in shown] == [KeyError]
