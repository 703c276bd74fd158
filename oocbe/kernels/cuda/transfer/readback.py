"""Asynchronous copies of a few numbers from the device to the host."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import kernel, launch

PARTS = 16
"""Maximum number of arrays of one kernel call, as in the source."""

THREADS = 64
"""Threads of a block, as in the source."""

WORD = 4
"""Bytes moved by a thread at a time; all dtypes here are multiples."""


class Readback:
    """Starts a copy of small arrays of one dtype to the host after the work queued so far; later work does not delay
    it.

    Parameters
    ----------
    arrays : CuPy arrays of one dtype of 4 or 8 bytes, contiguous each.
    """

    def __init__(self, *arrays: Any) -> None:
        stream = cupy().cuda.get_current_stream()
        dtype, size = arrays[0].dtype, sum(a.size for a in arrays)
        # The device writes to it directly.
        memory = cupy().cuda.alloc_pinned_memory(size * dtype.itemsize)
        self._numbers = np.frombuffer(memory, dtype, size)
        place = self._numbers.ctypes.data
        assert dtype.itemsize % WORD == 0, dtype
        self._event = cupy().cuda.Event(disable_timing=True)
        try:
            for first in range(0, len(arrays), PARTS):
                part = arrays[first : first + PARTS]
                ends = list(accumulate(a.nbytes // WORD for a in part))
                parts = np.zeros(2 * PARTS + 1, dtype=np.uint64)
                parts[: len(part)] = [a.data.ptr for a in part]
                parts[PARTS + 1 :] = ends[-1]
                parts[PARTS + 1 : PARTS + 1 + len(part)] = ends
                launch(kernel("readback", "read_back"), 1, THREADS, parts, np.uint64(place))
                place += ends[-1] * WORD
        finally:
            # The arrays may return to the pool at once: later work in the stream runs after the read.
            self._event.record(stream)

    def __del__(self) -> None:
        # Pinned memory must not return to its pool before the kernel has written to it.
        event = getattr(self, "_event", None)
        if event is not None:
            event.synchronize()

    def numbers(self) -> NDArray[Any]:
        """The arrays' entries, concatenated; waits for them."""
        self._event.synchronize()
        return self._numbers


def last_entries(*arrays: Any) -> list[int]:
    """The last entry of each array; waits once for all."""
    found: list[int] = Readback(*(a[-1:] for a in arrays)).numbers().tolist()
    return found
