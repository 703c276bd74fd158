"""``oocbe convert`` of tables: Parquet to a stored table and back, and one stored form to another."""

from __future__ import annotations

from pathlib import Path

from oocbe.cli.output import note

PARQUET = ".parquet"
"""Suffix of a Parquet file; a folder of such files is told by what is in it."""


def is_table(path: Path) -> bool:
    """Whether a path is a stored table or Parquet, not a problem."""
    from oocbe.tables.group import is_table as is_stored

    if path.is_dir():
        return is_stored(path) or next(path.rglob(f"*{PARQUET}"), None) is not None
    return path.suffix.lower() == PARQUET


def convert_table(
    file: Path,
    out: Path,
    values: str,
    semiring: str | None,
    memory: str | None,
    to: str | None,
    overwrite: bool,
) -> None:
    """Write a table to OUT: as Parquet where its name ends so, else as a stored table.

    to : ``parquet``, or the form of a stored table's chunks: ``packed``, or ``zstd``, which any Zarr library reads.

    Raises
    ------
    UsageError : OUT exists and is not to be overwritten, or a form or semiring that there is not. What reading and
        writing tables raises.
    """
    from oocbe.errors import UsageError
    from oocbe.model.semiring import MAX_SUM, SEMIRINGS
    from oocbe.tables.chunk_files import PACKED, ZSTD
    from oocbe.tables.group import is_table as is_stored
    from oocbe.tables.stored import StoredTable

    forms = ("parquet", PACKED, ZSTD)
    form = to if to is not None else "parquet" if out.suffix.lower() == PARQUET else PACKED
    if form not in forms:
        raise UsageError(f"--to: tables are written as {', '.join(forms)}, not {form!r}")
    if semiring is not None and semiring not in SEMIRINGS:
        raise UsageError(f"--semiring: {semiring!r} is none of {', '.join(SEMIRINGS)}")
    if not is_stored(file):
        if form == "parquet":
            raise UsageError(f"{file} is Parquet already; OUT is to be a stored table, or a problem")
        meant = MAX_SUM if semiring is None else SEMIRINGS[semiring]
        stored = StoredTable.from_parquet(
            file, out, values, semiring=meant, memory=memory, codec=form, overwrite=overwrite
        )
        note(f"wrote {out}: {stored!r}")
        return
    table = StoredTable.open(file)
    if form == "parquet":
        table.to_parquet(out, values, memory=memory, overwrite=overwrite)
    else:
        meant = table.semiring if semiring is None else SEMIRINGS[semiring]
        StoredTable.save_pieces(
            out,
            table.layout,
            table.dtype,
            meant,
            table.chunks(),
            chunk_rows=table.chunk_rows,
            codec=form,
            overwrite=overwrite,
        )
    note(f"wrote {out}: {table!r}")
