"""Device memory: one pool with a hard limit, and what happens when it is reached.

The pool is CuPy's default one, so that CuPy's own temporary arrays count as well. Where an allocation fails although
the pool holds free blocks (fragmentation), the device is waited for, all free blocks are given back, and the call runs
once more; if that fails too, the holders of movable arrays (:class:`Holder`) move them, and the call runs a last time;
then :class:`~oocbe.errors.ResourceError` reports the bytes requested, used and allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import local
from types import TracebackType
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from oocbe.errors import ResourceError
from oocbe.kernels.cuda.device import cupy
from oocbe.model.settings.machine import DEVICE_MEMORY_VARIABLE

Function = TypeVar("Function", bound=Callable[..., Any])


class _Holders(local):
    """A thread's holders, which can free device memory."""

    def __init__(self) -> None:
        self.found: WeakSet[Holder] = WeakSet()


_holders = _Holders()


def set_limit(limit: int | None = None) -> int:
    """Limit the pool to so many bytes; None: all of the device.

    Returns the limit in bytes. Memory in use already is not taken away. A process has one pool: the limit set last
    holds for everything in it.
    """
    total = int(cupy().cuda.runtime.memGetInfo()[1])
    limit = total if limit is None else min(limit, total)
    cupy().get_default_memory_pool().set_limit(size=limit)
    return limit


def limit_bytes() -> int:
    """Bytes that the pool may hold: the limit that was set, or all of the device."""
    return int(cupy().get_default_memory_pool().get_limit()) or int(cupy().cuda.runtime.memGetInfo()[1])


def used_bytes() -> int:
    """Bytes of the arrays that live in the pool."""
    count: int = cupy().get_default_memory_pool().used_bytes()
    return count


def held_bytes() -> int:
    """Bytes that the pool holds of the device, free blocks included: what the limit applies to."""
    count: int = cupy().get_default_memory_pool().total_bytes()
    return count


def device_room() -> int:
    """Bytes of device memory that an operation may take."""
    return limit_bytes() - used_bytes()


def free_blocks() -> None:
    """Wait for the device and give the pool's free blocks back to it."""
    cupy().cuda.Device().synchronize()
    cupy().get_default_memory_pool().free_all_blocks()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error reports that device memory ran out."""
    return isinstance(error, cupy().cuda.memory.OutOfMemoryError)


class Holder(Protocol):
    """Owner of device arrays that can be moved off the device."""

    def free_device_memory(self) -> bool:
        """Free them; called where memory has run out. Whether there were any."""


def held_by(holder: Holder) -> None:
    """Register a holder, for as long as it lives: it is called where the calling thread runs out of memory."""
    _holders.found.add(holder)


def _ask_holders() -> bool:
    """Free the arrays of this thread's holders; whether there were any."""
    return sum(holder.free_device_memory() for holder in list(_holders.found)) > 0


class Retries:
    """Attempts at work that allocates device memory and writes to nothing it was given before it has all of it::

        retries = Retries()
        while True:
            with retries:
                return work()
            retries.free_memory()

    The block must leave no array of a failed attempt behind.
    """

    def __init__(self) -> None:
        self._failed = 0
        self._message = ""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or not is_out_of_memory(error):
            return False
        self._message = str(error)
        return True

    def free_memory(self) -> None:
        """Free what can be freed for another attempt; behind the block, as its error holds the failed work's arrays.

        Raises
        ------
        ResourceError : memory ran out although the pool had no free block, and nothing on the device may be elsewhere.
        """
        free_blocks()
        self._failed += 1
        if self._failed == 1:
            return
        if self._failed == 2 and _ask_holders():
            free_blocks()
            return
        raise ResourceError(
            f"device memory ran out: {self._message.rstrip('.')}; used {used_bytes():,} bytes, limit "
            f"{limit_bytes():,} bytes. Use smaller tables or pieces, or raise {DEVICE_MEMORY_VARIABLE}"
        )


def with_retry(function: Function) -> Function:
    """Decorator for a call whose work may be attempted again (:class:`Retries`); errors as there."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        retries = Retries()
        while True:
            with retries:
                return function(*arguments, **named)
            retries.free_memory()

    return call  # type: ignore[return-value]
