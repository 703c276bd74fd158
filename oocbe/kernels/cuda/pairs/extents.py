"""Least and greatest values of integer columns on the device (:file:`extents.cu`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch
from oocbe.kernels.cuda.transfer.readback import Readback

THREADS = 256
"""Threads of a block, as in the source."""

BLOCKS = 4
"""Blocks of a multiprocessor."""


class Extents:
    """Starts the search for the least and greatest value of columns; later work does not delay it.

    Parameters
    ----------
    columns : int32 or int64 (rows,) each, with a row at least.
    """

    def __init__(self, columns: Sequence[Any]) -> None:
        most = BLOCKS * multiprocessors(cupy().cuda.runtime.getDevice())
        self._dtypes, found = [column.dtype for column in columns], []
        for column in columns:
            blocks = min(most, -(-len(column) // THREADS))
            found.append(cupy().empty(2 * blocks, dtype=np.int64))
            function = kernel("extents", "find_extents", VALUE=C_TYPES[column.dtype])
            launch(function, blocks, THREADS, column, len(column), found[-1])
        self._ends = np.cumsum([len(array) for array in found])
        self._read = Readback(*found) if found else None

    def read(self) -> list[NDArray[Any]]:
        """Least and greatest value of each column, in its dtype; waits for them."""
        if self._read is None:
            return []
        parts = np.split(self._read.numbers(), self._ends[:-1])
        return [np.array([part.min(), part.max()], dtype) for part, dtype in zip(parts, self._dtypes, strict=True)]
