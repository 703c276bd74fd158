"""Least and greatest values of integer columns on the device (:file:`extents.cu`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch
from oocbe.kernels.cuda.transfer.readback import HostNumbers

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
