"""The only access point to CuPy, which has no type annotations, and its availability on this machine."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from importlib import import_module
from threading import Thread
from typing import Any

from oocbe.errors import UsageError, install_hint
from oocbe.runtime.deadline import unlimited
from oocbe.runtime.waiting import interruptibly
from oocbe.runtime.writable import can_be_written, private_scratch

CACHE_VARIABLE = "CUPY_CACHE_DIR"
"""Environment variable with CuPy's folder of compiled kernels."""

OLDEST_CAPABILITY = 70
"""Volta: older devices lack independent thread scheduling, which is required for waiting on another block's prefix."""


def load_driver() -> None:
    """Initialise CUDA's driver in the background, some 0.4 s, while modules are imported and an order is found."""

    def initialise() -> None:
        with suppress(OSError):  # without a driver: why_unavailable gives the reason
            ctypes.CDLL("libcuda.so.1").cuInit(0)

    Thread(target=initialise).start()


@cache
def why_unavailable() -> str | None:
    """Reason why no CUDA device is usable, for users; None if one is. The result is cached."""
    try:
        module = import_module("cupy")
    except Exception as error:  # a broken installation may raise any exception
        return f"CuPy cannot be imported ({error}); as the driver needs, {install_hint('cuda12', 'cuda13')}"
    try:
        if module.cuda.runtime.getDeviceCount() == 0:
            return "this machine has no CUDA device"
        capability = int(module.cuda.Device().compute_capability)
        if capability < OLDEST_CAPABILITY:
            return f"the device's compute capability {capability / 10} is below {OLDEST_CAPABILITY / 10}"
        _give_cupy_a_cache()
        # Driver, runtime and compiler are compatible only if a kernel compiles and returns its result.
        found: list[int] = []
        with unlimited():  # the caller has no partial results to report yet
            interruptibly(lambda: found.append(int(module.arange(3, dtype=module.int64).sum())))
        if found != [3]:
            return "the CUDA device computes wrong results"
    except Exception as error:  # CUDA's own errors derive from RuntimeError, a missing library is an ImportError
        return f"CUDA does not work ({type(error).__name__}: {error})"
    return None


def cupy_cache() -> str:
    """CuPy's folder of compiled kernels."""
    return os.environ.get(CACHE_VARIABLE) or os.path.expanduser("~/.cupy/kernel_cache")  # noqa: PTH111  (a Path fails without a home)


def _give_cupy_a_cache() -> None:
    """Move CuPy's cache to temporary files if its own folder is not writable: otherwise it would compile no kernel."""
    if not os.environ.get(CACHE_VARIABLE) and not can_be_written(cupy_cache()):
        scratch = private_scratch("oocbe-cupy")
        if scratch is not None:
            os.environ[CACHE_VARIABLE] = scratch


@cache
def cupy() -> Any:
    """The module CuPy. Raises UsageError: it is not usable on this machine; the message gives the reason."""
    reason = why_unavailable()
    if reason is not None:
        raise UsageError(f"the cuda backend cannot be used: {reason}. The backends auto and cpu work without it")
    return import_module("cupy")


@cache
def multiprocessors(device: int) -> int:
    """Multiprocessors of a device, for grids of as many blocks as run at once."""
    count: int = cupy().cuda.Device(device).attributes["MultiProcessorCount"]
    return count
