"""Tables to and from Parquet, in pieces: files or folders of files of any size, within a memory limit.

A table is numbered before it is read: greatest integers come from the statistics of row groups where these have them,
labels from one pass over the columns that have some. Then rows are read batch by batch and written as they come.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from oocbe.errors import FormatError, ModelError, ResourceError, UsageError
from oocbe.settings.machine import default_memory_limit
from oocbe.settings.option_values import parse_bytes
from oocbe.system.deadline import look
from oocbe.tables.arrow import (
    arrow_table,
    batches_of,
    check_label_type,
    column_of,
    dates_as_text,
    label_type,
    numbers_of,
    pyarrow,
    refuse_nulls,
    schema_of,
)
from oocbe.tables.columns import (
    LARGEST_LABELS,
    Domain,
    Domains,
    Rows,
    check_scope,
    keys_of,
    layout_for,
    value_dtype,
    values_of,
)
from oocbe.tables.layout import Label, Layout

Source: TypeAlias = str | Path | Sequence[str | Path]
"""A Parquet file, a folder of such files (partitions as folders ``name=value`` are columns), or several files."""

BATCH_ROWS = 1 << 20
"""Most rows that are read at a time."""

COPIES = 6
"""Batches' worth of memory that are held at most at a time: read ahead by Arrow, at work, and waiting to be written."""

LABEL_BYTES = 100
"""Bytes that a label takes beside its text: in Python, in a dictionary, in Arrow."""


def _dataset(source: Source) -> Any:
    """A pyarrow dataset; UsageError where there is none, FormatError where it is no Parquet."""
    arrow = pyarrow()
    import pyarrow.dataset as datasets

    given = (
        [str(path) for path in source] if isinstance(source, Sequence) and not isinstance(source, str) else str(source)
    )
    # Above a single file are its user's folders: "run=3" is no column of it.
    partitioning = "hive" if isinstance(given, str) and not Path(given).is_file() else None
    try:
        found = datasets.dataset(given, format="parquet", partitioning=partitioning)
        if not found.files:
            raise UsageError(f"{source}: no Parquet file is in this folder")
        return found
    except FileNotFoundError:
        raise UsageError(f"{source}: cannot be read: there is no such file or folder") from None
    except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
        raise FormatError(str(source), None, f"no Parquet, or damaged ({error})") from None


def _batches(dataset: Any, columns: Sequence[str], rows: int) -> Iterator[Any]:
    """Record batches of some columns, at most so many rows each, in order; little is read ahead."""
    arrow = pyarrow()
    import pyarrow.dataset as datasets

    # Buffered streams: without them Arrow holds whole row groups, which may be as large as the file.
    options = datasets.ParquetFragmentScanOptions(use_buffered_stream=True, buffer_size=1 << 20, pre_buffer=False)
    scanner = dataset.scanner(
        columns=list(columns), batch_size=rows, batch_readahead=1, fragment_readahead=1, fragment_scan_options=options
    )
    batches = scanner.to_batches()
    while True:
        look()
        try:
            batch = next(batches, None)
        except (arrow.ArrowInvalid, OSError) as error:
            raise FormatError(", ".join(dataset.files[:3]), None, f"damaged Parquet ({error})") from None
        if batch is None:
            return
        if batch.num_rows:
            yield batch


def domain_in(source: Any, name: str, memory: int, before: Domain | None = None) -> Domain:
    """Domain of one column of a Parquet dataset, or of a pyarrow.Table, together with one known from elsewhere.

    Raises
    ------
    ModelError : entries are missing, or of a type that labels cannot have. ResourceError : labels exceed the memory.
    """
    types = pyarrow().types
    what = _told(source.files) if hasattr(source, "files") else "Arrow table"
    kind = source.schema.field(name).type
    if not types.is_integer(kind):
        labels = kind.value_type if types.is_dictionary(kind) else kind
        check_label_type(name, labels, what)
        if isinstance(before, int):
            raise ModelError(f"{what}: column {name} is of type {kind}, and integers in another table")
        if before is not None and any(type(label) is not label_type(labels) for label in before):
            raise ModelError(f"{what}: column {name} is of type {kind}, and has other labels in another table")
    elif before is None or isinstance(before, int):
        low, high = _integers(source, name, what)
        if low >= 0 and high < 1 << 62:
            return max(high + 1, before or 1)
        if before is not None:
            raise ModelError(
                f"{what}: column {name} has integers from {low}, and those of another table begin at 0; give the "
                "domain's labels for both"
            )
    elif not all(type(label) is int for label in before):
        raise ModelError(f"{what}: column {name} is of type {kind}, and has other labels in another table")
    known = () if before is None or isinstance(before, int) else before
    return _labels_in(source, name, memory, known, what) or 1  # without any rows: a domain has a value at least


def _pieces(source: Any, name: str) -> Iterator[Any]:
    """One column of a dataset or a table, array by array."""
    batches = _batches(source, [name], BATCH_ROWS) if hasattr(source, "files") else source.select([name]).to_batches()
    what = _told(source.files) if hasattr(source, "files") else "Arrow table"
    for batch in batches:
        yield dates_as_text(name, batch.column(0), what)


def _integers(source: Any, name: str, what: str) -> tuple[int, int]:
    """Least (or 0) and greatest integer of a column, by statistics where there are any."""
    import pyarrow.compute as compute

    found = _statistics(source, name) if hasattr(source, "files") else None
    if found is not None:
        return found
    low, high = 0, 0
    for data in _pieces(source, name):
        refuse_nulls(name, data, what)
        if len(data):
            edges = compute.min_max(data).as_py()
            low, high = min(low, edges["min"]), max(high, edges["max"])
    return low, high


def _labels_in(source: Any, name: str, memory: int, before: Sequence[Label], what: str) -> tuple[Label, ...]:
    """Labels known before, and those of a column behind them: of dictionaries in their order, all others ascending."""
    import pyarrow.compute as compute

    seen: dict[Any, None] = dict.fromkeys(before)
    first, nbytes, in_order = len(seen), 0, False
    for data in _pieces(source, name):
        refuse_nulls(name, data, what)
        in_order = hasattr(data, "dictionary")
        different = data.dictionary if in_order else compute.unique(data)
        known = len(seen)
        seen.update(dict.fromkeys(different.to_pylist()))
        if len(seen) > known:
            nbytes += (len(seen) - known) * LABEL_BYTES + different.nbytes
        if nbytes > memory // 2 or len(seen) > LARGEST_LABELS:
            raise ResourceError(
                f"{what}: column {name} has more than {known:,} labels; {nbytes:,} bytes would have to be in "
                f"memory; number them as integers before, or raise the limit of {memory:,} bytes"
            )
    seen.pop(None, None)  # of a dictionary, of which no row uses it
    labels = list(seen)
    return tuple(labels if in_order else [*labels[:first], *sorted(labels[first:])])


def whole(source: Source, columns: Sequence[str] | None) -> Any:
    """All rows of a Parquet dataset, or some columns of them, as a pyarrow.Table; errors as for a dataset."""
    arrow = pyarrow()
    dataset = _dataset(source)
    missing = [name for name in columns or () if name not in dataset.schema.names]
    if missing:
        there = ", ".join(dataset.schema.names)
        raise ModelError(f"{_told(dataset.files)}: column {missing[0]!r} is not there; there are: {there}")
    try:
        return dataset.to_table(columns=None if columns is None else list(columns))
    except (arrow.ArrowInvalid, OSError) as error:
        raise FormatError(_told(dataset.files), None, f"damaged Parquet ({error})") from None


def _statistics(dataset: Any, name: str) -> tuple[int, int] | None:
    """Least (or 0) and greatest integer of a column by the statistics of all row groups; None where one has none."""
    low, high = 0, 0
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        column = next((c for c in range(metadata.num_columns) if metadata.schema.column(c).path == name), None)
        if column is None:
            return None
        for group in range(metadata.num_row_groups):
            part = metadata.row_group(group)
            found = part.column(column).statistics
            if not part.num_rows:
                continue
            if found is None or not found.has_min_max or type(found.min) is not int:
                return None
            low, high = min(low, found.min), max(high, found.max)
    return low, high


def common_domains(
    *sources: Any, values: str = "value", scope: Sequence[str] | None = None, memory: int | str | None = None
) -> dict[str, Domain]:
    """One numbering of the variables of several tables, so that these can be joined.

    Parameters
    ----------
    sources : Parquet files or folders of them, by path; or what offers Arrow's interface (data frames, Arrow tables).
    values : name of the column of values. scope : columns that are variables; None: all others.
    memory : limit in bytes (or text such as ``2GiB``) on labels; None: 80 % of what there is.

    Returns
    -------
    Variable to domain: a number of values, for integers from 0 on, or labels, in the order of their numbers.

    Raises
    ------
    ModelError : a column is not there, has missing entries, or is text in one table and integers in another.
    ResourceError : labels need more memory. UsageError : a source that cannot be read, or pyarrow is missing.
    FormatError : a file that is no Parquet.
    """
    limit = _limit(memory)
    domains: dict[str, Domain] = {}
    for given in sources:
        source = _dataset(given) if isinstance(given, str | Path | list | tuple) else arrow_table(given)
        wanted = None if scope is None else [name for name in scope if name in source.schema.names]
        what = _told(source.files) if hasattr(source, "files") else "Arrow table"
        for name in check_scope(source.schema.names, values, wanted, what):
            domains[name] = domain_in(source, name, limit, domains.get(name))
    return domains


class ParquetRows(NamedTuple):
    """A dataset as a table: its layout, its values' dtype, its rows piece by piece, and the most rows of a piece."""

    layout: Layout
    dtype: np.dtype[Any]
    pieces: Generator[Rows, None, None]
    piece_rows: int


def read_parquet(
    source: Source, values: str, scope: Sequence[str] | None, domains: Domains | None, memory: int | str | None
) -> ParquetRows:
    """Rows of a dataset of any size; see :meth:`oocbe.StoredTable.from_parquet`."""
    dataset, limit = _dataset(source), _limit(memory)
    what = _told(dataset.files)
    wanted = check_scope(dataset.schema.names, values, scope, what)
    given = dict(domains or {})
    for name in wanted:
        if name not in given:
            given[name] = domain_in(dataset, name, limit)
        elif not isinstance(given[name], int):
            given[name] = tuple(given[name])  # type: ignore[arg-type]
    layout = layout_for(wanted, given)
    kind = dataset.schema.field(values).type
    try:
        dtype = value_dtype(np.dtype(kind.to_pandas_dtype()), what)
    except NotImplementedError:
        raise ModelError(f"{what}: column {values} is of type {kind}; values are integers or floats") from None
    cost = 8 * (len(wanted) + 2) + 8 * layout.words
    rows = _piece_rows(limit, cost)

    def pieces() -> Iterator[Rows]:
        first = 0
        for batch in _batches(dataset, [*wanted, values], rows):
            columns = [column_of(n, batch.column(i), what, given[n], first) for i, n in enumerate(wanted)]
            numbers = values_of(numbers_of(values, batch.column(len(wanted)), what, first), dtype, what)
            keys = keys_of(columns, layout, what, first)
            if not wanted:
                keys = np.zeros((1, len(numbers)), dtype=np.uint64)
            yield keys, numbers
            first += len(numbers)

    return ParquetRows(layout, dtype, _ahead(pieces()), rows)


def write_parquet(
    layout: Layout,
    dtype: np.dtype[Any],
    count: int,
    read: Callable[[int, int], Rows],
    path: str | Path,
    values: str,
    memory: int | str | None,
    rows_per_file: int | None,
    compression: str,
) -> Path:
    """Write so many rows, which ``read(start, stop)`` hands out; see :meth:`oocbe.Table.to_parquet`."""
    arrow = pyarrow()
    import pyarrow.parquet as files

    target = Path(path)
    if target.exists():
        raise UsageError(f"{target} exists already; remove it or choose another name")
    if rows_per_file is not None and rows_per_file < 1:
        raise UsageError(f"rows_per_file is {rows_per_file}; it must be positive")
    schema = schema_of(layout, dtype, values)
    rows = _piece_rows(_limit(memory), 8 * (len(layout.scope) + 2) + 8 * layout.words)
    rows = rows if rows_per_file is None else min(rows, rows_per_file)
    batches = _ahead(batches_of(layout, schema, (read(*part) for part in _parts(count, rows, rows_per_file))))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    options = {"compression": compression, "use_dictionary": list(layout.labels)}
    try:
        if rows_per_file is None:
            with files.ParquetWriter(temporary, schema, **options) as writer:
                for batch in batches:
                    look()
                    writer.write_batch(batch, row_group_size=rows)
        else:
            temporary.mkdir()
            number, written, part = 0, 0, None
            try:
                for batch in batches:
                    look()
                    if part is None:
                        part = files.ParquetWriter(temporary / f"part-{number:05}.parquet", schema, **options)
                    part.write_batch(batch, row_group_size=rows)
                    written += batch.num_rows
                    if written >= rows_per_file:
                        part.close()
                        number, written, part = number + 1, 0, None
                if not number and part is None:
                    part = files.ParquetWriter(temporary / "part-00000.parquet", schema, **options)
            finally:
                if part is not None:
                    part.close()
        temporary.rename(target)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror or error}") from None
    except arrow.ArrowException as error:
        raise UsageError(f"{target}: cannot be written: {error}") from None
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            with suppress(OSError):  # not there, or in a place where nothing can be
                temporary.unlink()
    return target


def _parts(count: int, rows: int, rows_per_file: int | None) -> Iterator[tuple[int, int]]:
    """Ranges of at most so many rows, none of which goes over the end of a file."""
    start = 0
    while start < count:
        stop = min(start + rows, count)
        if rows_per_file is not None:
            stop = min(stop, (start // rows_per_file + 1) * rows_per_file)
        yield start, stop
        start = stop


def _ahead(items: Iterator[Any]) -> Generator[Any, None, None]:
    """The items in their order, each made by another thread while the one before is at work."""
    with ThreadPoolExecutor(1) as pool:
        try:
            waiting = pool.submit(next, items, None)
            while (item := waiting.result()) is not None:
                waiting = pool.submit(next, items, None)
                yield item
        finally:
            waiting.cancel()


def _piece_rows(limit: int, cost: int) -> int:
    return max(1024, min(BATCH_ROWS, limit // (COPIES * cost)))


def _limit(memory: int | str | None) -> int:
    limit = parse_bytes("memory", memory)
    return default_memory_limit() if limit is None else limit


def _told(names: Sequence[str]) -> str:
    """Files for messages."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
