"""Extents of columns (:file:`extents.cu`), and search for rows of sorted tables, with few small copies to the host."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch
from oocbe.kernels.cuda.transfer.memory import with_retry
from oocbe.kernels.cuda.transfer.readback import HostNumbers
from oocbe.model.row_numbers import key_number

THREADS = 256
"""Threads of a block, as in the source."""

BLOCKS = 4
"""Blocks of a multiprocessor."""


class Extents:
    """Starts a search for the extents of int32 or int64 columns (rows,), not empty, which later work does not delay."""

    def __init__(self, columns: Sequence[Any]) -> None:
        most = BLOCKS * multiprocessors(cupy().cuda.runtime.getDevice())
        self._dtypes = [column.dtype for column in columns]
        blocks = [min(most, -(-len(column) // THREADS)) for column in columns]
        self._ends = 2 * np.cumsum(blocks, dtype=np.int64)
        self._read = HostNumbers(2 * sum(blocks))
        place = self._read.address
        for column, count in zip(columns, blocks, strict=True):
            function = kernel("extents", "find_extents", VALUE=C_TYPES[column.dtype])
            launch(function, count, THREADS, column, len(column), place)
            place += 16 * count
        self._read.queued()

    def read(self) -> list[NDArray[Any]]:
        """Least and greatest value of each column, in its dtype; waits for them."""
        parts = np.split(self._read.numbers(), self._ends)[:-1]
        return [np.array([part.min(), part.max()], dtype) for part, dtype in zip(parts, self._dtypes, strict=True)]


def greatest_count(values: Any) -> int:
    """Greatest of counts on the device, int64 (rows, limbs), with at least one row (:mod:`oocbe.tables.numbers`)."""
    rows, limbs = values.shape
    blocks = min(BLOCKS * multiprocessors(cupy().cuda.runtime.getDevice()), -(-rows // THREADS))
    found = cupy().zeros(limbs, dtype=np.uint64)
    for limb in reversed(range(limbs)):
        function = kernel("extents", "find_greatest_limb", VALUE=C_TYPES[values.dtype])
        launch(function, blocks, THREADS, values, rows, limb, limbs, found)
    return int.from_bytes(found.get().astype("<u8").tobytes(), "little")


SAMPLES = 1 << 12
"""Rows that are copied to the host at a time: a copy of so few takes no longer than one of a single row."""


@with_retry
def rows_around(
    keys: Any, first: NDArray[np.uint64], last: NDArray[np.uint64] | None = None
) -> tuple[int, NDArray[np.uint64]]:
    """A range of adjacent rows that contains all rows with a key from ``first`` to ``last``.

    keys : uint64 (words, rows) on the device, strictly ascending.
    first, last : uint64 (words,); None: equal to ``first``.

    Returns the index of their first row, and their keys uint64 (words, n) in host memory; n is at most
    :data:`SAMPLES`, or twice the number of rows with such keys.

    Raises ResourceError: device memory ran out.
    """
    low, high = 0, keys.shape[1]
    least = key_number(first[:, np.newaxis], 0)
    most = least if last is None else key_number(last[:, np.newaxis], 0)
    while high - low > SAMPLES:
        step = -(-(high - low) // SAMPLES)
        sample = keys[:, low:high:step].get()
        begin, end = (
            bisect_left(range(sample.shape[1]), wanted, key=lambda row: key_number(sample, row))
            for wanted in (least, most)
        )
        before = high - low
        low, high = low + (begin - 1) * step + 1 if begin else low, min(high, low + end * step + 1)
        if high - low == before:  # all have matching keys
            break
    return low, keys[:, low:high].get()
