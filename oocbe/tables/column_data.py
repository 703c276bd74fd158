"""Data with columns: what sources of tables have in common, and all of them but Parquet, which are Arrow tables, CSV
files, lazy frames of Polars and relations of DuckDB."""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from oocbe.errors import FormatError, ModelError, UsageError
from oocbe.runtime.framed import pyarrow
from oocbe.tables.arrow import arrow_table


class Columns(Protocol):
    """Columns by their names in the data."""

    @property
    def what(self) -> str:
        """Location, for messages."""

    @property
    def schema(self) -> Any:
        """Names and types, a pyarrow.Schema."""

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Record batches of some columns, in that order, at most ``rows`` rows each where they are stored."""

    def metadata(self) -> Iterable[Any] | None:
        """Metadata of each Parquet file; None for other data."""
        return None


@dataclass(frozen=True)
class Held(Columns):
    """A pyarrow.Table."""

    data: Any
    what: str = "Arrow table"

    @property
    def schema(self) -> Any:
        """Of the table."""
        return self.data.schema

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Parts of its chunks."""
        yield from self.data.select(columns).to_batches(rows)


@dataclass(frozen=True)
class Query(Columns):
    """A lazy frame of Polars or a relation of DuckDB; it is run for each pass over some of its columns."""

    data: Any
    what: str = "query"

    @cached_property
    def schema(self) -> Any:
        """Names and types, a pyarrow.Schema; those of no rows of the query."""
        none = self.data.limit(0)
        return arrow_table(none.collect() if hasattr(none, "collect") else none).schema

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Those of a run of the query."""
        if hasattr(self.data, "collect_schema"):
            frame = self.data.select(columns)
            in_batches = hasattr(frame, "collect_batches")  # from Polars 1.34 on
            for part in frame.collect_batches(chunk_size=rows) if in_batches else [frame.collect()]:
                yield from part.to_arrow().to_batches(rows)
            return
        names = ('"' + name.replace('"', '""') + '"' for name in columns)
        yield from pyarrow().RecordBatchReader.from_stream(self.data.project(", ".join(names)))


def opened(source: Any, texts: Iterable[str] = (), is_part: bool = False) -> Any:
    """A source; the Arrow table of a CSV file (``.csv``, or ``.tsv`` with tabs, as they are or compressed as ``.gz``,
    ``.bz2``, ``.xz`` or ``.zst``) in place of its path, and a :class:`Query` in place of a lazy frame or a relation.
    Empty cells are missing entries, of text, too; ``NULL``, ``NA`` and ``nan`` are so beside numbers only. The files of
    a list or a pattern (``sales-*.csv``) are one source. texts : columns of text. is_part : other files of the source
    decide about a column of nothing else.
    Raises UsageError: no such file; FormatError: a damaged one; ModelError: files with other columns than the first.
    """
    own = type(source)  # a frame of pandas has its columns as attributes
    is_lazy = hasattr(own, "collect_schema") and hasattr(own, "collect")
    if is_lazy or (hasattr(own, "project") and hasattr(own, "__arrow_c_stream__")):
        return Query(source)
    names = list(source) if isinstance(source, list | tuple) else [source]
    if not all(isinstance(name, str | Path) for name in names):
        return source
    path = Path(names[0]) if names else Path()
    if len(names) == 1 and re.search("[*?[]", path.name) and not path.exists():
        names = sorted(path.parent.glob(path.name)) or names
    endings = (re.search(r"[.](csv|tsv)([.](gz|bz2|xz|zst))?$", str(name).lower()) for name in names)
    kinds = [(found[1], found[3]) for found in endings if found is not None]
    if not kinds or len(kinds) < len(names):
        return source if names == [source] else names
    if len(names) > 1:
        parts, kinds = [opened(name, is_part=True).data for name in names], pyarrow().types
        untyped = set.intersection(*({f.name for f in part.schema if kinds.is_null(f.type)} for part in parts))
        texts = untyped | {field.name for part in parts for field in part.schema if kinds.is_string(field.type)}
        for place, part in enumerate(parts):
            if any(field.name in texts and kinds.is_null(field.type) for field in part.schema):
                parts[place] = opened(names[place], texts).data
        for name, part in zip(names, parts, strict=True):  # else Arrow fills what is missing with nulls
            if differs := sorted({*part.column_names} ^ {*parts[0].column_names}):
                raise ModelError(f"{source}: different columns: {names[0]} or {name} has no {differs[0]!r}")
        try:
            whole = pyarrow().concat_tables(parts, promote_options="permissive")
        except (pyarrow().ArrowInvalid, pyarrow().ArrowTypeError) as error:
            raise ModelError(f"{source}: the files have different columns: {error}") from None
        return Held(whole, str(source))
    from pyarrow import compute, csv

    source, ((kind, compression),) = names[0], kinds
    if not Path(source).is_file():
        raise UsageError(f"{source}: there is no such file")
    parsed = csv.ParseOptions(delimiter="\t" if kind == "tsv" else ",")
    try:
        with lzma.open(source) if compression == "xz" else nullcontext(source) as given:
            types = csv.ConvertOptions(column_types=dict.fromkeys(texts, "string"))
            data = csv.read_csv(given, parse_options=parsed, convert_options=types)
    except (pyarrow().ArrowInvalid, OSError, lzma.LZMAError) as error:
        raise FormatError(source, None, str(error)) from None
    untyped = {field.name for field in data.schema if pyarrow().types.is_null(field.type)}
    if untyped and data.num_rows and not is_part:
        return opened(source, untyped | set(texts))
    for place, column in enumerate(data.columns):
        if pyarrow().types.is_binary(column.type):
            raise FormatError(source, None, f"column {data.column_names[place]} is no UTF-8; convert the file (iconv)")
        if pyarrow().types.is_string(column.type) and compute.any(empty := compute.equal(column, "")).as_py():
            has_text = not compute.all(empty).as_py()
            left = compute.if_else(empty, None, column) if has_text else pyarrow().nulls(len(column))
            data = data.set_column(place, data.column_names[place], left)
    return Held(data, str(source))
