"""``oocbe solve FILE FILE…``: several files in parallel, a line for each as its solve ends."""

from __future__ import annotations

import json as writer
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from oocbe.cli.output import begin, defer_signals, failure, seconds, warn, wrapped
from oocbe.errors import EXIT_INTERRUPTED, amount
from oocbe.model.results.numerals import all_digits
from oocbe.runtime.interruption import current

if TYPE_CHECKING:
    from oocbe.api.tasks.many import Outcome
    from oocbe.model.settings.options import SolveOptions


def solve_files(
    files: Sequence[Path],
    options: SolveOptions,
    format: str | None,
    jobs: int | None,
    json: bool,
    quiet: bool,
    of_one: Mapping[str, object],
) -> int:
    """Solve files in parallel.

    Parameters
    ----------
    files : two or more. options, format, jobs, json, quiet : those of the command.
    of_one : values of the flags that apply to one file only, by name.

    Returns
    -------
    The exit code: 0 if every optimum was proven; else the greatest code of the failed files, or, if none failed, of the
    others.
    """
    from oocbe.errors import UsageError

    given = [f"--{name}" for name, value in of_one.items() if value]
    if given:
        raise UsageError(f"{given[0]}: this is for one FILE, not for {len(files)}; call oocbe once for each")
    if Path("-") in files:
        raise UsageError("-: standard input is one problem; several are files")
    from oocbe.api.tasks.many import solve_many

    outcomes = solve_many(files, options, jobs=jobs, format=format)
    interruption = current()
    if interruption is not None:
        interruption.is_answered = True  # a line per file, no object for all of them
    defer_signals()  # after a first signal the solves wind down, and each running one prints a line
    failed, ended, printed = 0, 0, 0
    with closing(outcomes), _summed_up(lambda: printed, len(files)):
        for outcome in outcomes:
            printed += 1
            if outcome.failure is not None:
                failed = max(failed, outcome.exit_code)
                warn(outcome.failure.message)
            ended = max(ended, outcome.exit_code)
            if json:
                _print_line(files[outcome.number], outcome)
            else:
                _print(outcome, quiet)
    return failed or ended


@contextmanager
def _summed_up(printed: Callable[[], int], files: int) -> Iterator[None]:
    """If a signal ends the block, print the number of files without an answer: not begun, or killed."""
    try:
        yield
    except KeyboardInterrupt:
        if left := files - printed():
            warn(f"{left:,} of {amount(files, 'file')} without an answer")
        raise


def _print_line(file: Path, outcome: Outcome) -> None:
    """Print the outcome as one line of JSON: the same object as for a single file."""
    begin("solve", {"file": file})
    if outcome.result is not None:
        content = outcome.result.to_json()
    else:
        assert outcome.failure is not None
        is_interruption = outcome.exit_code == EXIT_INTERRUPTED
        content = failure("interrupted") if is_interruption else failure("error", outcome.failure.to_json())
    with all_digits():
        typer.echo(writer.dumps(wrapped(content), allow_nan=False))


def _print(outcome: Outcome, quiet: bool) -> None:
    result = outcome.result
    if result is None:
        typer.echo(f"{outcome.problem}  error")
        return
    with all_digits():
        line = f"{outcome.problem}  {result.status}" + ("" if result.value is None else f" {result.value}")
    bound = "" if result.bound is None or result.status == "optimal" else f", bound {result.bound}"
    typer.echo(line if quiet else f"{line}{bound}  ({seconds(result.seconds.get('total', 0.0))})")
