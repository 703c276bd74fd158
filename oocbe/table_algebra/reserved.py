"""Main memory for results of unknown size: reserved at once, taken page by page as it is written to."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.system.stretches import fresh_memory


def reserved(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array (count,) whose memory is taken page by page, in large pages where the system has them."""
    memory = fresh_memory(max(1, count * dtype.itemsize), getattr(mmap, "MAP_NORESERVE", 0))
    return memory[: count * dtype.itemsize].view(dtype)
