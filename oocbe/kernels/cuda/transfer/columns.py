"""Columns on both sides of the bus: their sizes, their layout in a stretch of memory, and copies between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy

TO_DEVICE, TO_HOST = 1, 2
"""The runtime's codes of copy directions."""

PINNED = 1
"""The runtime's code of a pointer to pinned memory."""

ALIGNMENT = 512
"""Alignment of columns in a slot, in bytes, as for separate arrays."""

Columns = Sequence[NDArray[Any]]


class Unread(Protocol):
    """A column that is not in memory yet: its size, and calls that read it into memory."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of its items."""

    @property
    def nbytes(self) -> int:
        """Bytes of all items."""

    def reads_into(self, target: NDArray[Any]) -> Sequence[tuple[int, Callable[[], None]]]:
        """Calls that fill an array with the column's items, a part each, on any threads; with the bytes of each
        part."""


Column = NDArray[Any] | Unread


def is_pinned(array: Column) -> bool:
    """Whether an array's memory is pinned, so that the device accesses it directly."""
    if not isinstance(array, np.ndarray):
        return False
    begin, attributes = array.ctypes.data, cupy().cuda.runtime.pointerGetAttributes
    return all(attributes(address).type == PINNED for address in (begin, begin + max(0, array.nbytes - 1)))


def bytes_of(columns: Sequence[Column]) -> int:
    """Bytes of some columns."""
    return sum(column.nbytes for column in columns)


def room_of(column: Column) -> int:
    """Bytes of a column including padding for the next one."""
    return -(-column.nbytes // ALIGNMENT) * ALIGNMENT


def carved(memory: Any, like: Sequence[Column]) -> list[Any]:
    """Parts of a stretch of memory with the shapes and dtypes of some columns."""
    parts, place = [], 0
    for column in like:
        parts.append(memory[place : place + column.nbytes].view(column.dtype))
        place += room_of(column)
    return parts


def copy(target: int, source: int, nbytes: int, direction: int, stream: Any) -> None:
    """Queue a copy between two addresses; the host's is pinned."""
    if nbytes:
        cupy().cuda.runtime.memcpyAsync(target, source, nbytes, direction, stream.ptr)
