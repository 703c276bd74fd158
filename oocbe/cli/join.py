"""``oocbe join``: an aggregate of the natural join of tables, by groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oocbe.cli.convert import ParquetColumns
from oocbe.cli.flags import command
from oocbe.cli.output import print_written
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.tables.table import Table


@command("join")
def join(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Parquet files, folders of them, CSV files, or URLs of Parquet."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT", help="Parquet, CSV, or a folder for a stored table.")
    ],
    group_by: Annotated[
        str, typer.Option("--group-by", metavar="NAMES", help="Columns of the groups, separated by commas; '': none.")
    ],
    maximum: Annotated[str | None, typer.Option("--max", metavar="COLUMN", help="The greatest sum of COLUMN.")] = None,
    minimum: Annotated[str | None, typer.Option("--min", metavar="COLUMN", help="The least sum of COLUMN.")] = None,
    total: Annotated[str | None, typer.Option("--sum", metavar="COLUMN", help="The sum of products of COLUMN.")] = None,
    is_count: Annotated[bool, typer.Option("--count", help="The number of joined rows.")] = False,
    product: Annotated[bool, typer.Option("--product", help="With --max: multiply COLUMN, do not add.")] = False,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="NAMES", help="Columns to match, separated by commas; default: all common ones."),
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option("--rename", metavar="COLUMN=NAME", help="New name of a column; repeatable.")
    ] = None,
    drop_nulls: Annotated[bool, typer.Option("--drop-nulls", help="Leave out rows with missing entries.")] = False,
    *,
    options: SolveOptions,
) -> None:
    """Aggregate the natural join of tables by groups, without computing the join.

    Rows match if they agree in all columns that several files have. COLUMN is taken from each file that has it, and
    added up (--max, --min) or multiplied (--sum) over the matching rows.
    """
    from oocbe.api.aggregation import aggregate
    from oocbe.errors import UsageError
    from oocbe.model.settings.machine import use_gpus
    from oocbe.tables.parquet_source import source_of

    given = {"max": maximum, "min": minimum, "sum": total, "count": "count" if is_count else None}
    asked = [(name, column) for name, column in given.items() if column is not None]
    if len(asked) != 1:
        raise UsageError("give one of --max COLUMN, --min COLUMN, --sum COLUMN and --count")
    ((name, column),) = asked
    names = ParquetColumns.given(rename, drop_nulls, False, None).rename
    sources = [_source(file) for file in files]
    columns = [column if column in source_of(source, names).names else None for source in sources]
    if not is_count and not any(columns):
        raise UsageError(f"--{name}: no file has a column {column!r}")
    stored = output.suffix not in (".parquet", ".csv")
    with use_gpus(options.gpus):
        result = aggregate(
            *sources,
            group_by=_listed(group_by),
            aggregate=name,
            combine="product" if product else None,
            values=columns,
            on=None if on is None else _listed(on),
            rename=names,
            drop_nulls=drop_nulls,
            memory=options.memory,
            backend=options.backend,
            output=output if stored else None,
        )
    if not stored:
        _write(result, output, _listed(group_by), column)
    print_written(output, result)


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _source(file: str) -> Any:
    """A path or URL of Parquet, or the Arrow table of a CSV file."""
    if not file.lower().endswith((".csv", ".csv.gz", ".tsv")):
        return file
    from oocbe.errors import FormatError, UsageError
    from oocbe.tables.arrow import pyarrow

    arrow = pyarrow()
    from pyarrow import csv

    if not Path(file).is_file():
        raise UsageError(f"{file}: there is no such file")
    try:
        return csv.read_csv(file, parse_options=csv.ParseOptions(delimiter="\t" if file.endswith(".tsv") else ","))
    except arrow.ArrowInvalid as error:
        raise FormatError(file, None, str(error)) from None


def _write(result: Table, output: Path, group_by: list[str], column: str) -> None:
    """Write groups as Parquet or CSV, their columns in the given order; the file appears when complete."""
    from oocbe.errors import UsageError
    from oocbe.runtime.temporary_names import replace, temporary_beside
    from oocbe.tables.arrow import pyarrow

    arrow = pyarrow()
    from pyarrow import csv, parquet

    if not group_by:  # a table over no variable has no columns of keys
        data = arrow.table({column: arrow.array(result.values)})
    else:
        made = result.to_arrow(column).select([*group_by, column])
        plain = [c.cast(c.type.value_type) if arrow.types.is_dictionary(c.type) else c for c in made.columns]
        data = arrow.table(dict(zip(made.column_names, plain, strict=True)))
        data = data.sort_by([(name, "ascending") for name in group_by])
    try:
        with temporary_beside(output) as temporary:
            if output.suffix == ".csv":
                csv.write_csv(data, temporary)
            else:
                parquet.write_table(data, temporary)
            replace(temporary, output)
    except OSError as error:
        raise UsageError(f"{output}: cannot be written: {error.strerror or error}") from None
