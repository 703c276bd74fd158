"""Write ``docs/oocbe.1``, the man page, from the commands' own help; tests/cli/test_man_page.py says when to."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from oocbe import __version__
from oocbe.cli.main import COMMANDS, program
from oocbe.model.settings.options import ENVIRONMENT_PREFIX, OTHER_VARIABLES, SolveOptions

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "oocbe.1"


def escaped(text: str) -> str:
    """Text that troff prints as it is."""
    text = re.sub(r"\s+", " ", text).strip().replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return f"\\&{text}" if text.startswith((".", "'")) else text


def page() -> str:
    """The whole page."""
    commands = typer.main.get_command(program())
    lines = [
        f'.TH OOCBE 1 "" "oocbe {__version__}" "User Commands"',
        ".SH NAME",
        "oocbe \\- bucket elimination on incomplete tables",
        ".SH SYNOPSIS",
        ".B oocbe\n.I COMMAND\n[\n.I OPTIONS\n]",
        ".SH DESCRIPTION",
        "Exact answers about discrete problems (the cheapest assignment, the number of solutions, a partition",
        "function, marginals) by bucket elimination, with tables in memory or on disk.",
        ".SH COMMANDS",
    ]
    for name in COMMANDS:
        lines += _command(f"oocbe {name}", commands.commands[name])
    lines += [".SH EXIT STATUS", *_exit_codes(), ".SH ENVIRONMENT"]
    lines.append(
        f"Each option of a solve may be a variable, such as {ENVIRONMENT_PREFIX}MEMORY: "
        + escaped(", ".join(SolveOptions.names()) + ".")
    )
    for variable, what in OTHER_VARIABLES.items():
        lines += [".TP", f".B {escaped(variable)}", escaped(what)]
    return "\n".join(lines) + "\n"


def _command(called: str, command: Any) -> Iterator[str]:
    """A section of one command, or those of a group's."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _command(f"{called} {name}", inner)
        return
    arguments = [
        p.make_metavar(None) if _needs_context(p) else p.make_metavar()
        for p in command.params
        if p.param_type_name == "argument"
    ]
    yield f".SS {escaped(' '.join([called, *arguments]))}"
    yield from (escaped(part) for part in inspect.cleandoc(command.help or "").split("\n\n"))
    for option in command.params:
        if option.param_type_name != "option" or getattr(option, "hidden", False):
            continue
        yield ".TP"
        yield ".B " + escaped(", ".join([*option.opts, *option.secondary_opts]))
        yield escaped(option.help or "")


def _needs_context(parameter: Any) -> bool:
    return "ctx" in inspect.signature(parameter.make_metavar).parameters


def _exit_codes() -> Iterator[str]:
    """The table of the page about the command line."""
    text = (ROOT / "docs" / "command-line.md").read_text()
    for codes, meaning in re.findall(r"^\| ([0-9, ]+) \| (.*) \|$", text, re.MULTILINE):
        yield from (".TP", f".B {codes}", escaped(meaning.replace("`", "")))


if __name__ == "__main__":
    PAGE.write_text(page())
