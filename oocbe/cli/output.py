"""Output of commands: JSON and two-column tables on standard output, notes on standard error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import typer

from oocbe.cli.envelope import wrapped
from oocbe.model.results.numerals import all_digits
from oocbe.runtime.interruption import current


def print_json(content: Mapping[str, object]) -> None:
    """Print one JSON object on standard output; non-finite numbers are an error instead of ``NaN``.

    Program, command and input are added (:mod:`oocbe.cli.envelope`).
    """
    with all_digits():
        text = json.dumps(wrapped(content), indent=2, allow_nan=False)
    defer_signals()
    interruption = current()
    if interruption is not None:
        interruption.is_answered = True
    typer.echo(text)


def defer_signals() -> None:
    """From now on a first signal takes effect after all output; a second one ends the command at once."""
    interruption = current()
    if interruption is not None:
        interruption.defer()


def print_rows(rows: Iterable[tuple[str, object]], err: bool = False) -> None:
    """Print names and contents in two aligned columns; rows with an empty content are left out."""
    with all_digits():
        shown = [(name, str(content)) for name, content in rows if content not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, content in shown:
        typer.echo(f"{name:<{width}}  {content}", err=err)


def note(text: str) -> None:
    """Print a line on standard error."""
    typer.echo(text, err=True)


def times(phases: Mapping[str, float]) -> str:
    """The total, its phases, and the time for compiling loops."""
    shown = ", ".join(f"{phase} {seconds(spent)}" for phase, spent in phases.items() if phase not in NO_PHASES)
    compiling = phases.get("compiling")
    more = "" if compiling is None else f"; of it compiling, once for this machine: {seconds(compiling)}"
    return f"{seconds(phases.get('total', 0.0))} ({shown}{more})"


NO_PHASES = ("total", "compiling")
"""Entries of times that are not phases."""


def seconds(duration: float) -> str:
    """A duration for people: 3.1 ms, 2.54 s, 12 min 5 s."""
    if duration < 1:
        return f"{1000 * duration:.1f} ms"
    if duration < 60:
        return f"{duration:.2f} s"
    minutes, rest = divmod(round(duration), 60)
    return f"{minutes} min {rest} s"
