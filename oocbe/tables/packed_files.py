"""Packed chunks that stay on disk until they are wanted: a stored table where a packed one is expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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

    def reads_into(self, target: NDArray[np.uint64]) -> list[tuple[int, Callable[[], None]]]:
        """Calls that read and check a chunk each, into uint64 (words,), end to end; and the chunk's bytes.

        They raise CorruptDataError where a chunk is missing or damaged.
        """
        starts = (self.starts[self.first : self.last + 1] - self.starts[self.first]).tolist()
        return [
            (8 * (high - low), partial(self.table.packed_chunk_into, self.column, chunk, target[low:high]))
            for chunk, (low, high) in zip(range(self.first, self.last), pairwise(starts), strict=True)
        ]

    def words(self) -> NDArray[np.uint64]:
        """The chunks in memory.

        Raises
        ------
        CorruptDataError : a chunk is missing or damaged.
        """
        target = np.empty(len(self), dtype=np.uint64)
        for _, read in self.reads_into(target):
            read()
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

    @property
    def largest_bytes(self) -> int:
        """Bytes of the largest chunk."""
        return 8 * int(np.diff(self.starts).max(initial=0))

    def chunks(self, first: int, last: int) -> ChunkFiles:
        """Chunks ``first`` to ``last``, without the latter."""
        return ChunkFiles(self.table, self.column, first, last, self.starts)
