"""Commands from functions: their common flags, each declared once, are added, and handled where the function does not.

The flags of options of a solve are made from :data:`~oocbe.model.settings.options.OPTIONS`, which lists the commands of
each; the others are in :data:`FLAGS`.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from oocbe.cli import failures
from oocbe.cli.failures import guarded
from oocbe.cli.output import printing, written_to
from oocbe.model.settings.options import EVERY, OPTIONS, SolveOptions, default_text

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
    "format": Flag(str | None, "solve plan bound propagate verify inspect convert compile dcop", ("--format",),
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
                if "trace" not in accepted and given.get("trace") is not None:
                    source = Path(given.get("file") or given.get("tree") or "")
                    check_targets(source, **{n: given[n] for n in TARGETS if isinstance(given.get(n), Path)})
                    stack.enter_context(written_to(given["trace"], f"oocbe {name} {source.name}".rstrip()))
                if not is_partial and "time_limit" in given and options.time_limit is not None:
                    from oocbe.runtime.deadline import Deadline, check_deadline

                    stack.enter_context(Deadline(options.time_limit))
                    check_deadline()
                return function(**passed)

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


TARGETS = ("solution", "trace", "certificate", "proof", "opb", "metrics", "report", "output", "csv")
"""Parameters of commands that name a file to be written."""


def check_targets(problem: Path | None = None, workdir: Path | None = None, **named: Path | None) -> None:
    """Check, before a run of perhaps hours, for files that would lose its result or input, or conflict with it.

    workdir : a run directory, which must have no other files; None if it is only for scratch folders.
    named : the files to be written, by the names of :data:`TARGETS`.

    Raises UsageError: names the flag, and the problem with its file.
    """
    from oocbe.errors import UsageError

    targets = [(f"--{name}", path) for name in TARGETS if (path := named.get(name)) is not None]
    for flag, target in targets:
        if workdir is not None and target.resolve().is_relative_to(workdir.resolve()):
            raise UsageError(
                f"{flag} {target}: lies in the run's work folder, which holds nothing but the run; name another place"
            )
        folder = target.resolve().parent
        if not folder.is_dir():
            raise UsageError(f"{flag} {target}: the folder {folder} does not exist; make it first")
        if target.is_dir():
            raise UsageError(f"{flag} {target}: this is a folder; name a file")
        if (target.is_file() or not target.exists()) and not os.access(folder, os.W_OK):
            raise UsageError(f"{flag} {target}: the folder {folder} cannot be written to; name another one")
        # Only regular files: a terminal may be both input and output.
        if problem is not None and target.is_file() and problem.is_file() and target.samefile(problem):
            raise UsageError(f"{flag} {target}: this is the problem itself; name another file")
    for (other, first), (flag, second) in itertools.combinations(targets, 2):
        if first.resolve() == second.resolve() and not first.is_char_device():
            raise UsageError(f"{flag} {second}: the {other[2:]} goes there; name another file")
