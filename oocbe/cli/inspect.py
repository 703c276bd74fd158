"""``oocbe inspect``: the content of a problem file, a table or junction tree on disk, or a run directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oocbe.cli.flags import command, load_model
from oocbe.cli.output import print_answer
from oocbe.errors import UsageError
from oocbe.runtime.urls import url_of

if TYPE_CHECKING:
    from oocbe.model.problem import Problem
    from oocbe.tables.stored import StoredCompleteTable, StoredTable


@command("inspect")
def inspect(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_FOLDER",
            help="A problem file, the folder of a table, junction tree or run, or the URL of a table.",
        ),
    ],
    *,
    format: str | None,
) -> None:
    """Describe a problem file, a stored table, a junction tree, or the progress of a run directory."""
    path = Path(target)
    if (url := url_of(target)) is not None:
        from oocbe.tables.stored import open_table

        described = describe_stored(open_table(url))
    else:
        described = describe_folder(path) if path.is_dir() else describe_file(path, format)
    rows = ((name.replace("_", " "), _text(content)) for name, content in described.items())
    print_answer(lambda: {"schema_version": 1, **described}, rows, described["kind"])


def describe_folder(folder: Path) -> dict[str, object]:
    """Figures about the table, junction tree or run in a folder, as JSON types.

    Raises UsageError: there is none; CorruptDataError: it is damaged; UnsupportedError: it has another version.
    """
    from oocbe.elimination.runs.run_directory import describe_run
    from oocbe.junction_trees.stored.folder import is_tree
    from oocbe.tables.group import is_table
    from oocbe.tables.scratch import LOCK_NAME
    from oocbe.tables.stored import open_table

    if (folder / "run.json").exists():
        return describe_run(folder)
    if is_tree(folder):
        return describe_tree(folder)
    if not is_table(folder):
        if (folder / LOCK_NAME).exists():
            raise UsageError(f"{folder}: a work folder in which no run has published anything yet")
        raise UsageError(
            f"{folder}: neither a stored table (no zarr.json, no manifest.json) nor a run directory (no run.json) nor "
            "a junction tree (no tree.json)"
        )
    return describe_stored(open_table(folder))


def describe_file(path: Path, format_name: str | None) -> dict[str, object]:
    """Figures about the unchanged model of a file: domains may be infinite, and tables implicit."""
    from oocbe.model.dcop import Dcop
    from oocbe.model.linear_system import LinearSystem
    from oocbe.model.problem import Problem

    model = load_model(path, format_name)
    if isinstance(model, LinearSystem):
        return {
            "kind": "linear system",
            "name": model.name,
            "sense": "max" if model.maximises else "min",
            "variables": model.variables,
            "integral_variables": int(model.integral.sum()),
            "rows": model.rows,
            "non_zeros": len(model.coefficients),
            "largest_integers": "beyond 64-bit floats" if model.is_exact else "within 64-bit floats",
        }
    if isinstance(model, Problem):
        return describe_problem(model)
    if isinstance(model, Dcop):
        return describe_problem(model.problem) | {"agents": len(model.agents)}
    more = {"short_tables": len(model.short_tables), "left_out": list(model.left_out)}
    return describe_problem(model.problem) | more


def describe_problem(problem: Problem) -> dict[str, object]:
    """Figures about a problem, as JSON types."""
    neighbours: list[set[int]] = [set() for _ in problem.variables]
    for scope in (*(f.scope for f in problem.functions), *(c.scope for c in problem.constraints)):
        for v in scope:
            neighbours[v].update(scope)
    degrees = [len(near) - 1 for near in neighbours if near]
    return {
        "kind": "problem",
        "name": problem.name,
        "semiring": problem.semiring.name,
        "sense": problem.sense,
        "variables": len(problem.variables),
        "domain_sizes": _histogram(problem.sizes),
        "functions_by_arity": _histogram(len(f.scope) for f in problem.functions),
        "function_rows": sum(len(f.values) for f in problem.functions),
        "constraints_by_arity": _histogram(len(c.scope) for c in problem.constraints),
        "constraint_rows": sum(len(c.tuples) for c in problem.constraints),
        "linear_constraints": [linear.name for linear in problem.linear_constraints],
        "constant": problem.constant,
        "upper_bound": problem.upper_bound,
        "lower_bound": problem.lower_bound,
        "integral": problem.is_integral,
        "largest_degree": max(degrees, default=0),
        "mean_degree": round(sum(degrees) / max(1, len(problem.variables)), 2),
    }


def describe_tree(folder: Path) -> dict[str, object]:
    """Figures about a junction tree on disk, as JSON types."""
    from oocbe.junction_trees.tree import JunctionTree

    tree = JunctionTree.open(folder)
    found = tree.statistics
    return {
        "kind": "junction tree",
        "name": tree.problem.name,
        "variables": len(tree.problem.variables),
        **{name: found[name] for name in ("cliques", "rows", "cells", "width")},
        "made_on_disk": found["is_stored"],
    }


def describe_stored(table: StoredTable | StoredCompleteTable) -> dict[str, object]:
    """Figures about a table on disk, as JSON types; rows are feasible ones in either form."""
    return {
        "kind": "table",
        "form": "incomplete" if hasattr(table, "is_sorted") else "complete",
        "scope": list(table.layout.scope),
        "domain_sizes": list(table.layout.sizes),
        "rows": table.rows,
        "density": table.rows / table.layout.complete_rows,
        "bytes": table.nbytes,
        "stored_bytes": table.stored_bytes,
        "chunks": table.chunk_count,
        "key_bits": table.layout.bits,
        "key_words": table.layout.words,
        "semiring": table.semiring.name,
    }


def _histogram(numbers: Iterable[int]) -> dict[str, int]:
    return {str(number): count for number, count in sorted(Counter(numbers).items())}


def _text(content: object) -> str:
    if isinstance(content, dict):
        return ", ".join(f"{key}: {_text(part)}" for key, part in content.items() if part is not None)
    if isinstance(content, list):
        return ", ".join(map(str, content))
    if isinstance(content, bool):
        return "yes" if content else "no"
    return "" if content is None else f"{content:,}" if isinstance(content, int) else str(content)
