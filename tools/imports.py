"""Which module of the package imports which: read from the sources, nothing is run.

An import counts wherever it stands: at the top of a file, inside a function (loaded late) or for type checkers only. So
two modules that know each other's names are a circle, even where Python could load them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "oocbe"


def modules() -> dict[str, Path]:
    """Dotted names of all modules, and their files; a package is called by its name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports(known: dict[str, Path]) -> dict[str, set[str]]:
    """For each module, the modules of the package that it imports."""
    return {name: set(_imported(name, path, known)) for name, path in known.items()}


@cache
def _import_statements(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Parsed once a process: what draws the layers and what checks them both ask."""
    tree = ast.walk(ast.parse(path.read_text()))
    return tuple(node for node in tree if isinstance(node, ast.Import | ast.ImportFrom))


def _imported(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in _import_statements(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif node.module is not None:
            # What is imported from a package may be one of its modules.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [one if one in known else node.module for one in names]
        else:
            continue
        yield from (one for one in names if one in known and one != name)


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules each of which imports all others, directly or not (Tarjan 1972)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        numbers[name] = lowest[name] = len(numbers)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in numbers:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], numbers[other])
        if lowest[name] == numbers[name]:
            place = stack.index(name)
            group = sorted(stack[place:])
            del stack[place:]
            if len(group) > 1:
                found.append(group)

    for name in sorted(edges):
        if name not in numbers:
            visit(name)
    return found
