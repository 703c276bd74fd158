"""Output of commands: JSON and two-column tables on standard output, notes on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path

import typer

from oocbe import __version__
from oocbe.errors import EXIT_INFEASIBLE, EXIT_LIMIT, EXIT_NOTHING_BETTER, OocbeError, RequestedEndError, TimeLimitError
from oocbe.model.results.failure import Failure, failure_of
from oocbe.model.results.numerals import all_digits, schema_version_of
from oocbe.runtime.interruption import END_SIGNALS, current

_mode = {"json": False, "quiet": False}
"""Form of the output of this process's command."""


lost: list[Failure] = []
"""Files that this process's command did not write beside its answer."""


@contextmanager
def beside_answer(path: Path | None) -> Iterator[None]:
    """Within the block, a file is written beside the answer, which is printed all the same if that fails."""
    try:
        yield
    except RequestedEndError:
        raise
    except (OocbeError, OSError, MemoryError) as error:
        failed = failure_of(error)
        if str(path) not in failed.message:
            why = error if isinstance(error, TimeLimitError) else failed.message  # that denies an answer
            failed = replace(failed, message=f"{path}: not written: {why}")
        lost.append(failed)
        warn(failed.message)


EXITS_BY_SIGNAL = tuple(128 + number for number in END_SIGNALS)
"""Exit codes after a signal, as in a shell."""


def code_beside(code: int | None) -> int | None:
    """The exit code of a command whose answer has a code: that of files not written where it says less."""
    if code in (EXIT_INFEASIBLE, EXIT_NOTHING_BETTER, EXIT_LIMIT, *EXITS_BY_SIGNAL):
        return code
    return max([code or 0, *(failed.exit_code for failed in lost)])


@contextmanager
def printing(json: bool, quiet: bool) -> Iterator[None]:
    """Within the block, a command prints as with ``--json``, ``--quiet`` or both."""
    before = dict(_mode)
    lost.clear()
    _mode.update(json=json, quiet=quiet)
    try:
        yield
    finally:
        _mode.update(before)


def print_written(out: object, what: object) -> None:
    """Print what a command wrote to a file or folder: a note, or the answer of ``--json``."""
    content = what if isinstance(what, str) else repr(what)
    note(f"wrote {out}: {content}")
    if _mode["json"]:
        print_json({"schema_version": 1, "output": str(out), "content": content})


def prints_json() -> bool:
    """Whether the answer is printed as JSON."""
    return _mode["json"]


def print_answer(
    content: Callable[[], Mapping[str, object]], shown: Iterable[tuple[str, object]] | str, *line: object
) -> None:
    """Print the answer of a command.

    content : makes the JSON object, for ``--json``.
    shown : rows as for :func:`text_of_rows`, or text; on standard error with ``--json``; not with ``--quiet``.
    line : for ``--quiet`` without ``--json``, joined by spaces; None is left out. No line: nothing is printed.
    """
    if _mode["json"]:
        print_json(content())
    if not _mode["quiet"]:
        typer.echo(shown if isinstance(shown, str) else text_of_rows(shown), err=_mode["json"])
    elif line and not _mode["json"]:
        with all_digits():
            text = " ".join(str(part) for part in line if part is not None)
        typer.echo(text)


def print_json(content: Mapping[str, object]) -> None:
    """Print one JSON object with what :func:`wrapped` adds, and the error of a side file; refuses ``NaN``."""
    if lost and "error" not in content:  # that of a trace is of its run
        content = {**content, "error": max(lost, key=lambda failed: failed.exit_code).to_json()}
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


def text_of_rows(rows: Iterable[tuple[str, object]]) -> str:
    """Names and contents in aligned columns, without empty ones; a mapping is seconds by phase (:func:`times`)."""
    with all_digits():
        shown = [
            (name, times(content) if isinstance(content, Mapping) else str(content))
            for name, content in rows
            if content not in (None, "")
        ]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name:<{width}}  {content}" for name, content in shown)


def note(text: str) -> None:
    """Print a line about the course of the command on standard error, unless it is to be quiet."""
    if not _mode["quiet"]:
        typer.echo(text, err=True)


def warn(text: str) -> None:
    """Print a line about what was not done, or not as requested, on standard error."""
    typer.echo(f"oocbe: {text}", err=True)


@contextmanager
def written_to(path: Path | None, about: str) -> Iterator[None]:
    """Write a trace of the block if a path is given, with a note at the end if it is incomplete."""
    if path is None:
        yield
        return
    from oocbe.runtime.tracing.trace_file import trace as traced

    with traced(path, about) as recorder:
        yield
    if recorder.failure is not None:
        warn(f"the trace {path} ends early: {recorder.failure.strerror or recorder.failure}")
    elif recorder.dropped:
        warn(f"the trace {path} lacks {recorder.dropped:,} spans: there were more than it takes")


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


DIGEST_BLOCK = 1 << 20
"""Block size for reading the input, in bytes."""

_now: dict[str, object] = {}
"""The command of this process, and its file."""


def begin(command: str, parameters: Mapping[str, object]) -> None:
    """Record the starting command, by its name and its parameters."""
    _now.clear()
    _now["command"] = command
    files = parameters.get("files")
    _now["file"] = files[0] if isinstance(files, list) and len(files) == 1 else parameters.get("file")
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="surrogateescape")  # names of files are any bytes


def wrapped(content: Mapping[str, object]) -> dict[str, object]:
    """An answer after the program's version, the command and its input's digest."""
    head = {
        "schema_version": content.get("schema_version"),
        "program": {"name": "oocbe", "version": __version__},
        "command": _now.get("command"),
        "input": _input(_now.get("file")),
    }
    return {**head, **content}


def failure(status: str, error: Mapping[str, object] | None = None) -> dict[str, object]:
    """The output of a command without an answer: its status, and for errors a description."""
    version = schema_version_of(str(_now.get("command")))
    return {"schema_version": version, "status": status, **({} if error is None else {"error": error})}


def _input(file: object) -> dict[str, object] | None:
    """Path, size and SHA-256 of the input file as stored, compressed or not; None if there is none."""
    if not isinstance(file, Path):
        return None
    import hashlib

    digest, size = hashlib.sha256(), 0
    with suppress(OSError):
        if file.is_file():
            with file.open("rb") as stream:
                while block := stream.read(DIGEST_BLOCK):
                    digest.update(block)
                    size += len(block)
            return {"path": str(file), "bytes": size, "sha256": digest.hexdigest()}
    return {"path": str(file), "bytes": None, "sha256": None}
