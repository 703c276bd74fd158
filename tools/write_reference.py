"""Write what follows from the tables of options and flags; tests/cli/test_reference.py fails where it is out of date.

* ``docs/oocbe.1``, the man page, from the commands' own help
* the tables of ``docs/options.md``
* ``oocbe/model/settings/option_types.py``, the types of options for callers

Run as ``python -m tools.write_reference``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from oocbe import __version__
from oocbe.cli.flags import FLAGS
from oocbe.cli.main import COMMANDS, program
from oocbe.model.settings.options import (
    ENVIRONMENT_PREFIX,
    EVERY,
    OPTIONS,
    OTHER_VARIABLES,
    SolveOptions,
    default_text,
)

ROOT = Path(__file__).parents[1]

TYPES = '''"""Types of options as callers give them, so that type checkers find unknown names and wrong values.

Written by ``tools/write_reference.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from oocbe.model.semiring import Semiring
    from oocbe.model.settings.option_values import Gap


class OwnValues(TypedDict, total=False):
    """The options of :class:`OptionValues` for the work of one process."""

{own}


class OptionValues(OwnValues, total=False):
    """Options as keyword arguments, with the meanings of :class:`~oocbe.model.settings.options.SolveOptions`.

    All may be left out, and all may be text, which is parsed as that of a flag.
    """

{other}
'''


def escaped(text: str) -> str:
    """Text that troff prints as it is."""
    text = re.sub(r"\s+", " ", text).strip().replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return f"\\&{text}" if text.startswith((".", "'")) else text


def types() -> str:
    """The module of the types of options."""
    lines: dict[bool, list[str]] = {True: [], False: []}
    for name, option in OPTIONS.items():
        kinds = [*SolveOptions.__annotations__[name].split(" | "), "str", *option.given_as.split()]
        kinds = [k for k in dict.fromkeys(kinds) if k not in ("None", "int" if "float" in kinds else "")]
        if SolveOptions.__annotations__[name].endswith("None"):
            kinds.append("None")
        lines[option.is_own].append(f"    {name}: {' | '.join(kinds)}")
    return TYPES.format(own="\n".join(lines[True]), other="\n".join(lines[False]))


def options_page() -> str:
    """The page of options, with its tables up to date."""
    rows = ["| flag | argument | default | meaning | commands |", "|---|---|---|---|---|"]
    for name, option in OPTIONS.items():
        flag = f"--{'[no-]' if isinstance(getattr(SolveOptions, name), bool) else ''}{name.replace('_', '-')}"
        flags = ", ".join(f"`{spelling}`" for spelling in (flag, *option.also))
        more = f" See [{option.page}]({option.page}.md)." if option.page else ""
        row = (flags, f"`{name}`", default_text(name), option.help + more, _commands(option.commands))
        rows.append(f"| {' | '.join(row)} |")
    rows += ["", "Other flags:", "", "| flag | meaning | commands |", "|---|---|---|"]
    for flag in FLAGS.values():
        row = (", ".join(f"`{spelling}`" for spelling in flag.spellings), flag.help, _commands(flag.commands))
        rows.append(f"| {' | '.join(row)} |")
    text = (ROOT / "docs" / "options.md").read_text()
    before, rest = text.split(BEGIN)
    return "\n".join([before + BEGIN, *rows, END + rest.split(END)[1]])


BEGIN = "<!-- tables: written by tools/write_reference.py -->"
END = "<!-- end of tables -->"


def _commands(names: str) -> str:
    known, every = set(names.split()), set(EVERY.split())
    more = ["all"] if every <= known else []
    return ", ".join([*more, *(name for name in names.split() if not more or name not in every)])


def man_page() -> str:
    """The man page."""
    commands = typer.main.get_command(program())
    lines = [
        f'.TH OOCBE 1 "" "oocbe {__version__}" "User Commands"',
        ".SH NAME",
        "oocbe \\- bucket elimination on incomplete tables",
        ".SH SYNOPSIS",
        ".B oocbe\n.I COMMAND\n[\n.I OPTIONS\n]",
        ".SH DESCRIPTION",
        "Exact solutions of discrete problems (the cheapest assignment, the number of solutions, partition functions,",
        "marginals) by bucket elimination, with tables in memory or on disk.",
        ".SH COMMANDS",
    ]
    for name in COMMANDS:
        lines += _command(f"oocbe {name}", commands.commands[name])
    lines += [".SH EXIT STATUS", *_exit_codes(), ".SH ENVIRONMENT"]
    lines.append(
        f"Each option of a solve has a variable, such as {ENVIRONMENT_PREFIX}MEMORY: "
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


WRITTEN = {"docs/oocbe.1": man_page, "docs/options.md": options_page, "oocbe/model/settings/option_types.py": types}
"""What is written, by the path of its file."""

if __name__ == "__main__":
    for path, make in WRITTEN.items():
        (ROOT / path).write_text(make())
