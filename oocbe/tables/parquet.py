"""Conversion of tables to and from Parquet, in pieces: files or folders of any size, within a memory limit.

Domains are determined first (:mod:`oocbe.tables.common_domains`). Then rows are read and written by batches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oocbe.errors import ModelError, UsageError
from oocbe.model.row_numbers import even_ranges
from oocbe.model.settings.option_values import optional, parse_boolean, parse_count
from oocbe.runtime.deadline import looked
from oocbe.runtime.framed import pyarrow
from oocbe.runtime.temporary_names import LOCK_NAME, replace, temporary_beside
from oocbe.tables import disk
from oocbe.tables.arrow import batches_of, column_of, numbers_of, schema_of, value_kind
from oocbe.tables.columns import Column, Domains, Rows, check_scope, keys_of, layout_for, value_dtype, values_of
from oocbe.tables.common_domains import domain_in, limit_of
from oocbe.tables.layout import Layout, as_domains
from oocbe.tables.object_path import ObjectPath, place_named
from oocbe.tables.objects import refuse_existing, upload_file
from oocbe.tables.parquet_source import ColumnSource, Source, batch_rows, check_renamed, source_of
from oocbe.tables.scratch import ScratchFolder, default_parent

PART_NAME = "part-{:05}.parquet"
"""Names of the files in a folder of Parquet files."""

_PART = re.compile(r"part-\d{5,}\.parquet")


class ParquetRows(NamedTuple):
    """A dataset as a table: layout, dtype of the values, rows in pieces, and the maximum rows of a piece."""

    layout: Layout
    dtype: np.dtype[Any]
    pieces: Generator[Rows, None, None]
    piece_rows: int


def read_parquet(
    given: Source,
    values: str,
    scope: Sequence[str] | None,
    domains: Domains | None,
    rename: Mapping[str, str] | None,
    drop_nulls: bool,
    memory: int | str | None,
) -> ParquetRows:
    """Rows of a dataset of any size; see :meth:`oocbe.StoredTable.from_parquet`."""
    source, limit = source_of(given, rename, drop_nulls), limit_of(memory)
    check_renamed(rename, [source])
    what = source.what
    wanted = check_scope(source.names, values, scope, what)
    known = as_domains(domains)
    for name in wanted:
        if name not in known:
            known[name] = domain_in(source, name, limit) or 1  # a domain has at least one value
    layout = layout_for(wanted, known)
    dtype = value_dtype(value_kind(values, source.type_of(values), what), what)
    cost = 8 * (len(wanted) + 2) + 8 * layout.words
    rows = batch_rows(limit, cost)

    def pieces() -> Iterator[Rows]:
        first = 0
        for batch in source.batches([*wanted, values], rows):
            columns = [column_of(n, batch.column(i), what, known[n], first) for i, n in enumerate(wanted)]
            numbers = values_of(numbers_of(values, batch.column(len(wanted)), what, first), dtype, what)
            try:
                keys = keys_of(columns, layout, what, first)
            except ModelError:
                _refuse_statistics(source, columns)
                raise
            if not wanted:
                keys = np.zeros((1, len(numbers)), dtype=np.uint64)
            yield keys, numbers
            first += len(numbers)

    return ParquetRows(layout, dtype, _ahead(pieces()), rows)


def _refuse_statistics(source: ColumnSource, columns: Sequence[Column]) -> None:
    """Refuse (ModelError) a file whose statistics, the source of domains, contradict its integers."""
    for column in columns:
        found = source.statistics(column.name) if column.labels is None and len(column.indices) else None
        if found is None:
            continue
        least, greatest = int(column.indices.min()), int(column.indices.max())
        if not found[0] <= least <= greatest <= found[1]:
            raise ModelError(
                f"{source.what}: column {column.name} has integers from {least} to {greatest}, and the file's "
                f"statistics say {found[0]} to {found[1]}: they are wrong; write the file anew, or give the column's "
                "domain (domains)"
            )


class WrittenRows(NamedTuple):
    """A table to write, of ``total`` rows from ``read(start, stop)``; settings of :meth:`oocbe.Table.to_parquet`."""

    layout: Layout
    dtype: np.dtype[Any]
    total: int
    read: Callable[[int, int], Rows]
    values: str
    memory: int | str | None
    rows_per_file: int | None
    compression: str


def write_parquet(rows: WrittenRows, path: str | Path, overwrite: bool) -> Path | str:
    """Write a table; see :meth:`oocbe.Table.to_parquet`."""
    arrow, overwrite = pyarrow(), parse_boolean("overwrite", overwrite)
    if isinstance(place := place_named(path), ObjectPath):
        return _write_to_store(rows, place, overwrite)
    target, layout = Path(path), rows.layout
    rows_per_file = optional(parse_count)("rows_per_file", rows.rows_per_file)
    _refuse_existing(target, overwrite)
    schema = schema_of(layout, rows.dtype, rows.values)
    most = batch_rows(limit_of(rows.memory), 8 * (len(layout.scope) + 2) + 8 * layout.words)
    most = most if rows_per_file is None else min(most, rows_per_file)
    parts = _parts(rows.total, most, rows_per_file)
    batches = _ahead(batches_of(layout, schema, (rows.read(*part) for part in parts)))
    options = {"compression": rows.compression, "use_dictionary": list(layout.labels)}
    try:
        with temporary_beside(target, is_folder=rows_per_file is not None) as temporary:
            _write_files(temporary.absolute(), schema, batches, most, rows_per_file, options)
            _refuse_existing(target, overwrite)
            if target.is_dir():
                disk.replace_folder(temporary, target)
            else:
                if temporary.is_dir():
                    target.unlink(missing_ok=True)
                replace(temporary, target)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror or error}") from None
    except arrow.ArrowException as error:
        raise UsageError(f"{target}: cannot be written: {error}") from None
    return target


def _write_to_store(rows: WrittenRows, place: ObjectPath, overwrite: bool) -> str:
    """Write Parquet to scratch, and upload it: a file appears complete; of a folder, a failure removes all."""
    if overwrite and rows.rows_per_file is not None:
        raise UsageError(f"{place}: folders in object stores are not overwritten; choose another name")
    if not overwrite:
        refuse_existing(place)
    with closing(ScratchFolder(default_parent())) as scratch:
        made = scratch.path / "made.parquet"
        write_parquet(rows, made, overwrite=False)
        if made.is_file():
            upload_file(made, place)
            return str(place)
        begun: list[ObjectPath] = []
        try:
            for part in sorted(made.iterdir()):
                begun.append(place / part.name)
                upload_file(part, begun[-1])
        except BaseException:
            for found in begun:
                with suppress(OSError):
                    found.remove()
            raise
    return str(place)


def _write_files(
    path: Path, schema: Any, batches: Iterator[Any], rows: int, rows_per_file: int | None, options: Mapping[str, Any]
) -> None:
    """Write batches, none of which crosses the end of a file: as one file, or as files in a folder, at least one."""
    import pyarrow.parquet as files

    def opened(number: int) -> Any:
        name = path if rows_per_file is None else path / PART_NAME.format(number)
        return files.ParquetWriter(name, schema, **options)

    number, written, part = 0, 0, opened(0)
    try:
        for batch in looked(batches):
            part = part or opened(number)
            part.write_batch(batch, row_group_size=rows)
            written += batch.num_rows
            if rows_per_file is not None and written >= rows_per_file:
                part.close()
                number, written, part = number + 1, 0, None
    finally:
        if part is not None:
            part.close()


def _refuse_existing(target: Path, overwrite: bool) -> None:
    """Refuse (UsageError) an existing path, or, with ``overwrite``, anything but a file or a folder of parts."""
    if not target.exists() and not target.is_symlink():
        return
    if not overwrite:
        raise UsageError(f"{target} exists already; remove it, choose another name, or overwrite it (overwrite)")
    if target.is_dir() and not all(_PART.fullmatch(e.name) or e.name == LOCK_NAME for e in target.iterdir()):
        parts = PART_NAME.format(0)
        raise UsageError(f"{target}: a folder with other things than {parts} and so on; choose another name")


def _parts(count: int, rows: int, rows_per_file: int | None) -> Iterator[tuple[int, int]]:
    """Ranges of at most ``rows`` rows, none of which crosses the end of a file."""
    for first, last in even_ranges(count, rows_per_file or max(1, count)):
        for low, high in even_ranges(last - first, rows):
            yield first + low, first + high


def _ahead(items: Iterator[Any]) -> Generator[Any, None, None]:
    """The items in order, each produced by another thread while the previous one is processed."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, items, None)
        try:
            while (item := waiting.result()) is not None:
                waiting = pool.submit(next, items, None)
                yield item
        finally:
            waiting.cancel()
