"""Commands from functions: their common flags, each declared once, are added, and handled where the function does not.

The flags of options of a solve are made from :data:`~oocbe.model.settings.options.OPTIONS`, which lists the commands of
each; the others are in :data:`FLAGS`.
"""

from __future__ import annotations

import functools
import itertools
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer
from typer.models import ArgumentInfo

from oocbe.cli import failures
from oocbe.cli.failures import guarded
from oocbe.cli.output import code_beside, printing, written_to
from oocbe.errors import UsageError
from oocbe.model.settings.options import EVERY, OPTIONS, RESUMED, SolveOptions, default_text
from oocbe.runtime.urls import url_of

if TYPE_CHECKING:
    from oocbe.formats import Model
    from oocbe.model.problem import Problem

ProblemFile = Annotated[Path, typer.Argument(metavar="FILE", help="The problem, or -; .gz and .xz are decompressed.")]
SolutionFlag = Annotated[Path | None, typer.Option("--solution", help="Write the best assignment to this file.")]


class Flag(NamedTuple):
    """A flag that several commands share: the type of its value, the commands that have it, its spellings, and help."""

    kind: Any
    commands: str
    spellings: tuple[str, ...]
    help: str
    metavar: str | None = None


# fmt: off
FLAGS = {
    "evidence": Flag(list[str] | None, "solve plan bound verify convert compile", ("--evidence",),
        "Values of observed variables: a .evid file, or a pair; repeatable.", "FILE|NAME=VALUE"),
    "format": Flag(str | None, "solve plan bound propagate verify inspect convert compile uai dcop", ("--format",),
        "Format of FILE; default: by its suffix."),
    "trace": Flag(Path | None, "solve plan bound convert join compile query dcop stress", ("--trace",),
        "Write a timeline for oocbe trace and Perfetto; .gz compresses.", "FILE"),
    "json": Flag(bool, EVERY, ("--json",),
        "Print JSON on standard output, everything else on standard error."),
    "quiet": Flag(bool, EVERY, ("--quiet", "-q"),
        "Print only the answer, in one line or as JSON: no progress, notes and figures."),
    "verbose": Flag(bool, "solve bound dcop", ("--verbose", "-v"),
        "Print the plan and one line per bucket."),
    "debug": Flag(bool, f"{EVERY} completion", ("--debug",),
        "Show the traceback of an error."),
}
# fmt: on
"""Flags that are no options of a solve, by the name of their parameter."""


def flags_of(command: str) -> list[Parameter]:
    """The flags that a command shares with others, as parameters of the function that Typer calls.

    A flag of an option that is not given is None, and the environment variable is used.
    """
    made: list[tuple[Any, ...]] = []
    for name, option in OPTIONS.items():
        if command in option.commands.split():
            spelling = f"--{name.replace('_', '-')}"
            is_switch = isinstance(getattr(SolveOptions, name), bool)
            names = (f"{spelling}/--no-{spelling[2:]}",) if is_switch else (spelling, *option.also)
            help = f"{option.help} [default: {default_text(name)}; OOCBE_{name.upper()}]"
            made.append((name, bool | None if is_switch else str | None, None, names, help, option.metavar))
    for name, flag in FLAGS.items():
        if command in flag.commands.split():
            made.append((name, flag.kind, False if flag.kind is bool else None, *flag[2:]))
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=typer.Option(default, *spellings, metavar=metavar, help=help),
            annotation=kind,
        )
        for name, kind, default, spellings, help, metavar in made
    ]


def command(name: str, *, is_partial: bool = False) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Make a command of a function that returns its exit code (None: 0).

    Its own parameters are annotated for Typer. It also gets those of its parameters that are named ``options`` (the
    options, from flags and environment), or like one of the command's flags. The time limit is kept, and the trace
    written, around its call.

    name : of the command, in the tables of flags.
    is_partial : whether a time limit leaves it an answer: then it keeps its time limit itself.
    """

    def made(function: Callable[..., int | None]) -> Callable[..., None]:
        flags = flags_of(name)
        shared = {"options", "return", *(flag.name for flag in flags)}
        own = {n: kind for n, kind in function.__annotations__.items() if n not in shared}
        kinds = get_type_hints(SimpleNamespace(__annotations__=own), function.__globals__, include_extras=True)
        accepted = signature(function).parameters
        arguments = [n for n, kind in kinds.items() if isinstance(kind.__metadata__[0], ArgumentInfo)]
        parameters = [accepted[n].replace(annotation=kind) for n, kind in kinds.items()] + flags

        @functools.wraps(function)
        def run(**given: Any) -> int | None:
            options = options_from(given)
            failures.asked_limit = options.time_limit
            problems = given["files"] if name == "solve" else []
            is_batch = len(problems) > 1 or any(map(Path.is_dir, problems))  # with a limit for each problem
            if failures.begun is not None and options.time_limit is not None and not is_batch:
                age = time.perf_counter() - failures.begun
                options = replace(options, time_limit=max(0.0, options.time_limit - age))
            passed = {n: options if n == "options" else given[n] for n in accepted}
            with ExitStack() as stack:
                stack.enter_context(printing(bool(given.get("json")), bool(given.get("quiet"))))
                is_run = name == "solve" and not is_batch and given["task"] in RESUMED
                workdir = options.workdir if is_run else None
                check_files(name, {**given, "order": options.order}, arguments, workdir)
                if "trace" not in accepted and given.get("trace") is not None:
                    source = Path(given.get("file") or given.get("tree") or "")
                    stack.enter_context(written_to(given["trace"], f"oocbe {name} {source.name}".rstrip()))
                if not is_partial and "time_limit" in given and options.time_limit is not None:
                    from oocbe.runtime.deadline import Deadline, check_deadline  # imports NumPy; help needs none

                    stack.enter_context(Deadline(options.time_limit))
                    check_deadline()
                return code_beside(function(**passed))

        run.__name__ = name
        called = guarded(run)
        called.__annotations__ = {p.name: p.annotation for p in parameters}
        called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return called

    return made


def options_from(parameters: Mapping[str, object]) -> SolveOptions:
    """Options from the environment, overridden by the flags given: parameters with an option's name, not None."""
    flags = {
        name: SolveOptions.parsed(name, parameters[name], f"--{name.replace('_', '-')}")
        for name in OPTIONS
        if parameters.get(name) is not None
    }
    return SolveOptions.from_environment().replaced(flags)


def load(path: Path, format_name: str | None, evidence: list[str] | None = None) -> Problem:
    """Read a problem for a command."""
    from oocbe.api.facade import read_finite

    return read_finite(path, format_name, evidence or None)


def load_model(path: Path, format_name: str | None) -> Model:
    """Read the model in a file, unchanged, for a command."""
    from oocbe.formats import read_model

    return read_model(path, format_name)


TARGETS = ("solution", "trace", "certificate", "proof", "opb", "metrics", "report", "output", "csv", "png")
"""Parameters of commands that name files to be written, by all but ``oocbe verify``."""

PLACES = ("out", "tree")
"""Those for a file or folder that is made with its parents; ``oocbe compile`` alone writes a tree."""

SOURCES = ("file", "files", "tree", "cases", "pieces", "evidence", "query", "hint", "order")
"""Parameters of commands that name files to be read, or are texts in their place."""

COMPETITION = Path("competition")
"""Output of the task ``count`` that is no file: lines of the model counting competition, on standard output."""


def check_files(
    command: str, given: Mapping[str, Any], arguments: Collection[str] = (), workdir: Path | None = None
) -> None:
    """Check, before a run of perhaps hours, for files that would lose its result or inputs, or conflict with it.

    given : values of the command's parameters by name. arguments : those that are no flags.
    workdir : a run directory, which must have no other files; None if it is only for scratch folders.

    Raises UsageError: names the flag or argument, and the problem with its file.
    """
    shown = {n: n.removesuffix("s").upper() if n in arguments else f"--{n}" for n in (*TARGETS, *PLACES, *SOURCES)}
    sources = [*_sources(command, given, shown), ("standard error goes there", 2), ("standard output goes there", 1)]
    targets = list(_targets(command, given, shown))
    for name, target in targets:
        is_made = name in PLACES or (command, name) == ("join", "output")  # and nothing else is printed
        if not is_made:
            _check_place(shown[name], target, workdir)
        for what, source in sources[: -1 if is_made else None]:
            is_better = (name, what) == ("solution", "this is read as --hint")  # no solution is worse than its hint
            if not is_better and _is_lost(target, source, command != "solve"):
                raise UsageError(f"{shown[name]} {target}: {what}; name another file")
    for (other, first), (name, second) in itertools.combinations(targets, 2):
        if (first.resolve() == second.resolve() and not first.is_char_device()) or _is_lost(first, second):
            raise UsageError(f"{shown[name]} {second}: the {other} goes there; name another file")


def _sources(command: str, given: Mapping[str, Any], shown: Mapping[str, str]) -> Iterator[tuple[str, Path | int]]:
    """Descriptions and paths of what a command reads; 0: standard input."""
    for name in SOURCES:
        value = None if (command, name) == ("compile", "tree") else given.get(name)
        is_problem = name in ("file", "files") and command not in ("join", "trace")
        what = "this is the problem itself" if is_problem else f"this is read as {shown[name]}"
        for text in map(str, value if isinstance(value, list) else [] if value is None else [value]):
            if text == "-":
                if name in ("cases", "hint", "pieces") or command == "join":
                    raise UsageError(f"{shown[name]} -: standard input is not supported here; name a file")
                if command != "uai" or name == "file":  # there it stands for nothing
                    yield what, 0
            else:
                found = _matches(text) if command == "join" else [text]
                yield from ((what, Path(path)) for path in found if _is_read(name, path))


def _matches(text: str) -> Sequence[str]:
    from oocbe.runtime.plain_files import matches  # imports NumPy

    return matches(text) or [text]


def _is_read(name: str, text: str) -> bool:
    """Whether a value is read as a file: no name of a finder of orders, and no pair of evidence by its looks."""
    if name == "order" and text != "auto":
        from oocbe.elimination.orders.order import is_order_file

        return is_order_file(text)
    return name != "order" and (name != "evidence" or "=" not in text or Path(text).stem != text)


def _targets(command: str, given: Mapping[str, Any], shown: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Parameters and paths of what a command writes, without standard output."""
    for name in (*TARGETS, *PLACES) if command != "verify" else ():
        target = given.get(name)
        is_lines = target == COMPETITION and given.get("task") == "count"
        if target is None or is_lines or url_of(target) or (name == "tree" and command != "compile"):
            continue
        if str(target) != "-":
            yield name, Path(target)
        elif command not in ("join", "query") and (name != "out" or "to" not in given or given.get("json")):
            raise UsageError(f"{shown[name]} -: standard output is for the answer; name a file")


def _is_lost(target: Path, other: Path | int, is_folder_kept: bool = False) -> bool:
    """Whether writing a target changes another file, given by path or number; if to be kept, also one in a folder."""
    with suppress(OSError, ValueError):  # also names that no file can have
        found, status = target.stat(), os.stat(other)  # noqa: PTH116 (of a number)
        if stat.S_ISDIR(status.st_mode) and isinstance(other, Path) and is_folder_kept and stat.S_ISREG(found.st_mode):
            return target.resolve().is_relative_to(other.resolve())
        return stat.S_ISREG(found.st_mode) and os.path.samestat(found, status)  # no terminal, which may be both
    return False


def _check_place(flag: str, target: Path, workdir: Path | None) -> None:
    if workdir is not None and target.resolve().is_relative_to(workdir.resolve()):
        raise UsageError(f"{flag} {target}: is in the run's work folder, which only the run uses; name another place")
    folder = target.resolve().parent
    is_special = target.exists() and not target.is_file()
    if not folder.is_dir() and not is_special:  # a pipe by /dev/stdout is in no folder
        raise UsageError(f"{flag} {target}: the folder {folder} does not exist; make it first")
    if target.is_dir():
        raise UsageError(f"{flag} {target}: this is a folder; name a file")
    if not is_special and not os.access(folder, os.W_OK) and not (target.is_file() and os.access(target, os.W_OK)):
        raise UsageError(f"{flag} {target}: the folder {folder} cannot be written to; name another one")
