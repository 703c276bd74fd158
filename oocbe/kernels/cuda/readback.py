"""A few numbers on their way from the device to the host, while the device goes on working."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy

DEVICE_TO_HOST = 2
"""The runtime's code of the copy's direction."""


class Readback:
    """Starts a copy of small arrays of one dtype, after the work queued so far; later work does not delay it.

    Parameters
    ----------
    arrays : CuPy arrays of one dtype, contiguous each.
    """

    def __init__(self, *arrays: Any) -> None:
        runtime = cupy().cuda.runtime
        stream = cupy().cuda.get_current_stream()
        size = sum(a.size for a in arrays)
        dtype = arrays[0].dtype
        # Pinned memory: a copy to any other would make the host wait for it here.
        memory = cupy().cuda.alloc_pinned_memory(size * dtype.itemsize)
        self._numbers = np.frombuffer(memory, dtype, size)
        place = self._numbers.ctypes.data
        for a in arrays:
            runtime.memcpyAsync(place, a.data.ptr, a.nbytes, DEVICE_TO_HOST, stream.ptr)
            place += a.nbytes
        self._event = cupy().cuda.Event(disable_timing=True)
        self._event.record(stream)

    def __del__(self) -> None:
        # Pinned memory that went back to its pool while the copy was on its way would change under its next user.
        event = getattr(self, "_event", None)
        if event is not None:
            event.synchronize()

    def numbers(self) -> NDArray[Any]:
        """The arrays' entries end to end; waits for them."""
        self._event.synchronize()
        return self._numbers


def last_entries(*arrays: Any) -> list[int]:
    """The last entry of each array; waits once for all."""
    found: list[int] = Readback(*(a[-1:] for a in arrays)).numbers().tolist()
    return found
