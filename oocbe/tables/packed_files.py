"""Packed chunks that stay on disk until they are wanted: a stored table where a packed one is expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError

if TYPE_CHECKING:
    from oocbe.tables.stored import StoredTable


@dataclass(frozen=True)
class ChunkFiles:
    """Some neighbouring chunks of one column of a stored table.

    Attributes
    ----------
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
        """Of the words."""
        return np.dtype(np.uint64)

    @property
    def nbytes(self) -> int:
        """Bytes of all words."""
        return 8 * len(self)

    def read_into(self, target: NDArray[np.uint64]) -> None:
        """Read and check the chunks, end to end, into uint64 (words,).

        Raises
        ------
        CorruptDataError : a chunk is missing or damaged.
        """
        begin = int(self.starts[self.first])
        for chunk in range(self.first, self.last):
            low, high = int(self.starts[chunk]) - begin, int(self.starts[chunk + 1]) - begin
            words = self.table.packed_chunk(self.column, chunk)
            if len(words) != high - low:
                raise CorruptDataError(f"{self.table.path}: chunk {chunk} of column {self.column} has another size")
            target[low:high] = words

    def words(self) -> NDArray[np.uint64]:
        """The chunks in memory; errors as for :meth:`read_into`."""
        target = np.empty(len(self), dtype=np.uint64)
        self.read_into(target)
        return target


@dataclass(frozen=True)
class StoredColumn:
    """One column of a stored table; as :class:`oocbe.tables.packed.PackedColumn`, but read when it is used.

    Attributes
    ----------
    table, column, starts : as for :class:`ChunkFiles`.
    """

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
