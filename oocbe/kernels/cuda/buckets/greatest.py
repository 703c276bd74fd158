"""The greatest of counts of several limbs on the device (:file:`greatest.cu`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import kernel, launch

THREADS = 256
"""Threads of a block, as in the source."""

BLOCKS = 4
"""Blocks of a multiprocessor."""


def greatest_count(values: Any) -> int:
    """Greatest of counts on the device, int64 (rows, limbs) with at least one row (:mod:`oocbe.tables.limbs`)."""
    rows, limbs = values.shape
    blocks = min(BLOCKS * multiprocessors(cupy().cuda.runtime.getDevice()), -(-rows // THREADS))
    found = cupy().empty((blocks, limbs), dtype=np.uint64)
    launch(kernel("greatest", "find_greatest", LIMBS=limbs), blocks, THREADS, values, rows, found)
    return max(int.from_bytes(row.astype("<u8").tobytes(), "little") for row in found.get())
