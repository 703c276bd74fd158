"""The program ``oocbe``: its commands, put together."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Annotated, NoReturn

import typer

from oocbe import __version__
from oocbe.cli import failures
from oocbe.cli.bound import bound
from oocbe.cli.convert import convert
from oocbe.cli.dcop import dcop
from oocbe.cli.failures import EXIT_TERMINATED
from oocbe.cli.inspect import inspect
from oocbe.cli.plan import plan
from oocbe.cli.propagate import propagate
from oocbe.cli.solve import solve
from oocbe.cli.stress import stress
from oocbe.cli.synth import synth_app
from oocbe.cli.trace import trace
from oocbe.cli.trees import compile_tree, query
from oocbe.cli.verify import verify
from oocbe.cli.warm_up import warm_up
from oocbe.errors import EXIT_INTERRUPTED

YOUNG_CONTAINERS = 50_000
"""New containers after which Python looks for cycles that nothing refers to; by itself it does so after 700, or 2,000.

Modules and compiled code make a few hundred thousand that stay: looking through them again and again while they load
takes longer than a small solve. Tables go as soon as the last reference to them does, whatever this number is.
"""

# Plain help: Rich would take as long to import as everything else together, and boxes are of no use in a pipe.
app = typer.Typer(
    name="oocbe",
    help="Bucket elimination on incomplete tables: exact answers about discrete problems.",
    epilog="Example: oocbe solve examples/daily.spot",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.command(epilog="Example: oocbe solve examples/daily.spot --order-seconds 2 --solution daily.sol")(solve)
app.command(epilog="Example: oocbe bound examples/daily.spot --z 4 --z auto")(bound)
app.command(epilog="Example: oocbe plan examples/daily.spot --order min-fill")(plan)
app.command(epilog="Example: oocbe propagate model.mps.gz --json --output tighter.mps")(propagate)
app.command(epilog="Example: oocbe verify examples/daily.spot daily.sol")(verify)
app.command(epilog="Example: oocbe inspect examples/grid.wcsp")(inspect)
app.command(epilog="Example: oocbe convert examples/daily.spot daily.wcsp.gz")(convert)
app.command("compile", epilog="Example: oocbe compile network.bif network.tree")(compile_tree)
app.command(epilog="Example: oocbe query network.tree --cases cases.csv --targets rain,wind -o answers.csv")(query)
app.command(epilog="Example: oocbe dcop agents.yaml --z 5 --metrics metrics.json")(dcop)
app.command(epilog="Example: oocbe stress --rows 1e8 --memory 256MiB --workdir /scratch")(stress)
app.command(epilog="Example: oocbe trace run.json.gz --png run.png")(trace)
app.command("warm-up", epilog="Example: oocbe warm-up")(warm_up)
app.add_typer(synth_app, name="synth")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"oocbe {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Bucket elimination on incomplete tables: exact answers about discrete problems."""


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    gc.set_threshold(YOUNG_CONTAINERS)
    # Numba looks for SciPy's BLAS when it loads its first loop, which takes longer than many a solve. Nothing in this
    # process needs it; a program that uses the library may, so the library leaves it alone.
    sys.modules.setdefault("scipy.linalg", None)  # type: ignore[arg-type]
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    atexit.register(_ignore_signals)
    try:
        app()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
        if code in (EXIT_INTERRUPTED, EXIT_TERMINATED):
            _leave(code)
        failures.ended_with = code
        raise


def _end(number: int, frame: FrameType | None) -> None:
    """What a signal does before a command has begun, and after it has ended: then it only makes the end come sooner."""
    _leave(128 + number if failures.ended_with is None else failures.ended_with)


def _leave(code: int) -> NoReturn:
    """End the process without waiting for what threads have begun: all is written, and nobody looks at the rest."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _ignore_signals() -> None:
    """Python gives handlers back to the system while it takes itself apart, and a signal would change the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
