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


def extents(columns: Sequence[Any]) -> list[NDArray[Any]]:
    """Least and greatest value of each column, int32 or int64 (rows,) with a row at least, in its dtype; waits once."""
    most = BLOCKS * multiprocessors(cupy().cuda.runtime.getDevice())
    found = []
    for column in columns:
        blocks = min(most, -(-len(column) // THREADS))
        found.append(cupy().empty(2 * blocks, dtype=np.int64))
        launch(kernel("extents", "find_extents", VALUE=C_TYPES[column.dtype]), blocks, THREADS, column, len(column),
               found[-1])  # fmt: skip
    if not found:
        return []
    parts = np.split(Readback(*found).numbers(), np.cumsum([len(array) for array in found])[:-1])
    return [np.array([part.min(), part.max()], column.dtype) for part, column in zip(parts, columns, strict=True)]
