"""Device memory: one pool with a hard limit, and the handling of exhausted memory.

The pool is CuPy's default one, so that CuPy's own temporary arrays are included. If an allocation fails, the call is
repeated after each of these: arrays on their way to the host have arrived; the device is synchronised, and all free
blocks are returned to it (against fragmentation; this takes as long as many kernels); the holders of movable arrays
have moved them (:class:`Holder`). Then :class:`~oocbe.errors.ResourceError` reports the bytes requested, used and
allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from threading import local
from types import TracebackType
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from oocbe.errors import ResourceError
from oocbe.kernels.cuda.device import cupy
from oocbe.model.settings.machine import DEVICE_MEMORY_VARIABLE

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


class _Holders(local):
    """A thread's holders, which can free device memory."""

    def __init__(self) -> None:
        self.leaving: WeakSet[Holder] = WeakSet()
        self.movable: WeakSet[Holder] = WeakSet()
        self.failures = 0


_holders = _Holders()


def set_limit(limit: int | None = None) -> int:
    """Limit the pool in bytes; None: the whole device.

    Returns the limit in bytes. Memory in use is not affected. A process has one pool: the last limit applies to
    everything in it.
    """
    total = int(cupy().cuda.runtime.memGetInfo()[1])
    limit = total if limit is None else min(limit, total)
    cupy().get_default_memory_pool().set_limit(size=limit)
    return limit


def limit_bytes() -> int:
    """The pool's limit in bytes: the one that was set, or the whole device."""
    return int(cupy().get_default_memory_pool().get_limit()) or int(cupy().cuda.runtime.memGetInfo()[1])


def used_bytes() -> int:
    """Bytes of the live arrays in the pool."""
    count: int = cupy().get_default_memory_pool().used_bytes()
    return count


def held_bytes() -> int:
    """Device memory of the pool in bytes, including free blocks; the limit applies to it."""
    count: int = cupy().get_default_memory_pool().total_bytes()
    return count


def device_room() -> int:
    """Device memory available to an operation, in bytes."""
    return limit_bytes() - used_bytes()


def failed_allocations() -> int:
    """Number of the calling thread's attempts that ran out of device memory and were repeated."""
    return _holders.failures


def free_blocks() -> None:
    """Synchronise the device and return the pool's free blocks to it."""
    cupy().cuda.Device().synchronize()
    cupy().get_default_memory_pool().free_all_blocks()


def peak_of(call: Callable[[], Result]) -> tuple[Result, int, int]:
    """Result of a call, the most bytes of the pool that it took at a time, and the bytes that the result takes."""
    taken = peak = 0

    class Hook(cupy().cuda.MemoryHook):  # type: ignore[misc]
        def malloc_postprocess(self, **named: int) -> None:
            nonlocal taken, peak
            taken += named["mem_size"] if named["mem_ptr"] else 0  # else it failed
            peak = max(peak, taken)

        def free_postprocess(self, **named: int) -> None:
            nonlocal taken
            taken -= named["mem_size"]

    with Hook():
        result = call()
    return result, peak, taken


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error reports that device memory ran out."""
    return isinstance(error, cupy().cuda.memory.OutOfMemoryError)


class Holder(Protocol):
    """Owner of device arrays that can be moved off the device, or are on their way."""

    def free_device_memory(self) -> bool:
        """Free the arrays after memory has run out; returns whether there were any."""


def held_by(holder: Holder, is_leaving: bool = False) -> None:
    """Register a holder for its lifetime: it is called when the calling thread runs out of device memory.

    is_leaving : its arrays are on their way, so that it is called first.
    """
    (_holders.leaving if is_leaving else _holders.movable).add(holder)


def _freed(holders: WeakSet[Holder]) -> bool:
    return sum(holder.free_device_memory() for holder in list(holders)) > 0


def _freed_blocks() -> bool:
    free_blocks()
    return True


class Retries:
    """Attempts at work that allocates all its device memory before it writes to any argument::

        retries = Retries()
        while True:
            with retries:
                return work()
            retries.free_memory()

    The block must leave no array of a failed attempt behind.
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], bool]] = [
            partial(_freed, _holders.leaving),
            _freed_blocks,
            partial(_freed, _holders.movable),
        ]
        self._message = ""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or not is_out_of_memory(error):
            return False
        self._message = str(error)
        _holders.failures += 1
        return True

    def free_memory(self) -> None:
        """Free memory for another attempt; called after the block, whose error holds the failed work's arrays.

        Raises ResourceError: memory ran out although the pool had no free block, and no array can be moved.
        """
        while self._steps:
            if self._steps.pop(0)():
                if not self._steps:
                    free_blocks()  # what was moved has left free blocks of other sizes
                return
        raise ResourceError(
            f"device memory ran out: {self._message.rstrip('.')}; used {used_bytes():,} bytes, limit "
            f"{limit_bytes():,} bytes. Use smaller tables or pieces, or raise {DEVICE_MEMORY_VARIABLE}"
        )


def with_retry(function: Function) -> Function:
    """Decorator for a call that may be repeated (:class:`Retries`); errors as there."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        retries = Retries()
        while True:
            with retries:
                return function(*arguments, **named)
            retries.free_memory()

    return call  # type: ignore[return-value]
