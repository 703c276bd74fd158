"""Failures become one line on standard error and an exit code; a traceback only with --debug."""

import errno
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from oocbe import __version__, errors
from oocbe.cli import inspect, output
from oocbe.cli.failures import Terminated, exit_code_of, guarded, message_of
from oocbe.cli.main import COMMANDS as PROGRAM
from oocbe.cli.main import app
from oocbe.cli.progress import SilentObserver
from oocbe.model.results.numerals import schema_version_of
from oocbe.runtime import interruption
from tests.helpers.signals import signalled_at_every_line

cli_bound, cli_solve = import_module("oocbe.cli.bound"), import_module("oocbe.cli.solve")

GRID = str(Path(__file__).parents[2] / "examples" / "grid.wcsp")

FAILURES = [
    (errors.UsageError("use"), 2, "use"),
    (errors.FormatError("f.spot", 3, "bad"), 2, "f.spot, line 3: bad"),
    (errors.ModelError("model"), 2, "model"),
    (errors.LimitError("limit"), 20, "limit"),
    (errors.TimeLimitError("the time limit was reached"), 20, "reached; no answer was found in time"),
    (errors.RequestedEndError("interrupted by Ctrl-C"), 130, "interrupted by Ctrl-C"),
    (errors.ResourceError("memory"), 30, "memory"),
    (errors.CorruptDataError("chunk 3"), 40, "chunk 3"),
    (MemoryError(), 30, "--memory"),
    (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/disk"), 30, "; free some space"),
    (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), 30, "; free some space"),
    (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/secret"), 2, "/secret: Permission denied"),
    (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), 2, "the current folder: No such file"),
    (FileNotFoundError(errno.ENOENT, "cannot open 'x'"), 2, "oocbe: cannot open 'x'"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (Terminated(), 143, "interrupted"),
    (ZeroDivisionError("oops"), 1, "internal error"),
]


@pytest.mark.parametrize(("error", "code", "part"), FAILURES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("debug", [False, True])
def test_a_failure_of_a_command(
    error: BaseException, code: int, part: str, debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "load_model", raiser(error))
    done = CliRunner().invoke(app, ["inspect", GRID, *(["--debug"] if debug else [])])
    assert done.exit_code == code
    assert done.stdout == ""
    assert part in done.stderr
    assert ("Traceback" in done.stderr) == debug
    assert debug or len(done.stderr.splitlines()) == 1


def raiser(error: BaseException) -> Callable[..., object]:
    def fail(*arguments: object, **named: object) -> object:
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


@pytest.mark.parametrize(
    ("error", "is_shown"),
    [
        (KeyError("lost"), True),
        (MemoryError(), False),
        (SystemError("finalize.__call__ returned NULL without setting an exception"), False),
    ],
)
def test_other_errors_in_destructors_are_shown_as_ever(error, is_shown, monkeypatch):
    """But for want of memory: whoever wanted it says so, in one line."""

    class Dying:
        def __del__(self):
            raise error

    @guarded
    def command():
        Dying()

    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == 0
    assert [unraisable.exc_type for unraisable in shown] == [type(error)] * is_shown


@pytest.mark.parametrize(("error", "is_shown"), [(KeyError("lost"), True), (MemoryError(), False)])
def test_other_errors_of_threads_are_shown_as_ever(error, is_shown, monkeypatch):
    @guarded
    def command():
        thread = threading.Thread(target=raiser(error))
        thread.start()
        thread.join()

    shown = []
    monkeypatch.setattr(threading, "excepthook", before := lambda failed: shown.append(failed.exc_type))
    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == 0
    assert shown == [type(error)] * is_shown
    assert threading.excepthook is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_line_of_the_frame_around_a_command_leaves_no_traceback(
    number, interrupts_heard, capsys, monkeypatch
):
    """From its handlers to their removal; the handler from before takes what comes before and afterwards."""

    @guarded
    def succeed():
        return 0

    def command():
        with pytest.raises(typer.Exit) as ended:
            succeed()
        return ended.value.exit_code

    monkeypatch.setattr(interruption, "GRACE_SECONDS", 60.0)
    ends = signalled_at_every_line(command, number, ("failures.py", "interruption.py", "contextlib.py"))
    assert ends == {0, 128 + number, "heard"}
    assert "Traceback" not in capsys.readouterr().err


COMMANDS = {
    "solve": ["solve", GRID, "--bounds", "constant"],
    "count": ["solve", GRID, "--task", "count"],
    "bound": ["bound", GRID, "--z", "2"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_prints_what_is_known(command, number, code, interrupts_heard, monkeypatch):
    class Pressing(SilentObserver):
        def bucket_done(self, place, *_):
            if place == 2:
                signal.raise_signal(number)

    for module in (cli_solve, cli_bound):
        monkeypatch.setattr(module, "observer_for", lambda *_: Pressing())
    done = CliRunner().invoke(app, [*COMMANDS[command], "--json", "--order-seconds", "0"])
    assert done.exit_code == code, done.stderr
    content = json.loads(done.stdout)
    assert (content["schema_version"], content["status"]) == (schema_version_of(command), "interrupted")
    assert content["notes"] == [f"interrupted by {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'}"]
    assert done.stderr.splitlines()[-1] == "oocbe: interrupted; temporary files are removed"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Terminated()])
@pytest.mark.parametrize("command", ["inspect", "propagate", "plan", "verify", "solve", "bound"])
def test_an_interrupted_command_that_knows_nothing_says_so_in_json(command, error, monkeypatch):
    module = import_module(f"oocbe.cli.{PROGRAM[command].module}")
    monkeypatch.setattr(module, "load_model" if hasattr(module, "load_model") else "load", raiser(error))
    more = [GRID] if command == "verify" else []
    done = CliRunner().invoke(app, [command, GRID, *more, "--json"])
    assert done.exit_code == exit_code_of(error)
    content = json.loads(done.stdout)
    assert (content.pop("program"), content.pop("input") is None) == (
        {"name": "oocbe", "version": __version__},
        command == "inspect",
    )
    assert content == {"schema_version": schema_version_of(command), "command": command, "status": "interrupted"}


def test_an_interrupted_join_of_several_files_says_so_in_json(monkeypatch, tmp_path):
    monkeypatch.setattr("oocbe.api.aggregation.aggregate", raiser(KeyboardInterrupt()))
    done = CliRunner().invoke(
        app, ["join", "a.csv", "b.csv", "--group-by", "shop", "--count", "-o", str(tmp_path / "o.csv"), "--json"]
    )
    assert (done.exit_code, json.loads(done.stdout)["status"]) == (130, "interrupted")


def test_an_error_is_said_in_json_too(tmp_path):
    (tmp_path / "bad.wcsp").write_text("bad 1\n")
    for command in ("solve", "plan", "bound", "inspect", "propagate"):
        done = CliRunner().invoke(app, [command, str(tmp_path / "bad.wcsp"), "--json"])
        content = json.loads(done.stdout)
        assert (content["status"], content["error"]["exit_code"]) == ("error", done.exit_code) == ("error", 2)
        assert content["error"]["type"] == "FormatError"
        assert content["error"]["message"] in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_answer_is_printed_lets_it_be_printed(number, interrupts_heard, monkeypatch):
    pressed = []

    def pressing(text, *arguments, **settings):
        if not pressed:  # a second signal would end the command
            pressed.append(number)
            signal.raise_signal(number)
        echo(text, *arguments, **settings)

    echo = typer.echo
    monkeypatch.setattr(output.typer, "echo", pressing)
    done = CliRunner().invoke(app, ["inspect", GRID, "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["kind"] == "problem"


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), Terminated(), errors.RequestedEndError("interrupted by Ctrl-C")]
)
@pytest.mark.parametrize("command", ["solve", "bound"])
def test_one_that_is_torn_out_before_its_work_had_begun_says_so_too(command, error, monkeypatch):
    """Signals are deferred by then: what is torn out has not looked at its deadline, such as a module that loads."""
    where = {
        "solve": "oocbe.api.solving.solve.solve",
        "bound": "oocbe.bounds.mini_buckets.mini_buckets_bound.bound",
    }
    monkeypatch.setattr(where[command], raiser(error))
    done = CliRunner().invoke(app, [command, GRID, "--json"])
    assert done.exit_code == exit_code_of(error)
    assert json.loads(done.stdout)["status"] == "interrupted"


@pytest.mark.parametrize(("files", "printed"), [(["a"], True), (["a", "b"], False)])
def test_an_interruption_before_several_files_have_begun_prints_no_object(files, printed, capsys):
    """Their answers are lines, and there are none."""

    @guarded
    def solve(files, json):
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit):
        solve(files=files, json=True)
    assert bool(capsys.readouterr().out) == printed
