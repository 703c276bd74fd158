"""``oocbe compile`` and ``oocbe query``: a junction tree is made once, and queried for many cases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oocbe.cli.flags import ProblemFile, command, load
from oocbe.cli.output import note, print_answer, print_json, prints_json, seconds
from oocbe.errors import UsageError, amount
from oocbe.model.settings.options import SolveOptions


@command("compile")
def compile_tree(
    file: ProblemFile,
    tree: Annotated[Path, typer.Argument(metavar="TREE", help="The folder to write.")],
    temperature: Annotated[
        float, typer.Option(metavar="NUMBER", help="Temperature of problems whose values are added.")
    ] = 1.0,
    *,
    options: SolveOptions,
    evidence: list[str] | None,
    format: str | None,
) -> None:
    """Compile FILE to a junction tree for oocbe query.

    A tree larger than --memory is built on disk. After a kill, or an end by --time-limit with exit code 20, the same
    command resumes.
    """
    if tree.exists():
        raise UsageError(f"{tree}: exists already; remove it, or name another folder for the tree")
    problem = load(file, format, evidence)
    from oocbe.junction_trees.tree import JunctionTree

    made = JunctionTree(
        problem,
        options.order,
        options.memory,
        temperature=temperature,
        order_seconds=options.order_seconds,
        seed=options.seed,
        folder=tree,
    )
    made.save(tree)
    found = made.statistics
    phases = ", ".join(f"{phase} {seconds(spent)}" for phase, spent in found["seconds"].items())
    where = "made on disk, larger than the memory" if found["is_stored"] else "made in memory"
    numerals = [(name, f"{found[name]:,}") for name in ("cliques", "rows", "cells", "width")]
    resumed = f"after {found['resumed_rows']:,} rows of an earlier process" if found["resumed_rows"] else ""
    print_answer(
        lambda: {"schema_version": 1, "tree": str(tree), **found},
        [("tree", tree), ("kind", where), ("resumed", resumed), *numerals, ("time", phases)],
    )


@command("query")
def query(
    tree: Annotated[Path, typer.Argument(metavar="TREE", help="A tree written by oocbe compile.")],
    cases: Annotated[Path, typer.Option(metavar="FILE", help="Cases: .csv, .json or .evid; .gz, .xz too.")],
    targets: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Queried variables, by commas; repeatable; default: all.")
    ] = None,
    joint: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Variables queried jointly, separated by commas; repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="A .csv or .parquet file, .zarr folder, or UAI .MAR, .PR, .MPE."
        ),
    ] = None,
    *,
    options: SolveOptions,
) -> None:
    """Answer cases from a junction tree: posteriors of variables, and the probability of the evidence of each case."""
    from oocbe.formats.files import without_compression, write_bytes
    from oocbe.junction_trees.case_files import (
        UAI_SUFFIXES,
        json_of,
        parquet_of,
        read_cases,
        table_of,
        uai_answer,
        write_zarr,
    )
    from oocbe.junction_trees.tree import JunctionTree
    from oocbe.runtime.framed import pyarrow

    out = None if str(out) == "-" else out
    suffix = "" if out is None else without_compression(out).suffix.lower()
    if out is not None and suffix not in (".csv", ".parquet", ".zarr", *UAI_SUFFIXES):
        from oocbe.formats.solutions import refuse_kind

        refuse_kind("--out", out)
        raise UsageError(
            f"--out {out}: unknown suffix of a file of answers; known: .csv, .parquet, .zarr, .MAR, .PR, .MPE"
        )
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: the folder {out.absolute().parent} does not exist; make it first")
    if suffix in UAI_SUFFIXES and (targets is not None or joint):
        raise UsageError(f"--out {out}: this format is about all variables; --targets and --joint go with .csv")
    if suffix == ".parquet":
        pyarrow()  # or an error before the sweep
    if suffix == ".zarr" and out is not None and (out.exists() or out.suffix.lower() != suffix):
        raise UsageError(f"--out {out}: expected the name of a new folder that ends in .zarr")
    made = JunctionTree.open(tree, options.memory, options.backend)
    known = read_cases(cases, made.problem)
    answers = None
    if out is not None and suffix in UAI_SUFFIXES:
        write_bytes(out, uai_answer(made, known, suffix[1:]).encode())
    else:
        wanted = None if targets is None else _names(",".join(targets))
        found = made.batch(known, wanted, [_names(group) for group in joint or []])
        if out is None and prints_json():
            answers = json_of(found)
        elif out is None:
            typer.echo(table_of(found), nl=False)
        elif suffix == ".zarr":
            write_zarr(found, out)
        else:
            write_bytes(out, parquet_of(found) if suffix == ".parquet" else table_of(found).encode())
    if out is not None:
        note(f"wrote {out}: {amount(len(known), 'case')}")
    if prints_json():
        written = None if out is None else str(out)
        print_json({"schema_version": 1, "cases": len(known), "output": written, "answers": answers})


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")] if text.strip() else []
