"""Device memory: one pool with a hard limit, and what happens when it is reached.

The pool is CuPy's default one, so that CuPy's own temporary arrays count as well. Where an allocation fails although
the pool holds free blocks (fragmentation), the device is waited for, all free blocks are given back, and the call runs
once more; if that fails too, :class:`~oocbe.errors.ResourceError` says what was requested, used and allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from oocbe.errors import ResourceError
from oocbe.kernels.cuda.device import cupy
from oocbe.machine import DEVICE_MEMORY_VARIABLE

Function = TypeVar("Function", bound=Callable[..., Any])


def set_limit(limit: int | None = None) -> int:
    """Limit the pool to so many bytes; None: all of the device.

    Returns the limit in bytes. Memory in use already is not taken away. A process has one pool: the limit set last
    holds for everything in it.
    """
    total = int(cupy().cuda.runtime.memGetInfo()[1])
    limit = total if limit is None else min(limit, total)
    cupy().get_default_memory_pool().set_limit(size=limit)
    return limit


def used_bytes() -> int:
    """Bytes of the arrays that live in the pool."""
    count: int = cupy().get_default_memory_pool().used_bytes()
    return count


def held_bytes() -> int:
    """Bytes that the pool holds of the device, free blocks included: what the limit applies to."""
    count: int = cupy().get_default_memory_pool().total_bytes()
    return count


def free_blocks() -> None:
    """Wait for the device and give the pool's free blocks back to it."""
    cupy().cuda.Device().synchronize()
    cupy().get_default_memory_pool().free_all_blocks()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that device memory ran out."""
    return isinstance(error, cupy().cuda.memory.OutOfMemoryError)


def with_retry(function: Function) -> Function:
    """Decorator for a call that allocates device memory and writes to nothing it was given before it has all of it.

    Raises
    ------
    ResourceError : memory ran out twice, the second time with no free block in the pool.
    """

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Out of the handler: the error's traceback holds the failed call's arrays.
        free_blocks()
        try:
            return function(*arguments, **named)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            message = str(error)
        free_blocks()
        raise ResourceError(
            f"device memory ran out: {message.rstrip('.')}; used {used_bytes():,} bytes, limit "
            f"{cupy().get_default_memory_pool().get_limit():,} bytes. Use smaller tables or pieces, or raise "
            f"{DEVICE_MEMORY_VARIABLE}"
        )

    return call  # type: ignore[return-value]
