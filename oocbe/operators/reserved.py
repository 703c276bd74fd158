"""Main memory for results of unknown size: reserved at once, taken page by page as it is written to."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray


def reserved(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array (count,) whose memory is taken page by page, in large pages where the system has them."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory = mmap.mmap(-1, max(1, count * dtype.itemsize), flags=flags)
    with suppress(AttributeError, OSError):  # not every system has large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype, count)
