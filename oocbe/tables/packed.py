"""A table in main memory as packed chunks: 2 to 5 bytes per row instead of 12 or more for keys and values.

The chunks are those of stored tables (:mod:`oocbe.tables.packed_codec`), concatenated in one array per column, so that
any run of chunks is one copy. They are transferred to and from a GPU in this form, and unpacked and packed there: where
the bus is slower than the kernels, a table of a quarter of the size takes a quarter of the time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from threading import local
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError, ResourceError
from oocbe.kernels.cpu.packing.bit_pack import BLOCK_BITS, FRONT_WORDS, HEADER_WORDS, rotation_in
from oocbe.model.results.numerals import format_bytes
from oocbe.model.row_numbers import even_ranges, key_number, stretches_of
from oocbe.model.semiring import Semiring
from oocbe.model.settings.machine import check_room
from oocbe.model.settings.option_values import parse_count
from oocbe.tables.layout import WORD_BITS, Layout, Scoped
from oocbe.tables.numbers import check_numbers
from oocbe.tables.packed_codec import decode, encode
from oocbe.tables.table import Table, check_kind, describe_table

if TYPE_CHECKING:
    from oocbe.tables.stored import StoredTable


CHUNK_ROWS = 1 << 20
"""Rows per chunk of a packed table. A piece of a stream has whole chunks at both ends: with 2^22 rows each, a join of
3·10^8 rows through an eighth of their memory took 0.116 s, with these 0.099 s, with 2^19 no less."""


@dataclass(frozen=True)
class PackedColumn:
    """A column's chunks: uint64 ``words`` (words,), and int64 ``starts`` (chunks + 1,) of each there."""

    words: NDArray[np.uint64]
    starts: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks."""
        return self.words.nbytes

    def chunks(self, first: int, last: int) -> NDArray[np.uint64]:
        """Words of chunks ``first`` to ``last``, the latter excluded."""
        return self.words[self.starts[first] : self.starts[last]]


class PackedTable(Scoped):
    """An incomplete table in main memory, packed. Created by :meth:`pack`, :meth:`read`, or an operator.

    Attributes
    ----------
    layout, semiring, is_sorted : as for :class:`oocbe.tables.table.Table`.
    dtype : dtype of the values.
    row_starts : int64 (chunks + 1,), first row of each chunk, and the number of rows.
    columns : chunks of each key word, and of the values.
    edge_keys : keys of the first and the last row of each chunk, each as one number (word 0 least significant).
    extent : least and greatest value of integers; None for floats or without rows.
    """

    def __init__(
        self,
        layout: Layout,
        semiring: Semiring,
        dtype: np.dtype[Any],
        is_sorted: bool,
        row_starts: NDArray[np.int64],
        columns: Sequence[PackedColumn | StoredColumn],
        edge_keys: Sequence[tuple[int, int]],
        extent: tuple[int, int] | None,
    ) -> None:
        self.layout, self.semiring, self.dtype, self.is_sorted = layout, semiring, dtype, is_sorted
        self.row_starts, self.columns, self.edge_keys, self.extent = row_starts, tuple(columns), edge_keys, extent
        if len(self.columns) != layout.words + 1:
            raise ModelError(f"table over {layout.scope}: {len(self.columns)} columns instead of {layout.words + 1}")

    @classmethod
    def pack(cls, table: Table, *, chunk_rows: int = CHUNK_ROWS) -> PackedTable:
        """Pack a table in main memory, several chunks at a time.

        chunk_rows : rows of each chunk but the last one.

        Raises
        ------
        ModelError : numbers that tables cannot represent (:mod:`oocbe.tables.numbers`). UsageError : a wrong argument.
        """
        from oocbe.kernels.cpu.threads import run_all

        check_kind(table, Table)
        check_numbers(f"table over {table.scope}", table.values, table.semiring)
        starts = np.append(np.arange(0, table.rows, parse_count("chunk_rows", chunk_rows)), table.rows).astype(np.int64)
        columns: list[NDArray[Any]] = [*table.keys, table.values]
        cuts = [(column[low:high],) for column in columns for low, high in pairwise(starts)]
        made = run_all(encode, cuts)
        chunks = len(starts) - 1
        packed = [_laid(made[number * chunks : (number + 1) * chunks]) for number in range(len(columns))]
        edges = [
            (key_number(table.keys, low), key_number(table.keys, high - 1)) for low, high in pairwise(starts.tolist())
        ]
        extent = None
        if table.rows and table.values.dtype.kind != "f":
            extent = (int(table.values.min()), int(table.values.max()))
        dtype = table.values.dtype
        return cls(table.layout, table.semiring, dtype, table.is_sorted, starts, packed, edges, extent)

    @classmethod
    def read(cls, table: StoredTable) -> PackedTable:
        """Read a stored table in packed form, with all chunks checked; nothing is unpacked.

        Raises
        ------
        CorruptDataError : a missing or damaged chunk. ResourceError : the chunks exceed the memory.
        """
        from oocbe.kernels.cpu.threads import run_all

        chunks = table.chunk_count
        calls = [(column, chunk) for column in range(table.layout.words + 1) for chunk in range(chunks)]
        try:
            made = run_all(table.packed_chunk, calls)
            columns = [_laid(made[c * chunks : (c + 1) * chunks]) for c in range(table.layout.words + 1)]
        except MemoryError:
            raise ResourceError(
                f"{table.path} takes {format_bytes(2 * table.stored_bytes)} while it is read, more than the memory "
                "left; name an output table on disk instead"
            ) from None
        return cls._of_stored(table, columns)

    @classmethod
    def on_disk(cls, table: StoredTable) -> PackedTable | None:
        """A stored table whose chunks are read when they are used; None where they are not packed."""
        if not table.is_packed:
            return None
        return cls._of_stored(
            table, [StoredColumn(table, c, table.chunk_starts(c)) for c in range(table.layout.words + 1)]
        )

    @classmethod
    def _of_stored(cls, table: StoredTable, columns: Sequence[PackedColumn | StoredColumn]) -> PackedTable:
        """The packed table with the chunks of a stored one."""
        chunks = table.chunk_count
        rows = np.array([table.chunk_start(chunk) for chunk in range(chunks + 1)], dtype=np.int64)
        edges = [table.chunk_keys(chunk) for chunk in range(chunks)]
        return cls(table.layout, table.semiring, table.dtype, table.is_sorted, rows, columns, edges, table.extent)

    @cached_property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.row_starts[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks."""
        return sum(column.nbytes for column in self.columns)

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        return len(self.row_starts) - 1

    def covering(self, start: int, stop: int) -> tuple[int, int]:
        """The chunks with rows ``start`` to ``stop``: the first one, and the one behind the last."""
        first = int(np.searchsorted(self.row_starts, start, side="right")) - 1
        return first, max(first, int(np.searchsorted(self.row_starts, stop, side="left")))

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows."""
        return even_ranges(self.rows, most)

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Read rows from ``start`` on into the caller's arrays: (words, rows) and (rows,), or None for keys alone."""
        self._read(start, [*zip(self.columns, keys, strict=False)])
        if values is not None:
            self._read(start, [(self.columns[-1], values)])

    def _read(self, start: int, wanted: Sequence[tuple[PackedColumn | StoredColumn, NDArray[Any]]]) -> None:
        """Read rows from ``start`` on of some columns into arrays (rows,)."""
        from oocbe.kernels.cpu.threads import run_all

        calls = []
        for column, target in wanted:
            for chunk, skipped, rows in stretches_of(self.row_starts, start, len(target)):
                count = int(self.row_starts[chunk + 1] - self.row_starts[chunk])
                calls.append((column.chunks(chunk, chunk + 1), count, target[rows], skipped))
        run_all(_decode, calls)

    def to_table(self) -> Table:
        """All rows, unpacked; ResourceError if they exceed the memory."""
        size = self.rows * (WORD_BITS // 8 * self.layout.words + self.dtype.itemsize)
        try:
            check_room(size)
            keys = np.empty((self.layout.words, self.rows), dtype=np.uint64)
            values = np.empty(self.rows, dtype=self.dtype)
        except MemoryError:
            raise ResourceError(f"{self!r} takes {format_bytes(size)} unpacked, more than the memory left") from None
        self.read_into(0, keys, values)
        return Table(self.layout, keys, values, self.semiring, self.is_sorted)

    def __repr__(self) -> str:
        return describe_table("PackedTable", self.layout, self.rows, self.nbytes, self.dtype, self.semiring)


class _Looked(local):
    """The chunk and block last read by a thread."""

    def __init__(self, words: int) -> None:
        self.chunk = self.block_of = self.block_start = -1
        self.words: list[NDArray[np.uint64]] = []
        self.block = np.empty((words, 1 << BLOCK_BITS), dtype=np.uint64)


class PackedKeys:
    """Single keys of a sorted packed table for bisection, thread-safe: each thread keeps a block unpacked."""

    def __init__(self, table: PackedTable) -> None:
        self._table = table
        self._first_keys = [first for first, _ in table.edge_keys]
        self._looked = _Looked(table.layout.words)

    @cached_property
    def look_bytes(self) -> int:
        """Bytes read from disk and kept per searching thread, for the largest chunk; 0 for tables in memory."""
        keys = self._table.columns[: self._table.layout.words]
        return sum(
            8 * int(np.diff(column.starts).max(initial=0)) for column in keys if isinstance(column, StoredColumn)
        )

    def forget(self) -> None:
        """Release the data of each thread: a chunk's key words, and a block."""
        self._looked = _Looked(self._table.layout.words)

    def key(self, row: int) -> int:
        """Key of a row as one number, word 0 least significant."""
        chunk = self._table.covering(row, row + 1)[0]
        place = row - int(self._table.row_starts[chunk])
        start = place >> BLOCK_BITS << BLOCK_BITS
        return key_number(self._block_at(chunk, start), place - start)

    def place(self, number: int, low: int, high: int) -> int:
        """First row of a range whose key is not below a number; ``high`` if there is none."""
        if low >= high or number >> WORD_BITS * self._table.layout.words:
            return high
        begin, end = self._table.covering(low, high)
        behind = bisect_left(self._first_keys, number, begin, end)
        chunk, starts = max(begin, behind - 1), self._table.row_starts
        first, last = max(low, int(starts[chunk])), min(high, int(starts[behind]))
        if first >= last:
            return low
        if self._table.layout.words > 1 or rotation_in(int(self._words_of(chunk)[0][0])):
            return first + bisect_left(range(first, last), number, key=self.key)
        return min(max(self._place_in(chunk, number), first), last)

    def _place_in(self, chunk: int, number: int) -> int:
        """First row, in a chunk of unrotated one-word keys, with a key not below a number, or the row behind the chunk.

        Uses the headers of blocks, which contain each block's first key.
        """
        begin, end = self._table.row_starts[chunk : chunk + 2].tolist()
        blocks = -(-(end - begin) >> BLOCK_BITS)
        headers = self._words_of(chunk)[0]
        bases = headers[FRONT_WORDS : FRONT_WORDS + HEADER_WORDS * blocks : HEADER_WORDS]
        block = int(np.searchsorted(bases, np.uint64(number)))
        if not block:
            return int(begin)
        start = block - 1 << BLOCK_BITS
        keys = self._block_at(chunk, start)[0, : end - begin - start]
        return int(begin) + start + int(np.searchsorted(keys, np.uint64(number)))

    def _words_of(self, chunk: int) -> list[NDArray[np.uint64]]:
        """The packed key words of a chunk."""
        looked = self._looked
        if looked.chunk != chunk:
            keys = self._table.columns[: self._table.layout.words]
            looked.chunk, looked.words = -1, []  # release the old chunk before reading the next one
            looked.words = [_words(column.chunks(chunk, chunk + 1)) for column in keys]
            looked.chunk = chunk
        return looked.words

    def _block_at(self, chunk: int, start: int) -> NDArray[np.uint64]:
        """Keys (words, rows of a block) of the block that begins at row ``start`` of a chunk."""
        looked = self._looked
        if (looked.block_of, looked.block_start) != (chunk, start):
            begin, end = self._table.row_starts[chunk : chunk + 2].tolist()
            looked.block_of = -1  # invalid until all words are decoded
            for words, out in zip(self._words_of(chunk), looked.block, strict=True):
                _decode(words, end - begin, out[: min(1 << BLOCK_BITS, end - begin - start)], start)
            looked.block_of, looked.block_start = chunk, start
        return looked.block


def _laid(chunks: Sequence[NDArray[np.uint64]]) -> PackedColumn:
    """Concatenate chunks."""
    starts = np.concatenate(([0], np.cumsum([len(chunk) for chunk in chunks]))).astype(np.int64)
    words = np.concatenate(chunks) if chunks else np.empty(0, dtype=np.uint64)
    return PackedColumn(words, starts)


def _words(chunks: NDArray[np.uint64] | ChunkFiles) -> NDArray[np.uint64]:
    return chunks if isinstance(chunks, np.ndarray) else chunks.words()


def _decode(chunk: NDArray[np.uint64] | ChunkFiles, rows: int, out: NDArray[Any], start: int) -> None:
    decode(_words(chunk).data, rows, out, start)


@dataclass(frozen=True)
class ChunkFiles:
    """Some neighbouring chunks of one column of a stored table.

    table : the table. column : of its key words, and the values last. first, last : the chunks, without the latter.
    starts : int64 (chunks of the table + 1,), where each chunk begins in the column, in words.
    """

    table: StoredTable
    column: int
    first: int
    last: int
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.starts[self.last] - self.starts[self.first])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the words."""
        return np.dtype(np.uint64)

    @property
    def nbytes(self) -> int:
        """Bytes of all words."""
        return 8 * len(self)

    def reads_into(self, target: NDArray[np.uint64]) -> list[tuple[int, Callable[[], None]]]:
        """Calls that each read and check a chunk into uint64 (words,), with its bytes; CorruptDataError: damaged."""
        starts = (self.starts[self.first : self.last + 1] - self.starts[self.first]).tolist()
        return [
            (8 * (high - low), partial(self.table.packed_chunk_into, self.column, chunk, target[low:high]))
            for chunk, (low, high) in zip(range(self.first, self.last), pairwise(starts), strict=True)
        ]

    def words(self) -> NDArray[np.uint64]:
        """The chunks in memory. Raises CorruptDataError: a chunk is missing or damaged."""
        target = np.empty(len(self), dtype=np.uint64)
        for _, read in self.reads_into(target):
            read()
        return target


@dataclass(frozen=True)
class StoredColumn:
    """A column of a stored table, read when used; like :class:`PackedColumn`, and given as :class:`ChunkFiles`."""

    table: StoredTable
    column: int
    starts: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return 8 * int(self.starts[-1])

    def chunks(self, first: int, last: int) -> ChunkFiles:
        """Chunks ``first`` to ``last``, without the latter."""
        return ChunkFiles(self.table, self.column, first, last, self.starts)
