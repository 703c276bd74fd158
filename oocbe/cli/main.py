"""The program ``oocbe`` with its commands.

Only the called command's module is imported, and only its flags are built: all commands together take a twentieth of a
small solve.

A closed stream is replaced by the null device, so that no file opened later gets its number and the printed output.
A failure to write output is an error that names the stream. A failure to write progress and notes on standard error is
ignored: the answer does not depend on them.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from oocbe import __version__
from oocbe.cli import COMPLETION_VARIABLE, failures
from oocbe.cli.output import EXITS_BY_SIGNAL
from oocbe.errors import EXIT_USAGE, UsageError
from oocbe.runtime.address_space import THREADS_VARIABLE
from oocbe.runtime.interruption import END_SIGNALS

YOUNG_CONTAINERS = 250_000
"""Number of new containers between two runs of Python's garbage collector; Python's default is 700, or 2,000. A small
solve makes about 115,000 permanent ones, for its modules and compiled code: two runs over them, while more are loaded,
took a twentieth of it. Tables are freed by reference counting, whatever this number is."""

if TYPE_CHECKING:
    app: typer.Typer
    """All commands."""


class _Command(NamedTuple):
    """The module of a command, and an example; a group of commands has examples of its own."""

    module: str
    function: str
    example: str = ""


COMMANDS = {
    "solve": _Command("solve", "solve", "oocbe solve examples/daily.spot --order-seconds 2 --solution daily.sol"),
    "bound": _Command("bound", "bound", "oocbe bound examples/daily.spot --z 4 --z auto"),
    "plan": _Command("solve", "plan", "oocbe plan examples/daily.spot --order min-fill"),
    "propagate": _Command("propagate", "propagate", "oocbe propagate model.mps.gz --json --output tighter.mps"),
    "verify": _Command("verify", "verify", "oocbe verify examples/daily.spot daily.sol"),
    "inspect": _Command("inspect", "inspect", "oocbe inspect examples/grid.wcsp"),
    "convert": _Command("convert", "convert", "oocbe convert examples/daily.spot daily.wcsp.gz"),
    "join": _Command("join", "join", "oocbe join sales.parquet rents.csv --group-by shop --max gain -o best.parquet"),
    "compile": _Command("trees", "compile_tree", "oocbe compile network.bif network.tree"),
    "query": _Command(
        "trees", "query", "oocbe query network.tree --cases cases.csv --targets rain,wind -o answers.csv"
    ),
    "uai": _Command("uai", "uai", "oocbe uai grid.uai grid.uai.evid - PR --time-limit 20 --memory 4GiB"),
    "dcop": _Command("dcop", "dcop", "oocbe dcop agents.yaml --z 5 --metrics metrics.json"),
    "stress": _Command("synth", "stress", "oocbe stress --rows 1e8 --memory 256MiB --workdir /scratch"),
    "trace": _Command("trace", "trace", "oocbe trace run.json.gz --png run.png"),
    "simulate": _Command("trace", "simulate", "oocbe simulate --workers 1000 --pieces run.json.gz --times 1000"),
    "warm-up": _Command("doctor", "warm_up", "oocbe warm-up"),
    "doctor": _Command("doctor", "doctor", "oocbe doctor --json"),
    "completion": _Command("doctor", "completion", "oocbe completion bash > completions/oocbe"),
    "synth": _Command("synth", "synth_app"),
}
"""Commands by name, in the order of the help."""


def program(called: str | None = None) -> typer.Typer:
    """The program with the called command, or with all commands if none has that name."""
    # Plain help: importing Rich would take as long as everything else together, and boxes are useless in a pipe.
    made = typer.Typer(
        name="oocbe",
        help="Bucket elimination on incomplete tables: exact answers about discrete problems.",
        epilog="Example: oocbe solve examples/daily.spot",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    made.callback()(common)
    for name in [called] if called in COMMANDS else COMMANDS:
        command = COMMANDS[name]
        function = getattr(import_module(f"oocbe.cli.{command.module}"), command.function)
        if command.example:
            made.command(name, epilog=f"Example: {command.example}")(function)
        else:
            made.add_typer(function, name=name)
    return made


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"oocbe {__version__}")
        raise typer.Exit


def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Bucket elimination on incomplete tables: exact answers about discrete problems."""


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = program()  # all commands, for callers of several
    return made


def main(begin: float | None = None) -> None:
    """Run the command line and leave the process with its exit code.

    begin : when the process began, by :func:`time.perf_counter`; time limits count from it. None: from their commands.
    """
    failures.begun = begin
    prepare_streams()
    gc.set_threshold(YOUNG_CONTAINERS)
    os.environ.setdefault(THREADS_VARIABLE, "1")  # idle BLAS threads spin: 0.07 s of processor time in each process
    # Numba imports SciPy's BLAS with its first loop, which takes longer than many solves. This process does not need
    # it; a program that uses the library may, so the library does not do this.
    sys.modules.setdefault("scipy.linalg", None)  # type: ignore[arg-type]
    for number in END_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    atexit.register(gc.freeze)  # the end of a process frees all; a last run over all containers takes 0.2 to 0.5 s
    atexit.register(_ignore_signals)
    if COMPLETION_VARIABLE in os.environ:  # a shell requests completions
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    called = sys.argv[1] if len(sys.argv) > 1 else None
    if called in ("mpe", "count", "count-optimal", "kbest", "logz", "marginals", "min-marginals"):
        failures.report(UsageError(f"{called} is a task: oocbe solve FILE --task {called}"), debug=False)
        raise SystemExit(EXIT_USAGE)
    try:
        try:
            program(called)()
        except OSError as error:  # of output outside of commands, such as help
            failures.report(error, debug=False)
            raise SystemExit(failures.exit_code_of(error)) from None
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
        if code in EXITS_BY_SIGNAL:
            _leave(code)
        failures.ended_with = code
        raise


def _end(number: int, frame: FrameType | None) -> None:
    """Signal handler before a command begins, and after it has ended, when a signal only speeds up the exit."""
    _leave(128 + number if failures.ended_with is None else failures.ended_with)


def _leave(code: int) -> NoReturn:
    """End the process without waiting for threads: all output is written."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _ignore_signals() -> None:
    """Ignore signals: Python restores default handlers during its shutdown, and a signal would change the exit code."""
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


NAMES = ("stdin", "stdout", "stderr")
"""Python's names of the streams, by number."""


class _Stream(io.FileIO):
    """Standard output or error, named in the errors of what is written there."""

    def __init__(self, number: int, name: str, is_needed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._name, self._is_needed = name, is_needed

    def write(self, data: object) -> int:
        """Write bytes; on an optional stream, only a missing reader is an error."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            if not self._is_needed and not isinstance(error, BrokenPipeError):
                return len(data)  # type: ignore[arg-type]
            error.filename = self._name
            raise


def prepare_streams() -> None:
    """Occupy the numbers of closed streams, and replace Python's streams by ones with names in their errors."""
    for number, name in enumerate(NAMES):
        stream = getattr(sys, name)
        if stream is None:
            with suppress(OSError):
                os.fstat(number)  # the number is in use already
                continue
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
    for number, (name, title, is_needed) in enumerate(
        (("stdout", "standard output", True), ("stderr", "standard error", False)), start=1
    ):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and isinstance(
            getattr(stream.buffer, "raw", stream.buffer), io.FileIO
        ):
            raw: Any = _Stream(number, title, is_needed)
            if hasattr(stream.buffer, "raw"):  # else output is unbuffered (python -u)
                raw = io.BufferedWriter(raw)
            made = io.TextIOWrapper(
                raw, stream.encoding, stream.errors, None, stream.line_buffering, stream.write_through
            )
            setattr(sys, name, made)
