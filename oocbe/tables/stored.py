"""A table on disk: a Zarr v3 group with a manifest, read with every byte checked.

A folder with one uint64 array for each key word (``key_0``, …), one array of values, chunked alike, attributes (scope,
sizes, semiring, rows, dtype, whether sorted, format version) and a manifest (:mod:`oocbe.tables.manifest`). Chunks are
found through the manifest, never by listing a folder. Zarr for Python reads the arrays too: see
:mod:`oocbe.tables.zarr_codec`.

A complete table has one array, the values of all cells in order, and no keys: the position of a cell follows from its
number, so any range of cells is read without an index. Values of int16, unsupported by packed chunks, become int32.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.errors import ResourceError, UsageError
from oocbe.model.results.numerals import format_bytes
from oocbe.model.row_numbers import key_number
from oocbe.model.semiring import MAX_SUM, Semiring
from oocbe.model.settings.machine import check_room
from oocbe.runtime.checksums import crc32
from oocbe.runtime.deadline import looked
from oocbe.tables.chunk_files import (
    KEY_NAMES,
    PACKED,
    VALUES_NAME,
    ChunkIndex,
    arrays_of,
    codec_of,
    read_columns,
    read_packed_into,
    value_names,
)
from oocbe.tables.columns import Domains, Rows
from oocbe.tables.complete import Cells, CompleteTable, check_cells
from oocbe.tables.exchange import VALUES, Exchanged
from oocbe.tables.group import (
    LARGEST_CHUNK_ROWS,
    StoredGroup,
    attributes_of,
    check_files,
    check_table_attributes,
    layout_of,
    made_of,
)
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import COLUMNS, COMPLETE, PARTS, Manifest
from oocbe.tables.numbers import converted, dtype_of_rows
from oocbe.tables.object_path import ObjectPath, Place
from oocbe.tables.objects import place_of
from oocbe.tables.parts import composed
from oocbe.tables.table import Table, check_kind, describe_table
from oocbe.tables.writer import CellSettings, CompleteTableWriter, RowSettings, StoredTableWriter

if TYPE_CHECKING:
    import pyarrow

    from oocbe.tables.parquet_source import Source


class StoredCompleteTable(Cells, StoredGroup):
    """A complete table on disk. Created by :meth:`open`, :meth:`create` or :meth:`save`; immutable afterwards.

    Attributes
    ----------
    path, layout, semiring, extent : as for :class:`oocbe.tables.group.StoredGroup`.
    dtype : int32, int64, float32 or float64, of the values.
    rows : number of feasible cells. chunk_cells : cells of each chunk but the last.
    """

    def __init__(self, path: Place, manifest: Manifest, attributes: Mapping[str, Any]) -> None:
        self.chunk_cells: int = attributes["chunk_rows"]
        index = ChunkIndex([("", layout_of(attributes).complete_rows, self.chunk_cells, None)])
        super().__init__(path, manifest, attributes, index)

    @classmethod
    def create(
        cls,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike = np.int64,
        semiring: Semiring = MAX_SUM,
        **settings: Unpack[CellSettings],
    ) -> CompleteTableWriter:
        """A writer for a new table, for use in a ``with`` statement; see :class:`CompleteTableWriter`.

        settings : ``chunk_cells``, cells of each chunk but the last. ``budget`` : counts what is written, and may
            refuse it. ``overwrite`` : whether the complete table replaces a stored table at the path.

        Raises
        ------
        ModelError : a dtype that stored tables cannot have. UsageError : the path exists, or, with ``overwrite``, is
            not a stored table; or chunk_cells is out of range.
        """
        return CompleteTableWriter(path, layout, dtype, semiring, **settings)

    @classmethod
    def save(cls, path: str | Path, table: CompleteTable, **settings: Unpack[CellSettings]) -> StoredCompleteTable:
        """Write a table in main memory to disk and open it; settings and errors as for :meth:`create`."""
        check_kind(table, Cells, "a complete table (to_complete)")
        dtype, semiring = dtype_of_rows(table.dtype), table.semiring
        starts = range(0, table.cells, LARGEST_CHUNK_ROWS)
        parts = (table.window(first, first + LARGEST_CHUNK_ROWS) for first in starts)
        values = (converted(part, dtype, semiring, str(path)) for part in parts)
        return cls.save_pieces(path, table.layout, dtype, semiring, values, **settings)

    @classmethod
    def save_pieces(
        cls,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike,
        semiring: Semiring,
        values: Iterable[NDArray[Any]],
        **settings: Unpack[CellSettings],
    ) -> StoredCompleteTable:
        """Write values given in pieces, in cell order, as one table and open it.

        Settings and errors as for :meth:`create`, and errors raised by the pieces; nothing is left of the table then.
        """
        with cls.create(path, layout, dtype, semiring, **settings) as writer:
            for part in values:
                writer.append(part)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> StoredCompleteTable:
        """Open a table. Checks metadata and the presence and size of all files; contents are checked on reading.

        Raises
        ------
        CorruptDataError : not a complete table, or damaged; the message names the chunk and the file.
        UnsupportedError : of another version of the format. UsageError : a table of rows.
        """
        folder = place_of(path)
        manifest = Manifest.read(folder)
        if manifest.form != COMPLETE:
            raise UsageError(f"{folder} is a table of rows: open it with StoredTable.open")
        attributes = attributes_of(folder, manifest)

        def make() -> StoredCompleteTable:
            check_table_attributes(attributes, is_complete=True)
            return cls(folder, manifest, attributes)

        table = made_of(folder, make)
        arrays = arrays_of(table.layout, table.dtype, COMPLETE)
        check_files(folder, manifest, arrays, table.cells, table.chunk_cells)
        return table

    @property
    def cells(self) -> int:
        """Number of assignments, feasible or not."""
        return self.layout.complete_rows

    @property
    def nbytes(self) -> int:
        """Bytes of the values in memory."""
        return int(self.cells * self.dtype.itemsize)

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        return -(-self.cells // self.chunk_cells)

    def read_into(self, start: int, out: NDArray[Any], alone: bool = False) -> None:
        """Read cells from ``start`` on into the caller's array, contiguous, of the table's dtype.

        alone : the following cells will not be read next; disables read-ahead.

        Raises
        ------
        CorruptDataError : a missing or damaged chunk.
        """
        self._read_columns({VALUES_NAME: out}, start, start + len(out), alone)

    def window(self, start: int, stop: int) -> NDArray[Any]:
        """Values of consecutive cells, in a new array; errors as for :meth:`read_into`."""
        out = np.empty(stop - start, dtype=self.dtype)
        self.read_into(start, out)
        return out

    def pieces(self, cells: int) -> Iterator[NDArray[Any]]:
        """All values, in pieces of ``cells`` cells, each a new array."""
        for start in range(0, self.cells, cells):
            yield self.window(start, min(start + cells, self.cells))

    def to_complete(self) -> CompleteTable:
        """All values in memory.

        Raises
        ------
        ResourceError : they exceed the memory. CorruptDataError : a missing or damaged chunk.
        """
        check_cells(self.layout, self.dtype)
        return CompleteTable(self.layout, self.window(0, self.cells), self.semiring)

    def to_table(self, scope: Sequence[str] | None = None) -> Table:
        """The feasible assignments as rows in memory; as :meth:`oocbe.tables.complete.CompleteTable.to_table`."""
        return self.to_complete().to_table(scope)

    def _cell(self, number: int) -> NDArray[Any]:
        value = np.empty(1, dtype=self.dtype)
        self.read_into(number, value, alone=True)
        return value


AnyComplete = CompleteTable | StoredCompleteTable
"""A complete table in memory or on disk; its cells are read by ``window``."""


def open_table(path: str | Path) -> StoredTable | StoredCompleteTable:
    """Open a table on disk of either form; errors as for their ``open``."""
    if Manifest.read(place_of(path)).form == COMPLETE:
        return StoredCompleteTable.open(path)
    return StoredTable.open(path)


class StoredTable(StoredGroup, Exchanged):
    """An incomplete table on disk. Made by :meth:`open`, :meth:`create` or :meth:`save`; never changed afterwards.

    Attributes
    ----------
    path, layout, semiring, dtype, rows, extent : as for :class:`oocbe.tables.group.StoredGroup`.
    is_sorted, limbs : as for :class:`oocbe.tables.table.Table`.
    chunk_rows : rows of each chunk but the last; in a table of parts (:mod:`oocbe.tables.parts`) of the longest.
    duplicates : whether a key may occur more than once.
    """

    def __init__(
        self,
        path: Place,
        manifest: Manifest,
        attributes: Mapping[str, Any],
        index: ChunkIndex | None = None,
        checksum: int | None = None,
    ) -> None:
        self.chunk_rows = int(attributes["chunk_rows"])
        self.is_sorted, self.duplicates = bool(attributes["sorted"]), bool(attributes.get("duplicates"))
        self.limbs: int = attributes.get("limbs", 0)
        self._checksum = checksum
        index = index or ChunkIndex([("", int(attributes["rows"]), self.chunk_rows, attributes.get("writer"))])
        super().__init__(path, manifest, attributes, index)

    @classmethod
    def create(
        cls,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike = np.int64,
        semiring: Semiring = MAX_SUM,
        **settings: Unpack[RowSettings],
    ) -> StoredTableWriter:
        """A writer for a new table, to be used in a ``with`` statement; see :class:`StoredTableWriter`.

        settings : ``chunk_rows``, rows of each chunk but the last.
            ``codec`` : ``packed`` (:mod:`oocbe.tables.packed_codec`), or ``zstd``, which any Zarr library reads, one
            array a variable (:mod:`oocbe.tables.chunk_files`).
            ``budget`` : counts what is written, and may refuse it. ``limbs`` : of each value
            (:mod:`oocbe.tables.numbers`).
            ``overwrite`` : whether the table takes the place of a stored table at the path, in the moment that it is
            complete. ``duplicates`` : whether a key may occur more than once; see :meth:`from_parquet`.

        Raises
        ------
        ModelError : a dtype that tables cannot have. UsageError : the path exists, or, with ``overwrite``, is no stored
            table; or chunk_rows is out of range.
        """
        return StoredTableWriter(path, layout, dtype, semiring, **settings)

    @classmethod
    def save(cls, path: str | Path, table: Table, **settings: Unpack[RowSettings]) -> StoredTable:
        """Write a table in memory to disk and open it; settings and errors as for :meth:`create`."""
        check_kind(table, Table)
        settings.setdefault("limbs", table.limbs)
        return cls.save_pieces(path, table.layout, table.dtype, table.semiring, [table], **settings)

    @classmethod
    def save_pieces(
        cls,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike,
        semiring: Semiring,
        pieces: Iterable[Table],
        **settings: Unpack[RowSettings],
    ) -> StoredTable:
        """Write tables in memory, of one layout and dtype, end to end as one table and open it.

        Settings and errors as for :meth:`create`, and errors of the pieces as they are made: nothing is left of the
        table then.
        """
        with cls.create(path, layout, dtype, semiring, **settings) as writer:
            for piece in pieces:
                writer.append(piece.keys, piece.values)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path | ObjectPath) -> StoredTable:
        """Open a table. Metadata and the presence and size of all files are checked now, contents when they are read.

        path : its folder, or the URL of one in an object store, whose objects are looked at when they are read.

        Raises
        ------
        CorruptDataError : not a complete table, or damaged; the message names the chunk and the file.
        UnsupportedError : of another version of the format. UsageError : a complete table.
        """
        folder = place_of(path)
        manifest = Manifest.read(folder)
        if manifest.form == COMPLETE:
            raise UsageError(f"{folder} is a complete table: open it with StoredCompleteTable.open")
        attributes = attributes_of(folder, manifest)
        if manifest.form == PARTS:
            whole, index = composed(folder, manifest, attributes)
            checksum = crc32(manifest.render())
            return made_of(folder, lambda: cls(folder, whole, attributes, index, checksum))

        def make() -> StoredTable:
            check_table_attributes(attributes)
            return cls(folder, manifest, attributes)

        table = made_of(folder, make)
        arrays = arrays_of(table.layout, table.dtype, manifest.form, table.limbs)
        check_files(folder, manifest, arrays, table.rows, table.chunk_rows)
        return table

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values in memory."""
        return int(self.rows * self.row_bytes)

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        return len(self._manifest.first_keys)

    def chunk_keys(self, chunk: int) -> tuple[int, int]:
        """Keys of a chunk's first and last row, each as one number (word 0 least significant); read from the index."""
        return self._manifest.first_keys[chunk], self._manifest.last_keys[chunk]

    def first_chunk_not_below(self, number: int, low: int, high: int) -> int:
        """First of some chunks of a sorted table whose last key is not below a number, or ``high``."""
        return bisect_left(self._manifest.last_keys, number, low, high)

    def chunk_at(self, row: int) -> int:
        """The chunk that has a row."""
        return self._index.at(row)

    def chunk_start(self, chunk: int) -> int:
        """First row of a chunk; all rows for one behind the last."""
        return self._index.start(chunk)

    def chunks(self) -> Generator[Table, None, None]:
        """The rows, a chunk at a time, in stored order."""
        for chunk in range(self.chunk_count):
            yield self.read(self.chunk_start(chunk), self.chunk_start(chunk + 1))

    def read(self, start: int, stop: int, alone: bool = False) -> Table:
        """Rows ``start`` to ``stop`` (clipped to the rows there are) in memory, each chunk checked.

        alone : the rows behind will not be read next, so there is no use in reading ahead.

        Raises
        ------
        CorruptDataError : a chunk is missing or damaged. ResourceError : the rows do not fit in memory.
        """
        start, stop = max(0, min(start, self.rows)), max(0, min(stop, self.rows))
        count = max(0, stop - start)
        try:
            check_room(count * self.row_bytes)
            keys = np.empty((self.layout.words, count), dtype=np.uint64)
            values = np.empty((count, self.limbs) if self.limbs else count, dtype=self.dtype)
        except MemoryError:
            taken = f"{count:,} rows of {self.path} take {format_bytes(count * self.row_bytes)}"
            raise ResourceError(f"{taken}, more than the memory left; read it by chunks()") from None
        self.read_into(start, keys, values, alone)
        return Table(self.layout, keys, values, self.semiring, self.is_sorted)

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None, alone: bool = False) -> None:
        """Rows ``start`` and following into the caller's arrays: keys (words, rows), values as
        :meth:`read` gives them, or None for keys alone; ``alone`` and errors as there.
        """
        stop = start + keys.shape[1]
        if self._manifest.form == COLUMNS:
            read_columns(self.path, self._manifest, self.layout, self.chunk_rows, start, keys, values)
            return
        columns = {KEY_NAMES.format(word): column for word, column in enumerate(keys)}
        limbs: list[NDArray[Any]] = []
        if values is not None:
            limbs = [np.empty(len(values), dtype=self.dtype) for _ in range(self.limbs)]
            columns |= dict(zip(value_names(self.limbs), limbs or [values], strict=True))
        self._read_columns(columns, start, stop, alone)
        if values is not None and limbs:
            np.stack(limbs, axis=1, out=values)

    @property
    def is_packed(self) -> bool:
        """Whether chunks are packed (:mod:`oocbe.tables.packed_codec`)."""
        return codec_of(self._manifest.form) == PACKED

    def chunk_starts(self, column: int) -> NDArray[np.int64]:
        """Words before each packed chunk of a column, and all at the end, int64 (chunks + 1,); see packed_chunk."""
        sizes = [self._manifest.files[self._chunk_name(column, chunk)].size // 8 for chunk in range(self.chunk_count)]
        return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)

    def _chunk_name(self, column: int, chunk: int) -> str:
        return self._index.file(KEY_NAMES.format(column) if column < self.layout.words else VALUES_NAME, chunk)

    def packed_chunk(self, column: int, chunk: int) -> NDArray[np.uint64]:
        """A chunk of a key word, or of the values (the last column), packed; see :mod:`oocbe.tables.packed_codec`.

        Raises
        ------
        CorruptDataError : it is missing or damaged.
        """
        if not self.is_packed:
            part = self.read(self.chunk_start(chunk), self.chunk_start(chunk + 1), alone=True)
            from oocbe.tables.packed_codec import encode

            return encode([*part.keys, part.values][column])
        words = np.empty(self._manifest.files[self._chunk_name(column, chunk)].size // 8, dtype=np.uint64)
        self.packed_chunk_into(column, chunk, words)
        return words

    def packed_chunk_into(self, column: int, chunk: int, target: NDArray[np.uint64]) -> None:
        """Read :meth:`packed_chunk` of a table whose chunks are packed on disk into memory of the chunk's size."""
        rows = self.chunk_start(chunk + 1) - self.chunk_start(chunk)
        itemsize = 8 if column < self.layout.words else self.dtype.itemsize
        read_packed_into(self.path, self._manifest, self._chunk_name(column, chunk), rows, itemsize, target)

    def to_table(self) -> Table:
        """All rows in memory; errors as for :meth:`read`, and UsageError where a key may occur more than once."""
        self.refuse_duplicates()
        return self.read(0, self.rows)

    @property
    def manifest_checksum(self) -> int:
        """CRC-32 of the manifest, and so of everything that this table is."""
        return super().manifest_checksum if self._checksum is None else self._checksum

    def find(self, key: NDArray[np.uint64]) -> int | float | None:
        """Value of one packed key, uint64 (words,); None where it has no row.

        A sorted table reads one chunk at most; an unsorted one chunk after chunk.
        """
        number = key_number(key.reshape(-1, 1), 0)
        if not self.is_sorted:
            pieces: Iterable[Table] = self.chunks()
        else:
            chunk = bisect_left(self._manifest.last_keys, number)
            if chunk == self.chunk_count or number < self._manifest.first_keys[chunk]:
                return None
            pieces = [self.read(self.chunk_start(chunk), self.chunk_start(chunk + 1), alone=True)]
        for piece in pieces:
            if (found := piece.find(key)) is not None:
                return found
        return None

    def read_between(self, first: int, last: int) -> Table:
        """Chunks of a sorted table that may have rows with keys from ``first`` to ``last``, in memory.

        Keys are numbers, word 0 least significant. Errors as for :meth:`read`.
        """
        begin = bisect_left(self._manifest.last_keys, first)
        end = bisect_right(self._manifest.first_keys, last)
        return self.read(self.chunk_start(begin), self.chunk_start(end))

    def refuse_duplicates(self) -> None:
        """Refuse (UsageError) a table with possibly repeated keys."""
        if self.duplicates:
            raise UsageError(
                f"{self.path}: a key may occur more than once; combine them: maximise(table, [], output=…)"
            )

    def _rows(self, start: int, stop: int) -> Rows:
        piece = self.read(start, stop)
        return piece.keys, piece.values

    @classmethod
    def from_parquet(
        cls,
        source: Source,
        path: str | Path,
        values: str = VALUES,
        *,
        scope: Sequence[str] | None = None,
        domains: Domains | None = None,
        semiring: Semiring = MAX_SUM,
        rename: Mapping[str, str] | None = None,
        drop_nulls: bool = False,
        duplicates: bool = False,
        memory: int | str | None = None,
        chunk_rows: int | None = None,
        codec: str = PACKED,
        overwrite: bool = False,
    ) -> StoredTable:
        """Make a stored table from Parquet data of any size, batch by batch, in row order.

        Parameters
        ----------
        source : a Parquet file, a folder of them (partitions ``name=value`` are columns), or several files; or their
            URLs in an object store (``s3://bucket/folder``), read on demand.
        path : folder of the new table.
        values, scope, domains, semiring : as for :meth:`oocbe.Table.from_arrow`.
        rename : name of a column of the data to that of the variable (or of the values); all other arguments use the
            latter. A missing column is accepted if one with its new name exists.
        drop_nulls : whether to skip rows with a missing entry in any column read; otherwise they are refused.
        duplicates : whether a key may occur more than once, as is common if ``scope`` omits columns. Operators with an
            ``output`` combine such rows by the semiring, as SQL groups them; ``maximise(table, [])`` does nothing else.
            Otherwise two consecutive rows of one key are refused.
        memory : limit in bytes (or text such as ``2GiB``) on labels, rows and buffers; None: 80 % of the available
            memory.
        chunk_rows, codec, overwrite : as for :meth:`create`.

        Raises
        ------
        ModelError : as for :meth:`oocbe.Table.from_arrow`. UsageError : the path exists, the source is unreadable, or
            pyarrow is missing. FormatError : not a Parquet file. ResourceError : labels exceed the memory.
            DiskError : the disk is full.
        """
        from oocbe.tables.parquet import read_parquet
        from oocbe.tables.parquet_source import sparing

        with sparing():
            found = read_parquet(source, values, scope, domains, rename, drop_nulls, memory)
            rows = found.piece_rows if chunk_rows is None else chunk_rows
            with (
                closing(found.pieces),
                cls.create(
                    path,
                    found.layout,
                    found.dtype,
                    semiring,
                    chunk_rows=rows,
                    codec=codec,
                    overwrite=overwrite,
                    duplicates=duplicates,
                ) as writer,
            ):
                for keys, numbers in looked(found.pieces):
                    writer.append(keys, numbers)
        return cls.open(path)

    def to_arrow(self, values: str = VALUES) -> pyarrow.RecordBatchReader:
        """A pyarrow.RecordBatchReader of the rows, chunk by chunk; errors as for :meth:`oocbe.Table.to_arrow`."""
        from oocbe.tables.arrow import reader_of

        return reader_of(self.layout, self.dtype, ((piece.keys, piece.values) for piece in self.chunks()), values)

    def __repr__(self) -> str:
        return describe_table("StoredTable", self.layout, self.rows, self.nbytes, self.dtype, self.semiring)
