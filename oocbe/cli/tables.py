"""``oocbe convert`` of tables: Parquet to a stored table and back, and one stored form to another."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from oocbe.cli.output import print_written

if TYPE_CHECKING:
    from oocbe.model.semiring import Semiring
    from oocbe.tables.stored import StoredTable

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


class ParquetColumns(NamedTuple):
    """Settings for the columns of a Parquet input; see :meth:`oocbe.StoredTable.from_parquet`.

    Attributes
    ----------
    rename : name of a column to that of the variable, or of the values. drop_nulls, duplicates : as there.
    scope : columns that are variables; None: all but that of the values.
    """

    rename: Mapping[str, str] | None = None
    drop_nulls: bool = False
    duplicates: bool = False
    scope: tuple[str, ...] | None = None

    @classmethod
    def given(cls, rename: list[str] | None, drop_nulls: bool, duplicates: bool, scope: str | None) -> ParquetColumns:
        """The settings from flags; UsageError for a pair without a ``=``, or a column with two names."""
        from oocbe.errors import UsageError

        named: dict[str, str] = {}
        for pair in rename or ():
            column, equals, name = pair.partition("=")
            if not (column and equals and name):
                raise UsageError(f"--rename {pair}: expected COLUMN=NAME, such as date=day")
            if named.setdefault(column, name) != name:
                raise UsageError(f"--rename {pair}: {column} is called {named[column]} by another --rename; give one")
        names = None if scope is None else tuple(name.strip() for name in scope.split(",") if name.strip())
        return cls(named or None, drop_nulls, duplicates, names)

    def refuse(self, file: str, values: str | None = None) -> None:
        """Raise UsageError if any, or a column of values, is given, because the input is no Parquet."""
        from oocbe.errors import UsageError

        flags = zip(("--rename", "--drop-nulls", "--duplicates", "--scope", "--values"), (*self, values), strict=True)
        for flag, value in flags:
            if value is not None and value is not False:
                raise UsageError(f"{flag}: is for Parquet that is read, and {file} is none; leave it out")


class Settings(NamedTuple):
    """Settings of the conversion of a table, from the flags of ``oocbe convert``.

    Attributes
    ----------
    values : name of the column of values in Parquet. semiring : of the values; None: unchanged, or max-sum.
    memory : limit. overwrite : whether to replace an existing table or Parquet. columns : of Parquet.
    """

    values: str
    semiring: Semiring | None
    memory: int | None
    overwrite: bool
    columns: ParquetColumns


def convert_table(file: str, out: str, to: str | None, settings: Settings) -> None:
    """Write a table to OUT: as Parquet if its name has that suffix, else as a stored table.

    file, out : paths, or URLs in object stores; output to a URL is written to a scratch folder first.
    to : ``parquet``, or the form of a stored table's chunks: ``packed``, or ``zstd``, which any Zarr library reads.

    Raises
    ------
    UsageError : OUT exists without ``overwrite``, or an unknown form. Errors of reading and writing tables.
    """
    from oocbe.errors import UsageError
    from oocbe.tables.chunk_files import PACKED, ZSTD
    from oocbe.tables.object_path import is_url
    from oocbe.tables.scratch import ScratchFolder, default_parent

    forms = ("parquet", PACKED, ZSTD)
    form = to if to is not None else _form_of(out)
    if form not in forms:
        raise UsageError(f"--to: tables are written as {', '.join(forms)}, not {form!r}")
    if not is_url(out) or form == "parquet":
        table = _written(file, out, form, settings)
    elif settings.overwrite:
        raise UsageError(f"{out}: tables in object stores are not overwritten; choose another name")
    else:
        with closing(ScratchFolder(default_parent())) as scratch:
            table = _written(file, str(scratch.path / "table"), form, settings).upload(out)
    print_written(out, table)


def _form_of(out: str) -> str:
    """The form for a name; UsageError for the suffix of an unsupported file format."""
    from oocbe.errors import UsageError
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


def _written(file: str, out: str, form: str, settings: Settings) -> StoredTable:
    """Write the table in a form to a path (Parquet also to a URL); returns it, or the input table for Parquet."""
    from oocbe.errors import UsageError
    from oocbe.model.semiring import MAX_SUM
    from oocbe.tables.group import is_table as is_stored
    from oocbe.tables.object_path import place_named
    from oocbe.tables.stored import StoredTable

    memory, overwrite = settings.memory, settings.overwrite
    if not is_stored(place_named(file)):
        if form == "parquet":
            raise UsageError(f"{file} is Parquet already; OUT is to be a stored table, or a problem")
        meant = settings.semiring or MAX_SUM
        return StoredTable.from_parquet(
            file,
            out,
            settings.values,
            semiring=meant,
            memory=memory,
            codec=form,
            overwrite=overwrite,
            **settings.columns._asdict(),
        )
    settings.columns.refuse(file)
    table = StoredTable.open(file)
    if form == "parquet":
        table.to_parquet(out, settings.values, memory=memory, overwrite=overwrite)
        return table
    meant = settings.semiring or table.semiring
    return StoredTable.save_pieces(
        out,
        table.layout,
        table.dtype,
        meant,
        table.chunks(),
        chunk_rows=table.chunk_rows,
        codec=form,
        overwrite=overwrite,
    )
