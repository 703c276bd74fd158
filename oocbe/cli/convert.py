"""``oocbe convert``: a problem or a table from one format to another.

Tables are converted from Parquet to a stored table and back, and from one stored form to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from oocbe.cli.flags import command, load_model
from oocbe.cli.output import print_written
from oocbe.errors import UsageError
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.formats import Model
    from oocbe.model.semiring import Semiring
    from oocbe.tables.stored import StoredTable


@command("convert")
def convert(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A problem, or -; .gz and .xz are decompressed. Or a table, or its URL."),
    ],
    out: Annotated[
        str,
        typer.Argument(metavar="OUT", help="The file to write, or -; .gz, .xz compress. Or a table, or its URL."),
    ],
    to: Annotated[
        str | None,
        typer.Option(help="Format of OUT; default: by its suffix. Tables: parquet, packed, zstd (any Zarr library)."),
    ] = None,
    values: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Tables: the column of values in Parquet (value).")
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=NAME", help="Parquet: new name of a column; repeatable.")
    ] = None,
    drop_nulls: Annotated[bool, typer.Option("--drop-nulls", help="Parquet: leave out rows with nulls.")] = False,
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="Parquet: accept repeated keys; operators combine them.")
    ] = False,
    scope: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Parquet: key columns, by commas; repeatable.")
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
    from oocbe.tables.object_path import is_url

    columns = ParquetColumns.given(rename, drop_nulls, duplicates, scope)
    if format is None and is_table(file):
        convert_table(
            file, out, to, ConversionSettings(values or "value", options.semiring, options.memory, overwrite, columns)
        )
        return
    columns.refuse(file, values)
    from oocbe.api.facade import finite_problem
    from oocbe.formats import writes_systems
    from oocbe.model.dcop import Dcop
    from oocbe.model.linear_system import LinearSystem

    if is_url(file) or is_url(out):
        raise UsageError(
            f"{file if is_url(file) else out}: only tables are read from object stores, and written there; name a file"
        )
    path = Path(file)
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


PARQUET = ".parquet"
"""Suffix of a Parquet file; a folder of such files is recognised by its content."""

FILES = ("arrow", "csv", "feather", "json", "pq", "tsv", "xlsx")
"""Suffixes of other file formats for rows, which are refused for stored tables, as these are folders."""


def is_table(name: str) -> bool:
    """Whether a path, or a URL, is a stored table or Parquet, not a problem."""
    from oocbe.tables.group import is_table as is_stored
    from oocbe.tables.object_path import is_url

    if is_url(name):
        return True
    path = Path(name)
    if path.is_dir():
        return is_stored(path) or next(path.rglob(f"*{PARQUET}"), None) is not None
    return path.suffix.lower() == PARQUET


def listed(names: list[str] | None) -> list[str]:
    """Names of a repeatable flag that are separated by commas."""
    return [name.strip() for name in ",".join(names or ()).split(",") if name.strip()]


class ParquetColumns(NamedTuple):
    """Settings for the columns of a Parquet input; see :meth:`oocbe.StoredTable.from_parquet`.

    rename : name of a column to that of the variable, or of the values. drop_nulls, duplicates : as there.
    scope : columns that are variables; None: all but that of the values.
    """

    rename: Mapping[str, str] | None = None
    drop_nulls: bool = False
    duplicates: bool = False
    scope: tuple[str, ...] | None = None

    @classmethod
    def given(
        cls, rename: list[str] | None, drop_nulls: bool, duplicates: bool, scope: list[str] | None
    ) -> ParquetColumns:
        """The settings from flags; UsageError for a pair without a ``=``, or a column with two names."""
        named: dict[str, str] = {}
        for pair in rename or ():
            column, equals, name = pair.partition("=")
            if not (column and equals and name):
                raise UsageError(f"--rename {pair}: expected COLUMN=NAME, such as date=day")
            if named.setdefault(column, name) != name:
                raise UsageError(f"--rename {pair}: {column} is called {named[column]} by another --rename; give one")
        return cls(named or None, drop_nulls, duplicates, None if scope is None else tuple(listed(scope)))

    def refuse(self, file: str, values: str | None = None) -> None:
        """Raise UsageError if any, or a column of values, is given, because the input is no Parquet."""
        flags = zip(("--rename", "--drop-nulls", "--duplicates", "--scope", "--values"), (*self, values), strict=True)
        for flag, value in flags:
            if value is not None and value is not False:
                raise UsageError(f"{flag}: is for Parquet that is read, and {file} is none; leave it out")


class ConversionSettings(NamedTuple):
    """Settings of the conversion of a table, from the flags of ``oocbe convert``.

    values : name of the column of values in Parquet. semiring : of the values; None: unchanged, or max-sum.
    memory : limit. overwrite : whether to replace an existing table or Parquet. columns : of Parquet.
    """

    values: str
    semiring: Semiring | None
    memory: int | None
    overwrite: bool
    columns: ParquetColumns


def convert_table(file: str, out: str, to: str | None, settings: ConversionSettings) -> None:
    """Write a table to OUT: as Parquet if its name has that suffix, else as a stored table.

    file, out : paths, or URLs in object stores; output to a URL is written to a scratch folder first.
    to : ``parquet``, or the codec of a stored table's chunks: ``packed``, or ``zstd``, which any Zarr library reads.

    Raises UsageError: OUT exists without ``overwrite``, or an unknown ``to``. Errors of reading and writing tables.
    """
    from oocbe.tables.chunk_files import PACKED, ZSTD
    from oocbe.tables.object_path import is_url
    from oocbe.tables.scratch import ScratchFolder, default_parent

    if out == "-":
        raise UsageError("OUT -: no table is written to standard output; name a file or folder")
    known = ("parquet", PACKED, ZSTD)
    to = to if to is not None else _default_of(out)
    if to not in known:
        raise UsageError(f"--to: tables are written as {', '.join(known)}, not {to!r}")
    if not is_url(out) or to == "parquet":
        table = _written(file, out, to, settings)
    elif settings.overwrite:
        raise UsageError(f"{out}: tables in object stores are not overwritten; choose another name")
    else:
        with closing(ScratchFolder(default_parent())) as scratch:
            table = _written(file, str(scratch.path / "table"), to, settings).upload(out)
    print_written(out, table)


def _default_of(out: str) -> str:
    """``parquet``, or the codec, for a name; UsageError for the suffix of an unsupported file format."""
    from oocbe.formats.registry import formats
    from oocbe.tables.chunk_files import PACKED

    suffix = Path(out).suffix.lower()
    if suffix == PARQUET:
        return "parquet"
    if suffix.lstrip(".") in {*formats(), *FILES}:
        raise UsageError(
            f"{out}: tables are written as Parquet ({PARQUET}), or as a folder; to call a folder so, add --to {PACKED}"
        )
    return PACKED


def _written(file: str, out: str, to: str, settings: ConversionSettings) -> StoredTable:
    """Write the table to a path (Parquet also to a URL); returns it, or the input table for Parquet."""
    from oocbe.model.semiring import MAX_SUM
    from oocbe.tables.group import is_table as is_stored
    from oocbe.tables.object_path import place_named
    from oocbe.tables.stored import StoredTable

    memory, overwrite = settings.memory, settings.overwrite
    if not is_stored(place_named(file)):
        if to == "parquet":
            raise UsageError(f"{file} is Parquet already; OUT is to be a stored table, or a problem")
        meant = settings.semiring or MAX_SUM
        columns = settings.columns._asdict()
        return StoredTable.from_parquet(
            file, out, settings.values, semiring=meant, memory=memory, codec=to, overwrite=overwrite, **columns
        )
    settings.columns.refuse(file)
    table = StoredTable.open(file)
    if to == "parquet":
        table.to_parquet(out, settings.values, memory=memory, overwrite=overwrite)
        return table
    meant = settings.semiring or table.semiring
    of_table = table.layout, table.dtype, meant, table.chunks()
    return StoredTable.save_pieces(out, *of_table, chunk_rows=table.chunk_rows, codec=to, overwrite=overwrite)
