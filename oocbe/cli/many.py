"""``oocbe solve FILE FILE…``: several files in parallel, a line for each as its solve ends."""

from __future__ import annotations

import csv
import json as writer
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from oocbe.cli.flags import check_files
from oocbe.cli.output import begin, beside_answer, defer_signals, failure, note, seconds, warn, wrapped
from oocbe.errors import EXIT_INTERRUPTED, UsageError, amount
from oocbe.model.results.numerals import all_digits
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.interruption import current

if TYPE_CHECKING:
    from oocbe.api.tasks.many import Outcome


COLUMNS = ("file", "status", "value", "bound", "seconds", "exit code", "error")
"""Columns of the table of ``--csv``."""


def solve_files(
    files: Sequence[Path],
    options: SolveOptions,
    format: str | None,
    jobs: int | None,
    json: bool,
    quiet: bool,
    table: Path | None,
    of_one: Mapping[str, object],
) -> int:
    """Solve files in parallel.

    files : to be solved. options, format, jobs, json, quiet : those of the command.
    table : CSV file that gets a row for each file as its solve ends; None: there is none.
    of_one : values of the flags that apply to one file only, by name.
    Returns the exit code: 0 if every optimum was proven; else the greatest code of the failed files, or, if none
    failed, of the others.
    """
    given = [f"--{name}" for name, value in of_one.items() if value]
    if given:
        raise UsageError(f"{given[0]}: this is for one FILE, not for {len(files)}; call oocbe once for each")
    if Path("-") in files:
        raise UsageError("-: standard input is one problem; several are files")
    from oocbe.api.tasks.many import solve_many

    check_files("solve", {"files": [*files], "csv": table})
    outcomes = solve_many(files, options, jobs=jobs, format=format)
    interruption = current()
    if interruption is not None:
        interruption.is_answered = True  # a line per file, no object for all of them
    defer_signals()  # after a first signal the solves wind down, and each running one prints a line
    failed, ended, statuses = 0, 0, Counter[str]()
    with ExitStack() as closed, closing(outcomes), _summed_up(lambda: statuses.total(), len(files)):
        write_row = _rows_of(table, closed)
        for outcome in outcomes:
            statuses["error" if outcome.result is None else outcome.result.status] += 1
            with beside_answer(table):
                write_row(files[outcome.number], outcome)
            if outcome.failure is not None:
                failed = max(failed, outcome.exit_code)
                warn(outcome.failure.message)
            ended = max(ended, outcome.exit_code)
            if json:
                _print_line(files[outcome.number], outcome)
            else:
                _print(outcome, quiet)
    note(f"{amount(len(files), 'file')}: {', '.join(f'{count:,} {name}' for name, count in statuses.most_common())}")
    return failed or ended


def _rows_of(table: Path | None, closed: ExitStack) -> Callable[[Path, Outcome], None]:
    """A function that writes an outcome to the table at once: a batch may be killed."""
    if table is None:
        return lambda file, outcome: None
    from oocbe.formats.files import explaining

    with explaining(table), ExitStack() as opened:
        names = {"encoding": "utf-8", "errors": "surrogateescape"}  # of files: any bytes
        stream = opened.enter_context(table.open("w", newline="", buffering=1, **names))
        rows = csv.writer(stream)
        rows.writerow(COLUMNS)
        opened.pop_all()

    @closed.callback
    def close() -> None:
        with beside_answer(table):
            stream.close()

    def write(file: Path, outcome: Outcome) -> None:
        result, failure = outcome.result, outcome.failure
        content: list[object] = ["error", "", "", ""]
        if result is not None:
            content = [result.status, result.value, result.bound, f"{result.seconds.get('total', 0.0):.3f}"]
        with all_digits():
            rows.writerow([file, *content, outcome.exit_code, "" if failure is None else failure.message])

    return write


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
