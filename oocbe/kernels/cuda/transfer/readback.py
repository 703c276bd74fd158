"""Asynchronous copies of a few numbers from the device to the host."""

from __future__ import annotations

from collections import defaultdict, deque
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

PLACE_BYTES = 4096
"""Pinned memory that is kept for later copies, in bytes; longer copies allocate their own."""

_places: defaultdict[int, deque[tuple[NDArray[np.uint8], Any]]] = defaultdict(deque)
"""Of each device: pinned memory and an event of earlier copies."""


class Readback:
    """Starts a copy of small arrays of one dtype to the host after the work queued so far; later work does not delay
    it.

    Parameters
    ----------
    arrays : CuPy arrays of one dtype of 4 or 8 bytes, contiguous each. last : copy only the last entry of
        each, none of which is empty.
    """

    def __init__(self, *arrays: Any, last: bool = False) -> None:
        module = cupy()
        dtype = arrays[0].dtype
        assert dtype.itemsize % WORD == 0, dtype
        sizes = [dtype.itemsize if last else a.nbytes for a in arrays]
        starts = [a.data.ptr + a.nbytes - size for a, size in zip(arrays, sizes, strict=True)]
        self._dtype, self._nbytes = dtype, sum(sizes)
        self._free = _places[module.cuda.runtime.getDevice()]
        # The device writes to the memory directly.
        try:
            if self._nbytes > PLACE_BYTES:
                raise IndexError
            self._memory, self._event = self._free.pop()  # another thread may have taken the last one
        except IndexError:
            size = max(self._nbytes, PLACE_BYTES)
            self._memory = np.frombuffer(module.cuda.alloc_pinned_memory(size), np.uint8, size)
            self._event = module.cuda.Event(disable_timing=True)
        place = self._memory.ctypes.data
        try:
            for first in range(0, len(arrays), PARTS):
                ends = list(accumulate(size // WORD for size in sizes[first : first + PARTS]))
                empty = PARTS - len(ends)
                numbers = *starts[first : first + PARTS], *[0] * empty, 0, *ends, *[ends[-1]] * empty
                parts = np.array(numbers, dtype=np.uint64)
                launch(kernel("readback", "read_back"), 1, THREADS, parts, np.uint64(place))
                place += ends[-1] * WORD
        finally:
            # The arrays may return to the pool at once: later work in the stream runs after the read.
            self._event.record(module.cuda.get_current_stream())

    def __del__(self) -> None:
        # Pinned memory must not be used again before the kernel has written to it.
        event = getattr(self, "_event", None)
        if event is not None:
            event.synchronize()
            if len(self._memory) == PLACE_BYTES:
                self._free.append((self._memory, event))

    def numbers(self) -> NDArray[Any]:
        """The arrays' entries, concatenated; waits for them."""
        self._event.synchronize()
        found: NDArray[Any] = self._memory[: self._nbytes].view(self._dtype)
        return found.copy()


def last_entries(*arrays: Any) -> list[int]:
    """The last entry of each array; waits once for all."""
    found: list[int] = Readback(*arrays, last=True).numbers().tolist()
    return found
