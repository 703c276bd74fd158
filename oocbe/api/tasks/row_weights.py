"""A number for each row of a message, in memory, or in a scratch file if memory is short.

The backward pass over the tables gives every row of a message a weight. Both forms use blocks of a fixed number of
rows, so that sums are identical to the last bit. A file has an LRU cache of a few blocks in memory: neighbouring rows
of one message point to neighbouring rows of the next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError
from oocbe.runtime.checksums import crc32
from oocbe.tables import disk
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.nameless_file import NamelessFile

BLOCK_ROWS = 1 << 17
"""Rows of a block: 1 MiB of float64."""


class RowWeights:
    """Weights of all rows of a message; :meth:`close` releases its disk space.

    Parameters
    ----------
    rows : number of rows. nothing : initial weight of a row.
    dtype : of the weights.
    most_bytes : limit in memory; larger weights are in a file, with a cache of so many bytes.
    budget : counts the file's bytes, and gives its folder.

    Raises
    ------
    DiskError : the file cannot be made.
    """

    def __init__(self, rows: int, nothing: Any, dtype: np.dtype[Any], most_bytes: int, budget: DiskBudget) -> None:
        self.rows, self._nothing, self._dtype = rows, nothing, dtype
        self._block_bytes = BLOCK_ROWS * dtype.itemsize
        self.is_held = rows * dtype.itemsize <= most_bytes
        self._most_blocks = max(1, most_bytes // self._block_bytes)
        self._blocks: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._written: dict[int, int] = {}  # blocks in the file, and their checksums
        self._file: NamelessFile | None = None
        if not self.is_held:
            disk.make_folder_of_user(budget.folder)  # not made yet if all messages fitted the memory
            self._file = NamelessFile(budget, f"scratch file for the weights of {rows:,} rows")

    def add(self, reduce: np.ufunc, rows: NDArray[np.int64], weights: NDArray[Any]) -> None:
        """Reduce weights into some rows, in their order; a row may occur several times.

        Raises
        ------
        DiskError : the disk is full, or its limit reached. CorruptDataError : data read from the file differ from those
            written.
        """
        numbers = rows // BLOCK_ROWS
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        for number, mine in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            reduce.at(self._block(number), rows[mine] - number * BLOCK_ROWS, weights[mine])

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """First row and weights of each block that any weight was added to, in order; errors as for :meth:`add`."""
        for number in sorted({*self._blocks, *self._written}):
            yield number * BLOCK_ROWS, self._block(number)

    def close(self) -> None:
        """Discard all weights and release their disk space."""
        self._blocks.clear()
        self._written.clear()
        if self._file is not None:
            self._file.close()

    def _block(self, number: int) -> NDArray[Any]:
        """A block in memory; if there are too many, the least recently used ones are written."""
        if number in self._blocks:
            self._blocks.move_to_end(number)
            return self._blocks[number]
        while self._file is not None and len(self._blocks) >= self._most_blocks:
            self._write(self._file, *self._blocks.popitem(last=False))
        count = min(BLOCK_ROWS, self.rows - number * BLOCK_ROWS)
        block = np.full(count, self._nothing, dtype=self._dtype)
        if self._file is not None and number in self._written:
            self._read(self._file, number, block)
        self._blocks[number] = block
        return block

    def _read(self, file: NamelessFile, number: int, block: NDArray[Any]) -> None:
        view = block.view(np.uint8).data
        file.read(view, number * self._block_bytes)
        if crc32(view) != self._written[number]:
            raise CorruptDataError(
                f"{file.name}: rows from {number * BLOCK_ROWS:,} on are not what was written; check the disk"
            )

    def _write(self, file: NamelessFile, number: int, block: NDArray[Any]) -> None:
        view = block.view(np.uint8).data
        file.write(view, number * self._block_bytes, more=0 if number in self._written else len(view))
        self._written[number] = crc32(view)
