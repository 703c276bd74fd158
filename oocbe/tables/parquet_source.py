"""Sources of columns: Parquet files of any size, batch by batch, or other data with columns; with renaming.

Renaming of columns to variables, and skipping of rows with missing entries, are done here; readers of a source need not
handle either.
"""

from __future__ import annotations

import errno
import lzma
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from oocbe.errors import FormatError, ModelError, UsageError
from oocbe.model.settings.option_values import parse_boolean
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.data_limit import data_limit
from oocbe.runtime.deadline import check_deadline, looked
from oocbe.runtime.framed import pyarrow
from oocbe.runtime.plain_files import kind_of, matches, no_file
from oocbe.runtime.urls import refuse_url, url_of
from oocbe.tables.arrow import arrow_table, is_text, refuse_nulls
from oocbe.tables.object_path import ObjectPath, Place, place_named
from oocbe.tables.objects import ObjectReader, filesystem_of


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
class ArrowColumns(Columns):
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
    Columns of a first line without commas are separated by its semicolons, tabs or bars.
    Empty cells are missing entries, of text, too; ``NULL``, ``NA`` and ``nan`` are so beside numbers only. The files of
    a list or a pattern (``sales-*.csv``, ``*/*.csv``, ``**/*.csv``) are one source. texts : columns of text. is_part :
    other files of the source decide about a column of nothing else.
    Raises UsageError: no such file; FormatError: a damaged one; ModelError: files with other columns than the first.
    """
    own = type(source)  # a frame of pandas has its columns as attributes
    is_lazy = hasattr(own, "collect_schema") and hasattr(own, "collect")
    if is_lazy or (hasattr(own, "project") and hasattr(own, "__arrow_c_stream__")):
        return Query(source)
    names = list(source) if isinstance(source, list | tuple) else [source]
    if not all(isinstance(name, str | Path) for name in names):
        return source
    url = url_of(names[0]) if len(names) == 1 else None
    if url is not None and "*" in str(names[0]):
        raise UsageError(f"{url}: a pattern is of files on this machine; name a file, or the folder of all parts")
    if len(names) == 1 and url is None:
        names = matches(names[0]) or names
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
        return ArrowColumns(whole, str(source))
    from pyarrow import compute, csv

    source, ((kind, compression),) = names[0], kinds
    refuse_url(source, "a CSV file")
    if not Path(source).is_file():
        raise UsageError(f"{source}: there is no such file")
    stream = lzma.open if compression == "xz" else pyarrow().input_stream
    try:
        with stream(source) as given:
            head = given.read(1 << 16).partition(b"\n")[0].decode(errors="replace")  # longer lines have commas
        head = re.sub('"[^"]*"', "", head)
        parsed = csv.ParseOptions(delimiter="\t" if kind == "tsv" else next((c for c in ",;\t|" if c in head), ","))
        with stream(source) as given:
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
    return ArrowColumns(data, str(source))


Source: TypeAlias = str | Path | Sequence[str | Path]
"""A Parquet file, a folder of such files (partitions as folders ``name=value`` are columns), or several files; or their
URLs in an object store."""

BATCH_ROWS = 1 << 20
"""Maximum rows of one read."""

COPIES = 6
"""Maximum number of batches in memory: read ahead by Arrow, in processing, and waiting to be written."""


def batch_rows(memory: int, row_bytes: int) -> int:
    """Rows of a batch for a memory of ``memory`` bytes, with ``row_bytes`` per row in its largest form."""
    return max(1024, min(BATCH_ROWS, memory // (COPIES * row_bytes)))


@contextmanager
def sparing() -> Iterator[None]:
    """Context for work with Parquet: Arrow's pool, which would keep 100 MiB and more for reuse, is released at the end.

    The C library's own cache is not limited, as that increases the processor time of joins by half. Arrow's threads end
    the process when an allocation fails; therefore batches are counted, and the process's memory is checked instead.
    """
    try:
        with data_limit.lifted():
            yield
    finally:
        pyarrow().default_memory_pool().release_unused()


GROUP_ROWS = 1 << 16
"""Rows of a row group from which text is read as dictionaries: a batch has rows of one, and takes a millisecond."""

TEXT_BYTES = 4
"""Bytes of an entry of plain text besides the text: its length. Columns with fewer per entry have small dictionaries;
to read plain text as dictionaries takes seven times as long."""


def _place_in(metadata: Any, name: str) -> int | None:
    """Place of a column in a Parquet file. The path of a member of a structure has a dot, as may a column's own name;
    only columns have equal path and name."""
    found = ((c, metadata.schema.column(c)) for c in range(metadata.num_columns))
    return next((c for c, column in found if name == column.path == column.name), None)


@dataclass(frozen=True)
class _File:
    """One Parquet file, of metadata ``end``. Text may be read as dictionaries with unused entries. To read it as a
    dataset would take three times the processor time, and import pandas."""

    place: Place
    schema: Any
    end: Any

    @classmethod
    def opened(cls, place: Place) -> _File:
        with cls._reader(place) as reader:
            return cls(place, reader.schema_arrow, reader.metadata)

    def _has_dictionaries(self, name: str) -> bool:
        """Whether a column is text in dictionaries that are small for their rows."""
        groups, place = self.end.num_row_groups, _place_in(self.end, name)
        if not is_text(self.schema.field(name).type) or place is None or self.end.num_rows < (groups - 1) * GROUP_ROWS:
            return False
        parts = [self.end.row_group(group).column(place) for group in range(groups)]
        most = TEXT_BYTES * sum(part.num_values for part in parts)
        return all(p.has_dictionary_page for p in parts) and sum(p.total_uncompressed_size for p in parts) < most

    @staticmethod
    def _reader(place: Place, texts: Sequence[str] = ()) -> Any:
        import pyarrow.parquet as files

        given: Any = ObjectReader(place) if isinstance(place, ObjectPath) else str(place.absolute())
        buffer = tuning().parquet_buffer_bytes
        return files.ParquetFile(given, buffer_size=buffer, pre_buffer=False, read_dictionary=[*texts])

    @property
    def what(self) -> str:
        return str(self.place)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        with self._reader(self.place, [name for name in columns if self._has_dictionaries(name)]) as reader:
            for batch in reader.iter_batches(batch_size=rows, columns=list(columns)):
                yield batch.select(columns)

    def metadata(self) -> Iterable[Any] | None:
        return [self.end]


@dataclass(frozen=True)
class _Files:
    """Several Parquet files, or a folder of them; a pyarrow dataset lists them and parses the names of their folders.

    Files are read one after the other. The dataset's own scanner holds an unbounded number of batches of several files.
    """

    data: Any
    root: str = ""

    def _place(self, path: str) -> Place:
        return ObjectPath(self.root, path) if self.root else Path(path)

    @property
    def what(self) -> str:
        names = [self._place(path) for path in self.data.files]
        return str(names[0]) if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    @property
    def schema(self) -> Any:
        return self.data.schema

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        import pyarrow.dataset as datasets

        for fragment in self.data.get_fragments():
            file = _File.opened(self._place(fragment.path))
            folders = datasets.get_partition_keys(fragment.partition_expression)
            own = [name for name in columns if name in file.schema.names and name not in folders]
            if twice := [name for name in own if file.schema.names.count(name) > 1]:
                raise ModelError(f"{file.what}: two columns are called {twice[0]!r}; write the file with other names")
            if own:
                lengths_and_batches = ((batch.num_rows, batch) for batch in file.batches(own, rows))
            else:
                (metadata,) = file.metadata() or ()
                starts = range(0, metadata.num_rows, rows)
                lengths_and_batches = ((min(rows, metadata.num_rows - start), None) for start in starts)
            for length, batch in lengths_and_batches:
                yield self._completed(columns, length, batch, folders, file.what)

    def _completed(self, columns: Sequence[str], rows: int, batch: Any, folders: Mapping[str, Any], what: str) -> Any:
        """A file's batch with all columns, in the dataset's types: folder names' values, nulls for missing columns."""
        arrow = pyarrow()
        found = []
        for name in columns:
            kind = self.schema.field(name).type
            if batch is None or name not in batch.schema.names:
                found.append(arrow.repeat(arrow.scalar(folders.get(name), kind), rows))
                continue
            own = batch.column(name)
            if arrow.types.is_dictionary(own.type) and not arrow.types.is_dictionary(kind):
                if is_text(kind) and is_text(own.type.value_type):
                    found.append(own)
                    continue
                own = own.dictionary_decode()
            try:
                found.append(own.cast(kind))
            except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as error:
                raise ModelError(
                    f"{what}: column {name} is of type {own.type}, and of type {kind} in "
                    f"{self._place(self.data.files[0])}; write both with one type ({error})"
                ) from None
        return arrow.record_batch(found, names=list(columns))

    def metadata(self) -> Iterable[Any] | None:
        return (fragment.metadata for fragment in self.data.get_fragments())


@dataclass(frozen=True)
class ColumnSource:
    """Columns of some data by their names in a table.

    data : the columns. columns : name in the data by name in the table, in the data's order.
    drop_nulls : whether to skip rows with missing entries; otherwise they are refused.
    keys : further columns, each computed by a function of Arrow arrays from a column in the table.
    """

    data: Columns
    columns: dict[str, str]
    drop_nulls: bool = False
    keys: Mapping[str, tuple[str, Callable[[Any], Any]]] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """Location, for messages."""
        return self.data.what

    @property
    def names(self) -> list[str]:
        """Names of the columns in the table."""
        return [*self.columns, *self.keys]

    @cached_property  # of many files, it reads the end of each
    def rows(self) -> int | None:
        """Number of rows, with missing entries, too; None if it is not known before they are read."""
        if isinstance(self.data, ArrowColumns):
            return int(self.data.data.num_rows)
        files = self.data.metadata()
        return None if files is None else sum(file.num_rows for file in files)

    def type_of(self, name: str) -> Any:
        """Arrow type of a column."""
        if name in self.keys:
            made = self._computed(name, pyarrow().array([], self.type_of(self.keys[name][0])))
            if pyarrow().types.is_null(made.type):  # as of a list without entries
                made = next((batch.column(0) for batch in self.batches([name])), made)
            return made.type
        return self.data.schema.field(self.columns[name]).type

    def plain(self, batch: Any) -> Any:
        """A batch with text as text where it was read as dictionaries."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        is_dictionary = pyarrow().types.is_dictionary
        for name, column in columns.items():
            if is_dictionary(column.type) and not is_dictionary(kind := self.type_of(name)):
                columns[name] = column.cast(kind)
        return pyarrow().RecordBatch.from_pydict(columns) if columns else batch

    def _computed(self, name: str, column: Any) -> Any:
        what = f"{self.what}: key {name!r} of column {self.keys[name][0]!r}"
        try:
            made = self.keys[name][1](column)
        except (pyarrow().ArrowInvalid, pyarrow().ArrowNotImplementedError, TypeError) as error:
            raise ModelError(f"{what}: {error}") from None
        if not isinstance(made, pyarrow().Array) or len(made) != len(column):
            raise ModelError(f"{what}: its function returns no Arrow array with an entry for each of the column's")
        return made

    def _read_for(self, names: Sequence[str]) -> list[str]:
        """Columns of the table from which some columns are made."""
        return list(dict.fromkeys(self.keys[name][0] if name in self.keys else name for name in names))

    def once(self, names: Sequence[str], most: int, *, of_files: bool = False) -> ColumnSource:
        """A query's result for some columns; the query itself, which is run again for each pass, beyond ``most`` bytes.
        Other sources stay. of_files : columns of Parquet without text instead, as they are read for several passes."""
        arrow, own, nbytes = pyarrow(), [self.columns[name] for name in self._read_for(names)], 0
        if not isinstance(self.data, _File | _Files if of_files else Query):
            return self
        types, parts = [self.data.schema.field(name).type for name in own], []
        if of_files and not all(map(arrow.types.is_primitive, types)):
            return self
        if of_files and (self.rows or 0) * sum(kind.bit_width for kind in types) > 8 * most:
            return self
        for batch in looked(self.data.batches(own, BATCH_ROWS)):
            parts.append(batch)
            nbytes += batch.nbytes
            if nbytes > most:
                return self
        schema = arrow.schema([self.data.schema.field(name) for name in own])
        columns = {name: column for name, column in self.columns.items() if column in own}
        keys = {name: key for name, key in self.keys.items() if key[0] in columns}
        data = arrow.Table.from_batches(parts) if parts else schema.empty_table()  # which loads pandas
        return replace(self, data=ArrowColumns(data, self.what), columns=columns, keys=keys)

    def batches(self, names: Sequence[str], rows: int = BATCH_ROWS, beside: Sequence[str] = ()) -> Iterator[Any]:
        """Record batches of some columns, at most ``rows`` rows each where they are stored, in order; of any column for
        the number of rows.

        beside : further columns; rows with missing entries there are skipped or refused, too.
        Raises FormatError: damaged Parquet; ModelError: a missing entry, unless such rows are skipped.
        """
        wanted = list(dict.fromkeys([*names, *beside]))
        first, own = 0, self._read_for(wanted)
        read = own or list(self.columns)[:1]  # batches without a column have no number of rows
        batches = self.data.batches([self.columns[name] for name in read], rows)
        while True:
            check_deadline()
            with _damaged(self.what):
                batch = next(batches, None)
            if batch is None:
                return
            length, batch = batch.num_rows, pyarrow().record_batch(batch.columns, names=read)
            batch = self._present(batch, first) if own else batch
            if own != wanted and batch.num_rows:
                there = dict(zip(own, self.plain(batch).columns, strict=True))
                made = [there[n] if n in there else self._computed(n, there[self.keys[n][0]]) for n in wanted]
                batch = self._present(pyarrow().record_batch(made, names=wanted), first)
            if batch.num_rows:
                yield batch.select(list(names)) if names else batch
            first += length

    def _present(self, batch: Any, first: int) -> Any:
        """A batch without rows with missing entries; first : number of its first row."""
        views = pyarrow().types.is_string_view  # Arrow selects no rows of them
        columns = [column.cast("string") if views(column.type) else column for column in batch.columns]
        batch = pyarrow().record_batch(columns, names=batch.schema.names)
        if self.drop_nulls:  # all batches alike: their types stay equal
            return batch.drop_null()
        for name, column in zip(batch.schema.names, columns, strict=True):
            refuse_nulls(name, column, self.what, first)
        return batch

    def whole(self, names: Sequence[str]) -> Any:
        """All rows of some columns as a pyarrow.Table; errors as for :meth:`batches`."""
        batches = list(self.batches(names))
        if not batches:
            return pyarrow().schema([(name, self.type_of(name)) for name in names]).empty_table()
        return pyarrow().Table.from_batches(map(self.plain, batches))

    def statistics(self, name: str) -> tuple[int, int] | None:
        """Least (or 0) and greatest integer of a column by statistics of all row groups; None if any are missing."""
        low, high = 0, 0
        files = None if name in self.keys else self.data.metadata()
        for metadata in () if files is None else files:
            if (column := _place_in(metadata, self.columns[name])) is None:
                return None
            for group in range(metadata.num_row_groups):
                part = metadata.row_group(group)
                found = part.column(column).statistics
                if not part.num_rows:
                    continue
                if found is None or not found.has_min_max or type(found.min) is not int:
                    return None
                low, high = min(low, found.min), max(high, found.max)
        return None if files is None else (low, high)


def source_of(
    given: Any,
    rename: Mapping[str, str] | None = None,
    drop_nulls: bool = False,
    keys: Mapping[str, tuple[str, Callable[[Any], Any]]] | None = None,
) -> ColumnSource:
    """Columns of Parquet, by path, or of an object with Arrow's interface; ``keys`` of columns that it has.

    rename : name in the table by name in the data; missing columns are ignored.

    Raises UsageError: no such file, or an object without such an interface; FormatError: not a Parquet file;
    ModelError: two columns with the same name.
    """
    paths = given if isinstance(given, list | tuple) else [given]
    data: Columns = given
    if not isinstance(given, Query | ArrowColumns):
        data = _stored(given) if all(isinstance(p, str | Path) for p in paths) else ArrowColumns(arrow_table(given))
    columns: dict[str, str] = {}
    for column in data.schema.names:
        name = (rename or {}).get(column, column)
        if name in columns:
            raise ModelError(f"{data.what}: two columns are called {name!r}; rename one of them (rename)")
        columns[name] = column
    own = {name: key for name, key in (keys or {}).items() if key[0] in columns}
    if taken := sorted(set(own).intersection(columns)):
        raise ModelError(f"{data.what}: keys: there is a column {taken[0]!r} already; give the key another name")
    return ColumnSource(data, columns, parse_boolean("drop_nulls", drop_nulls), own)


def check_renamed(rename: Mapping[str, str] | None, sources: Sequence[ColumnSource]) -> None:
    """Refuse (ModelError) to rename a column that no source has, unless a column with the new name exists."""
    for column, name in (rename or {}).items():
        if not any(column in source.data.schema.names or name in source.columns for source in sources):
            there = ", ".join(dict.fromkeys(name for source in sources for name in source.data.schema.names))
            raise ModelError(f"{sources[0].what}: there is no column {column!r} to be renamed; there are: {there}")


def _stored(source: Source) -> Columns:
    """Parquet data; UsageError if they are missing, unreadable or of two stores, FormatError for other files."""
    arrow = pyarrow()
    several = not isinstance(source, str | Path)
    given: list[str | Path] = [source] if isinstance(source, str | Path) else list(source)
    places = [place_named(path) for path in given]
    roots = {place.root if isinstance(place, ObjectPath) else "" for place in places}
    if len(roots) > 1:
        raise UsageError(f"{', '.join(map(str, given))}: are not all in one bucket; read those of each by themselves")
    root = max(roots, default="")
    try:
        for place in places:
            if isinstance(place, Path):
                _refuse_no_files(place)
        if not several and (root or Path(given[0]).is_file()):
            with suppress(FileNotFoundError):
                return _File.opened(places[0])
        import pyarrow.dataset as datasets

        names = [place.key if isinstance(place, ObjectPath) else str(place) for place in places]
        # Folders above explicitly named files belong to the user: "run=3" is not a partition there.
        found = datasets.dataset(
            names if several else names[0],
            format="parquet",
            filesystem=filesystem_of(root) if root else None,
            partitioning=None if several else "hive",
        )
        if not found.files:
            raise UsageError(f"{source}: no Parquet file is in this folder")
        return _Files(found, root)
    except FileNotFoundError:
        raise UsageError(f"{source}: cannot be read: there is no such file or folder") from None
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, OSError) as error:
        raise _unreadable(str(source), error, "no Parquet (a pattern names CSV: folder/*.csv), or damaged") from None


def _refuse_no_files(path: Path) -> None:
    """Refuse (OSError) a pipe, socket or device, also inside a folder: Arrow would block, or ignore it."""
    if (kind := kind_of(path.stat().st_mode)) is not None and not path.is_dir():
        raise no_file(path, kind)
    for folder, _, names in os.walk(path):
        for found in (Path(folder, name) for name in names if not name.startswith((".", "_"))):
            if found.exists() and (kind := kind_of(found.stat().st_mode)) is not None:
                raise no_file(found, kind)


@contextmanager
def _damaged(what: str) -> Iterator[None]:
    """Add the name of the data to errors of reading."""
    try:
        yield
    except (pyarrow().ArrowInvalid, OSError) as error:
        raise _unreadable(what, error, "damaged Parquet") from None


def _unreadable(what: str, error: Exception, otherwise: str) -> FormatError | UsageError:
    """Convert an error: those of the system or a store keep their text; all others concern the content."""
    if isinstance(error, OSError) and error.errno is not None and error.errno != errno.EINVAL:
        return UsageError(f"{what}: cannot be read: {error.strerror}")
    return FormatError(what, None, f"{otherwise} ({error})")
