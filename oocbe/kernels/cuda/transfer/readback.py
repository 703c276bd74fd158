"""A few numbers that kernels write to the host's memory, and for which alone the host waits."""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import suppress
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

PLACE_BYTES = 1 << 15
"""Pinned memory that is kept for later copies, in bytes; longer copies allocate their own."""

_places: defaultdict[int, deque[tuple[NDArray[np.uint8], int, Any]]] = defaultdict(deque)
"""Of each device: pinned memory, its address, and an event of earlier copies."""


class HostNumbers:
    """Pinned memory at ``address``, to which kernels write numbers; :meth:`queued` is called after their launches."""

    def __init__(self, count: int, dtype: Any = np.int64) -> None:
        module = cupy()
        self._dtype = np.dtype(dtype)
        self._nbytes = count * self._dtype.itemsize
        self._free = _places[module.cuda.runtime.getDevice()]
        try:
            if self._nbytes > PLACE_BYTES:
                raise IndexError
            self._memory, self.address, self._event = self._free.pop()  # another thread may have taken the last one
        except IndexError:
            size = max(self._nbytes, PLACE_BYTES)
            self._memory = np.frombuffer(module.cuda.alloc_pinned_memory(size), np.uint8, size)
            self.address = self._memory.ctypes.data
            self._event = module.cuda.Event(disable_timing=True)

    def __del__(self) -> None:
        # Pinned memory must not be used again before the kernels have written to it.
        event = getattr(self, "_event", None)
        if event is not None:
            with suppress(cupy().cuda.runtime.CUDARuntimeError):  # another thread may be starting the device
                event.synchronize()
                if len(self._memory) == PLACE_BYTES:
                    self._free.append((self._memory, self.address, event))

    def queued(self) -> None:
        """All kernels that write here have been launched on CuPy's current stream."""
        self._event.record(cupy().cuda.get_current_stream())

    def numbers(self) -> NDArray[Any]:
        """The numbers; waits for them."""
        self._event.synchronize()
        found: NDArray[Any] = self._memory[: self._nbytes].view(self._dtype)
        return found.copy()


class Readback(HostNumbers):
    """Starts a copy of small arrays of one dtype to the host after the work queued so far; not delayed by later work.

    arrays : CuPy arrays of one dtype of 4 or 8 bytes, contiguous each.
    """

    def __init__(self, *arrays: Any) -> None:
        super().__init__(sum(map(len, arrays)), arrays[0].dtype)
        assert self._dtype.itemsize % WORD == 0, self._dtype
        place = self.address
        try:
            for first in range(0, len(arrays), PARTS):
                part = arrays[first : first + PARTS]
                ends = list(accumulate(array.nbytes // WORD for array in part))
                empty = PARTS - len(ends)
                numbers = *(array.data.ptr for array in part), *[0] * empty, 0, *ends, *[ends[-1]] * empty
                parts = np.array(numbers, dtype=np.uint64)
                launch(kernel("readback", "read_back"), 1, THREADS, parts, np.uint64(place))
                place += ends[-1] * WORD
        finally:
            # The arrays may return to the pool at once: later work in the stream runs after the read.
            self.queued()
