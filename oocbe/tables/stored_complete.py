"""A complete table on disk: a Zarr v3 group with one array, the values of all cells in order, and a manifest.

Like a :class:`oocbe.tables.stored.StoredTable` without keys: the position of a cell follows from its number, so any
range of cells is read without an index. Every byte is checked on reading. Values of int16, unsupported by packed
chunks, become int32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.errors import UsageError
from oocbe.model.semiring import MAX_SUM, Semiring
from oocbe.tables.chunk_files import VALUES_NAME, ChunkIndex, arrays_of
from oocbe.tables.complete import Cells, CompleteTable, check_cells
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
from oocbe.tables.manifest import COMPLETE, Manifest
from oocbe.tables.numbers import converted, dtype_of_rows
from oocbe.tables.object_path import Place
from oocbe.tables.objects import place_of
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from oocbe.tables.writer import CellSettings, CompleteTableWriter


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
