"""Columns on both sides of the bus: what they take, where they lie in a stretch of memory, and copies between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy

TO_DEVICE, TO_HOST = 1, 2
"""The runtime's codes of a copy's direction."""

PINNED = 1
"""The runtime's code of a pointer to pinned memory."""

ALIGNMENT = 512
"""Columns in a slot begin at multiples of so many bytes, as arrays of their own would."""

Columns = Sequence[NDArray[Any]]


class Unread(Protocol):
    """A column that is not in memory yet: its bytes, and how to get them to a place in memory."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its items."""

    @property
    def nbytes(self) -> int:
        """Of all items."""

    def reads_into(self, target: NDArray[Any]) -> Sequence[tuple[int, Callable[[], None]]]:
        """Calls that fill an array with the column's items, a part of it each, on any threads; and the part's bytes."""


Column = NDArray[Any] | Unread


def is_pinned(array: Column) -> bool:
    """Whether an array's memory is pinned, so that the device copies from and to it by itself."""
    if not isinstance(array, np.ndarray):
        return False
    return bool(cupy().cuda.runtime.pointerGetAttributes(array.ctypes.data).type == PINNED)


def bytes_of(columns: Sequence[Column]) -> int:
    """Bytes of some columns."""
    return sum(column.nbytes for column in columns)


def room_of(column: Column) -> int:
    """Bytes that a column takes where others follow it."""
    return -(-column.nbytes // ALIGNMENT) * ALIGNMENT


def carved(memory: Any, like: Sequence[Column]) -> list[Any]:
    """Parts of a piece of memory, of the shapes and dtypes of some columns."""
    parts, place = [], 0
    for column in like:
        parts.append(memory[place : place + column.nbytes].view(column.dtype))
        place += room_of(column)
    return parts


def copy(target: int, source: int, nbytes: int, direction: int, stream: Any) -> None:
    """Queue a copy between two addresses, of which the host's is pinned."""
    if nbytes:
        cupy().cuda.runtime.memcpyAsync(target, source, nbytes, direction, stream.ptr)
