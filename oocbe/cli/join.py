"""``oocbe join``: an aggregate of the natural join of tables, by groups."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from oocbe.cli.convert import ParquetColumns, listed
from oocbe.cli.flags import command
from oocbe.cli.output import print_written, prints_json
from oocbe.errors import UsageError
from oocbe.model.settings.machine import use_gpus
from oocbe.model.settings.options import SolveOptions

_Texts = list[str] | None


def _given(flag: str, metavar: str, help: str) -> Any:
    return typer.Option(flag, metavar=metavar, help=help[:-1] + "; repeatable.")


@command("join")
def join(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Parquet files, folders of them, CSV files, quoted patterns, or URLs of Parquet."
        ),
    ],
    group_by: Annotated[list[str], _given("--group-by", "NAMES", "Columns of the groups, by commas; '': none.")],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="OUT", help="Parquet or its URL, CSV, or a folder for a stored table."),
    ] = "-",
    maximum: Annotated[_Texts, _given("--max", "COLUMN", "The greatest sum of COLUMN.")] = None,
    minimum: Annotated[_Texts, _given("--min", "COLUMN", "The least sum of COLUMN.")] = None,
    total: Annotated[_Texts, _given("--sum", "COLUMN", "The sum of products of COLUMN.")] = None,
    mean: Annotated[_Texts, _given("--mean", "COLUMN", "The mean product of COLUMN.")] = None,
    argmax: Annotated[
        _Texts, _given("--argmax", "COLUMN:OTHER", "OTHER in the row with the greatest sum of COLUMN.")
    ] = None,
    is_count: Annotated[bool, typer.Option("--count", help="The number of joined rows.")] = False,
    product: Annotated[bool, typer.Option("--product", help="With --max: multiply COLUMN, do not add.")] = False,
    on: Annotated[_Texts, _given("--on", "NAMES", "Columns to match, by commas; default: all common ones.")] = None,
    key: Annotated[_Texts, _given("--key", "NAME=FUNCTION(COLUMN)", "Column such as month=month(day).")] = None,
    top: Annotated[int | None, typer.Option(metavar="K", help="Keep the K best groups.")] = None,
    within: Annotated[
        _Texts, _given("--within", "NAMES", "With --top: the K best of those that agree in NAMES.")
    ] = None,
    is_explained: Annotated[bool, typer.Option("--explain", help="Print the plan, rows and seconds.")] = False,
    rename: Annotated[_Texts, _given("--rename", "COLUMN=NAME", "New name of a column.")] = None,
    drop_nulls: Annotated[bool, typer.Option("--drop-nulls", help="Leave out rows with missing entries.")] = False,
    *,
    options: SolveOptions,
) -> None:
    """Aggregate the natural join of tables by groups, without computing the join.

    Rows match if they agree in all columns that several files have. COLUMN is taken from each file that has it, and
    added up (--max, --min) or multiplied (--sum, --mean) over the matching rows. Several aggregates, also of one kind,
    are columns such as max_gain, and argmax_gain_carrier after argmax_gain. Without OUT, the result is printed as CSV.
    """
    from oocbe.api.aggregation import aggregate

    given = {"max": maximum, "min": minimum, "sum": total, "mean": mean, "count": ["count"] if is_count else None}
    asked = [(name, column) for name, columns in given.items() for column in columns or ()]
    stored = output != "-" and Path(output).suffix.lower() not in (".parquet", ".csv", ".tsv")
    if not (asked or argmax) or (stored and (len(asked) > 1 or mean or argmax)):
        some = "one of --max, --min, --sum and --count for a stored table" if stored else "--max, --min, --sum, --mean"
        raise UsageError(f"give {some}{'' if stored else ' (each with a COLUMN), --argmax or --count'}")
    if output == "-" and prints_json():
        raise UsageError("--json: the result is printed as CSV; name its file by --output")
    keys = {}
    for text in key or ():
        found = re.fullmatch(r"(.+?)=(\w+)\((.+)\)", text)
        if found is None:
            raise UsageError(f"--key {text}: give NAME=FUNCTION(COLUMN), such as month=month(day)")
        keys[found[1]] = (found[3], found[2])
    single = len(asked) == 1 and not argmax
    named: dict[str, tuple[str, ...]] = {
        column if single else f"{how}_{column}": (how, column) for how, column in asked if how != "count"
    }
    named |= {"count": ("count",)} if is_count else {}
    for text in argmax or ():
        column, _, other = text.rpartition(":")
        if not (column and other):
            raise UsageError(f"--argmax {text}: give COLUMN:OTHER, such as gain:carrier")
        name = f"argmax_{column}"
        named[f"{name}_{other}" if name in named else name] = ("argmax", column, other)
    with use_gpus(options.gpus):
        result: Any = aggregate(
            *files,
            group_by=listed(group_by),
            aggregate=named,
            combine="product" if product else None,
            on=None if on is None else listed(on),
            keys=keys,
            top=top,
            within=listed(within),
            rename=ParquetColumns.given(rename, drop_nulls, False, None).rename,
            drop_nulls=drop_nulls,
            memory=options.memory,
            backend=options.backend,
            output=output if stored else None,
            explain=partial(print, file=sys.stderr) if is_explained else None,
        )
        if not stored:
            _write(result, output)
            result = f"{result.num_rows:,} rows of {', '.join(result.column_names)}"
    if output != "-":
        print_written(output, result)


def _write(data: Any, output: str) -> None:
    """Write an Arrow table as Parquet or CSV; a file, or an object of a store, appears when complete."""
    from pyarrow import csv, parquet

    from oocbe.formats.files import published
    from oocbe.tables.object_path import ObjectPath, place_named
    from oocbe.tables.objects import upload_file
    from oocbe.tables.scratch import ScratchFolder, default_parent

    if output.lower().endswith((".csv", ".tsv")) or output == "-":
        with published(output) as file:
            csv.write_csv(data, file, csv.WriteOptions(delimiter="\t" if output.lower().endswith("tsv") else ","))
    elif isinstance(place := place_named(output), ObjectPath):
        with closing(ScratchFolder(default_parent())) as scratch:
            parquet.write_table(data, scratch.path / "made.parquet")
            upload_file(scratch.path / "made.parquet", place)
    else:
        with published(place) as file:
            parquet.write_table(data, file)
