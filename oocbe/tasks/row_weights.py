"""A number for each row of a message: in memory, or in a scratch file where there is no room for that.

The pass back over the tables gives every row of a message a weight. Rows are kept in blocks of a fixed number either
way, so that sums come out the same to the last bit. Those of a file pass through a few blocks in memory, the ones used
last: neighbouring rows of one message point to neighbouring rows of the next.
"""

from __future__ import annotations

import os
import tempfile
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError, DiskError
from oocbe.tables.disk_budget import DiskBudget

BLOCK_ROWS = 1 << 17
"""Rows of a block: 1 MiB of float64."""


class RowWeights:
    """Weights of all rows of a message; :meth:`close` it to give back what it has of the disk.

    Parameters
    ----------
    rows : number of rows. nothing : weight of a row that none was added to.
    dtype : of the weights.
    most_bytes : that they may take in memory; more are kept in a file, and so many bytes of its blocks in memory.
    budget : whose folder the file is in, which has no name and is gone when nobody holds this object.

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
        self._budget, self._taken = budget, 0
        if self.is_held:
            return
        try:
            self._handle, name = tempfile.mkstemp(prefix="oocbe-", dir=budget.folder)
            self._name = f"scratch file for the weights of {rows:,} rows in {budget.folder}"
            self._end = weakref.finalize(self, os.close, self._handle)
            Path(name).unlink()
        except OSError as error:
            raise budget.failure(error, f"scratch file in {budget.folder}", rows * dtype.itemsize) from None

    def add(self, reduce: np.ufunc, rows: NDArray[np.int64], weights: NDArray[Any]) -> None:
        """Reduce weights into some rows, in their order; a row may come several times.

        Raises
        ------
        DiskError : the disk, or what may be used of it, is full. CorruptDataError : what the file gives back is not
            what was written.
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
        """Forget all weights and give back what they have of the disk."""
        self._blocks.clear()
        self._written.clear()
        if not self.is_held:
            self._end()
        self._budget.take(-self._taken, self._budget.folder)
        self._taken = 0

    def _block(self, number: int) -> NDArray[Any]:
        """A block in memory; those used least lately are written where there are too many."""
        if number in self._blocks:
            self._blocks.move_to_end(number)
            return self._blocks[number]
        while not self.is_held and len(self._blocks) >= self._most_blocks:
            self._write(*self._blocks.popitem(last=False))
        count = min(BLOCK_ROWS, self.rows - number * BLOCK_ROWS)
        block = np.full(count, self._nothing, dtype=self._dtype)
        if number in self._written:
            self._read(number, block)
        self._blocks[number] = block
        return block

    def _read(self, number: int, block: NDArray[Any]) -> None:
        view, start = block.view(np.uint8).data, number * self._block_bytes
        done = 0
        try:
            while done < len(view):
                count = os.preadv(self._handle, [view[done:]], start + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise DiskError(f"{self._name}: cannot be read, {error.strerror}") from None
        if done < len(view) or zlib.crc32(view) != self._written[number]:
            raise CorruptDataError(
                f"{self._name}: rows from {number * BLOCK_ROWS:,} on are not what was written; check the disk"
            )

    def _write(self, number: int, block: NDArray[Any]) -> None:
        view, start = block.view(np.uint8).data, number * self._block_bytes
        if number not in self._written:
            self._budget.take(len(view), self._budget.folder)
            self._taken += len(view)
        done = 0
        try:
            while done < len(view):
                done += os.pwrite(self._handle, view[done:], start + done)
        except OSError as error:
            raise self._budget.failure(error, self._name, self.rows * self._dtype.itemsize) from None
        self._written[number] = zlib.crc32(view)
