"""Copies of device arrays to host memory at the bus's speed.

Into fresh pageable memory the driver copies at 2 GB/s, on the calling thread. So large arrays are copied through pinned
memory, which threads empty (:mod:`oocbe.kernels.cuda.transfer.conveyor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.spans import device_span
from oocbe.kernels.cuda.transfer.conveyor import Conveyor
from oocbe.runtime.tracing.recorder import DEVICE_TO_HOST

LARGE_BYTES = 1 << 25
"""Minimum total size of arrays, in bytes, for a copy by several threads."""

PINNED_BYTES = 1 << 29
"""Limit of pinned memory, in bytes, half of it for arrays in flight: seven chunks at a time."""


def bring_home(arrays: Sequence[Any]) -> list[NDArray[Any]]:
    """Host copies, in C order, of device arrays (items,) or (rows, items); waits for kernels that write them."""
    found = [np.empty(array.shape, dtype=array.dtype) for array in arrays]
    pairs = [pair for array, copy in zip(arrays, found, strict=True) for pair in _stretches(array, copy)]
    nbytes = sum(array.nbytes for array in arrays)
    if nbytes >= LARGE_BYTES and all(source.flags.c_contiguous for source, _ in pairs):
        try:
            _through_pinned_memory(pairs)
        except MemoryError:
            pass  # no pinned memory: the driver copies without it
        else:
            return found
    with device_span(DEVICE_TO_HOST, "download", bytes=nbytes):
        for source, row in pairs:
            cupy().asnumpy(source, out=row)
    return found


def _through_pinned_memory(pairs: Sequence[tuple[Any, NDArray[Any]]]) -> None:
    cupy().cuda.get_current_stream().synchronize()
    with Conveyor([], PINNED_BYTES) as conveyor:
        for source, row in pairs:
            conveyor.bring_back([source], [row])


def _stretches(array: Any, copy: NDArray[Any]) -> list[tuple[Any, NDArray[Any]]]:
    """Pairs of source and target of single copies: a contiguous array as a whole, others row by row.

    Rows of a part of a table are not adjacent, and there may be no memory for a contiguous copy.
    """
    if array.ndim == 1 or array.flags.c_contiguous:
        return [(array.reshape(-1), copy.reshape(-1))]
    return list(zip(array, copy, strict=True))
