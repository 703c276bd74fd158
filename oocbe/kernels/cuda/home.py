"""Arrays from the device to main memory at the bus's speed.

Into ordinary memory the driver copies at 2 GB/s where the pages are fresh, on the thread that asks. So large arrays
come by way of pinned memory, which threads empty (:mod:`oocbe.kernels.cuda.conveyor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.conveyor import Conveyor
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.spans import device_span
from oocbe.tracing.recorder import DEVICE_TO_HOST

LARGE_BYTES = 1 << 25
"""Arrays of so many bytes together are worth the threads."""

PINNED_BYTES = 1 << 30
"""Pinned memory for arrays on their way, at most."""


def bring_home(arrays: Sequence[Any]) -> list[NDArray[Any]]:
    """Copies of the device's arrays in main memory, in C order; waits for the kernels that write them.

    arrays : (items,), or (rows, items).
    """
    if sum(array.nbytes for array in arrays) >= LARGE_BYTES:
        try:
            return _through_pinned_memory(arrays)
        except MemoryError:
            pass  # no pinned memory is to be had: the driver knows a way without
    with device_span(DEVICE_TO_HOST, "download", bytes=sum(array.nbytes for array in arrays)):
        return [cupy().asnumpy(array) for array in arrays]


def _through_pinned_memory(arrays: Sequence[Any]) -> list[NDArray[Any]]:
    found = [np.empty(array.shape, dtype=array.dtype) for array in arrays]
    side_by_side = cupy().ascontiguousarray
    cupy().cuda.get_current_stream().synchronize()
    with Conveyor([], PINNED_BYTES) as conveyor:
        for array, target in zip(arrays, found, strict=True):
            for source, row in zip(_rows(array), _rows(target), strict=True):
                conveyor.bring_back([side_by_side(source)], [row])
    return found


def _rows(array: Any) -> list[Any]:
    return [array] if array.ndim == 1 else list(array)
