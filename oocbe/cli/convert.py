"""``oocbe convert``: a problem or a table from one format to another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oocbe.cli.flags import command, load_model
from oocbe.cli.output import print_written
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.formats import Model


@command("convert")
def convert(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A problem, or -; .gz and .xz are decompressed. Or a table, or its URL."),
    ],
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="The file to write; .gz and .xz compress. Or a table, or its URL.")
    ],
    to: Annotated[str | None, typer.Option("--to", help="Format of OUT; default: by its suffix.")] = None,
    values: Annotated[
        str | None,
        typer.Option("--values", metavar="COLUMN", help="Tables: the column of values in Parquet (value)."),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="COLUMN=NAME", help="Parquet: new name of a column; repeatable."),
    ] = None,
    drop_nulls: Annotated[
        bool, typer.Option("--drop-nulls", help="Parquet: leave out rows with missing entries.")
    ] = False,
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="Parquet: accept repeated keys; operators combine them.")
    ] = False,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="NAMES", help="Parquet: key columns, separated by commas.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Tables: replace OUT if it is a stored table, or Parquet.")
    ] = False,
    *,
    options: SolveOptions,
    evidence: list[str] | None,
    format: str | None,
) -> None:
    """Write FILE to OUT in another format.

    FILE and OUT are problems, or tables: Parquet files, folders of Parquet files, and stored tables, also in object
    stores (s3://bucket/table). Tables are converted in pieces.
    """
    from oocbe.cli.tables import ParquetColumns, Settings, convert_table, is_table
    from oocbe.tables.object_path import is_url

    columns = ParquetColumns.given(rename, drop_nulls, duplicates, scope)
    if format is None and is_table(file):
        convert_table(file, out, to, Settings(values or "value", options.semiring, options.memory, overwrite, columns))
        return
    columns.refuse(file, values)
    from oocbe.api.facade import finite_problem
    from oocbe.errors import UsageError
    from oocbe.formats import writes_systems
    from oocbe.model.dcop import Dcop
    from oocbe.model.linear_system import LinearSystem

    if is_url(file) or is_url(out):
        raise UsageError(
            f"{file if is_url(file) else out}: only tables are read from object stores, and written there; name a file"
        )
    path = Path(file)
    if Path(out).is_file() and path.is_file() and path.samefile(out):
        raise UsageError(f"{out}: this is the problem itself; name another file")
    model = load_model(path, format)
    if isinstance(model, LinearSystem) and writes_systems(out, to):
        for flag, is_given in (("--evidence", evidence), ("--semiring", options.semiring)):
            if is_given:
                raise UsageError(f"{flag}: {out} holds the linear system of {file} as it is; leave it out")
        save(model, Path(out), to)
        return
    problem = finite_problem(model, path, evidence or None)
    problem = problem.in_semiring(options.semiring or problem.semiring)
    save(replace(model, problem=problem) if isinstance(model, Dcop) else problem, Path(out), to)


def save(problem: Model, out: Path, format_name: str | None) -> None:
    """Write a problem for a command, and print so."""
    from oocbe.formats import write

    write(problem, out, format_name)
    print_written(out, problem)
