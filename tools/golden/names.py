"""Public names, parameters and options: none of a record may be lost; new ones are no difference.

A name that is kept as an alias counts as present, whether it warns or not. Options are those that ``--help`` shows.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.resources import files
from itertools import chain
from typing import Any

from .recorder import ROOT, Recorder

NAME = re.compile(r"oocbe(?:\.[A-Za-z_]\w*)+")
"""A public name as pages write it."""

OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
"""An option as ``--help`` writes it."""

ABSENT = object()
"""What a name that is not there refers to."""

GROUPS = ("", "synth")
"""Commands that have commands of their own."""


def run(recorder: Recorder) -> None:
    """All entries of this module."""
    recorder.add("names/public", public_names)
    recorder.add("names/pages", page_names)
    recorder.add("names/parameters", parameters)
    recorder.add("names/options-of-solves", solve_options)
    recorder.add("names/errors", error_tree)
    recorder.add("names/entry-points", entry_points)
    recorder.add("names/schemas", schema_names)
    recorder.add("names/commands", command_names, recorder)


def public_names() -> list[str]:
    """Names of the package and of its public modules, and the public attributes of their classes."""
    found: set[str] = set()
    for module in ("oocbe", "oocbe.dcop"):
        loaded = import_module(module)
        for name in loaded.__all__:
            value = getattr(loaded, name)
            found.add(f"{module}.{name}")
            if isinstance(value, type):
                found |= {f"{module}.{name}.{inner}" for inner in members(value)}
    return sorted(found)


def parameters() -> list[str]:
    """Names of parameters of public functions, classes and methods, such as ``oocbe.solve(evidence)``."""
    found = []
    for name in public_names():
        value = resolved(name)
        if not callable(value) or name.endswith("Error"):
            continue
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):
            continue
        names = chain.from_iterable(_named(p, getattr(value, "__globals__", {})) for p in signature.parameters.values())
        found += [f"{name}({parameter})" for parameter in names if parameter != "self"]
    return found


def _named(parameter: inspect.Parameter, scope: dict[str, Any]) -> list[str]:
    """A parameter's name; of keyword arguments that a dictionary's type declares, their names."""
    if parameter.kind is not parameter.VAR_KEYWORD:
        return [parameter.name]
    if not str(parameter.annotation).startswith("Unpack["):
        return []
    keywords = eval(str(parameter.annotation), scope).__args__[0]
    return sorted(keywords.__required_keys__ | keywords.__optional_keys__)


def error_tree() -> list[str]:
    """Each public error below each public error that it is one of."""
    import oocbe

    errors = [name for name in oocbe.__all__ if name.endswith("Error")]
    pairs = [(one, other) for one in errors for other in errors if one != other]
    return [f"{one} is {other}" for one, other in pairs if issubclass(getattr(oocbe, one), getattr(oocbe, other))]


def entry_points() -> list[str]:
    """Scripts and entry points that the project declares, whatever they refer to."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"scripts": project["scripts"], **project.get("entry-points", {})}
    return sorted(f"{group}: {name}" for group, names in groups.items() for name in names)


def schema_names() -> list[str]:
    """Properties that the schemas of the commands' JSON declare, by schema."""
    folder = files("oocbe").joinpath("schema")
    found: list[str] = []
    for schema in sorted(folder.iterdir(), key=lambda path: path.name):
        properties = _properties(json.loads(schema.read_text()), schema.name.removesuffix(".json"))
        found += sorted(set(properties))
    return found


def _properties(schema: Any, place: str) -> Iterator[str]:
    if isinstance(schema, dict):
        for name, inner in schema.items():
            if name == "properties" and isinstance(inner, dict):
                yield from (f"{place}: {key}" for key in inner)
            yield from _properties(inner, place)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _properties(inner, place)


def members(kind: type) -> set[str]:
    """Public attributes of a class, fields without a default too."""
    names = {*dir(kind), *getattr(kind, "__dataclass_fields__", {}), *getattr(kind, "__annotations__", {})}
    return {name for name in names if not name.startswith("_")}


def page_names() -> list[str]:
    """Names that the pages of docs/ and the README write and that can be imported."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    written = {name.rstrip(".") for page in pages for name in NAME.findall(page.read_text())}
    return sorted(name for name in written if has(name))


def has(name: str) -> bool:
    """Whether a dotted name is there: a module's attribute, or a class's."""
    return resolved(name) is not ABSENT


def resolved(name: str) -> Any:
    """What a dotted name refers to; None of a field without a value, :data:`ABSENT` of a name that is not there."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: Any = import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for inner in parts[length:]:
            if not hasattr(value, inner):
                return None if isinstance(value, type) and inner in members(value) else ABSENT
            value = getattr(value, inner)
        return value
    return ABSENT


def solve_options() -> list[str]:
    """Names of all options of a solve, which are fields, arguments and variables."""
    import oocbe

    return list(oocbe.SolveOptions.names())


def command_names(recorder: Recorder) -> list[str]:
    """Every command with every option that its help shows."""
    found: list[str] = []
    waiting = [list(filter(None, [group])) for group in GROUPS]
    for group in list(waiting):
        listed = recorder.command(*group, "--help")["output"]
        commands = _listed_commands(listed)
        found += [" ".join([*group, command]) for command in commands]
        waiting += [[*group, command] for command in commands if command not in GROUPS]
    for words in waiting:
        text = "\n".join(recorder.command(*words, "--help", COLUMNS="200")["output"])
        options = text.partition("Options:")[2].partition("Commands:")[0].partition("Example:")[0]
        lines = [line for line in options.splitlines() if re.match(r" {2,6}-", line)]
        declared = {option for line in lines for option in OPTION.findall(re.split(r"\s{2,}", line.strip())[0])}
        found += sorted(" ".join([*words, option]) for option in declared)
    return found


def _listed_commands(lines: Iterable[str]) -> list[str]:
    """Names below the heading ``Commands:`` of a help."""
    text = "\n".join(lines).partition("Commands:")[2]
    return re.findall(r"^ {2}([a-z][\w-]*)  ", text, flags=re.MULTILINE)


def lost_names(key: str, old: list[str], new: list[str]) -> list[str]:
    """Names of a record that are gone; aliases count as there. Lines that may follow say which."""
    missing = [name for name in old if name not in set(new)]
    if key in ("names/public", "names/pages"):
        missing = [name for name in missing if not has(name)]
    return [f"lost: {name}" for name in missing]
