"""Choice of kernels: a backend by its name, and ``auto`` by the number of rows.

``auto`` selects the GPU if there is one and the rows are many enough to pay for the transfer, otherwise the CPU. It
chooses for every operation, and out of core for the size of its pieces, so that small and large tables of one problem
each run where they are fastest.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from oocbe.errors import UnsupportedError, UsageError
from oocbe.model.settings.machine import device_memory_limit
from oocbe.model.settings.option_values import BACKENDS
from oocbe.runtime.tracing.recorder import KERNELS, active, spanning

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend, CompleteBackend


VARIABLE = "OOCBE_BACKEND"
"""Environment variable with the name of a backend."""

AUTO_ROWS = 1 << 16
"""Minimum number of rows for which ``auto`` selects the GPU. With 16 cores against an H200
(``benchmarks/gpu_choice.py``), for shuffled tables in host memory: at 16,000 to 32,000 rows the CPU took half the GPU's
time, at 64,000 to 128,000 twice."""


def backend_named(name: str) -> Backend:
    """The kernels of ``cpu`` or ``cuda``.

    Raises UsageError: another name, or no CUDA device is usable (the message gives the reason).
    """
    # Imported late: Numba takes a third of a second and CuPy more, and some commands need neither.
    if name == "cpu":
        from oocbe.kernels.cpu.backend import CpuBackend

        if active() is None:
            return CpuBackend()
        return cast("Backend", _Traced(CpuBackend()))
    if name == "cuda":
        return _cuda()
    raise UsageError(f"unknown backend {name!r}; known: {', '.join(BACKENDS)}")


def backend_for(rows: int, backend: Backend | str | None = None, on_device: bool = False) -> Backend:
    """The kernels for an operation.

    rows : total rows of its inputs.
    backend : the kernels, a name, or None for the value of ``OOCBE_BACKEND`` (``auto`` by default).
    on_device : whether some input is in device memory: ``auto`` then selects the device for any number of rows.
    """
    if backend is not None and not isinstance(backend, str):
        return backend if hasattr(backend, "name") else backend_named(str(backend))
    name = backend or os.environ.get(VARIABLE) or "auto"
    if name != "auto":
        return backend_named(name)
    if on_device or (rows >= AUTO_ROWS and cuda_works(wanted=backend == "auto" or VARIABLE in os.environ)):
        return _cuda()
    return backend_named("cpu")


def complete_kernels(cells: int, backend: Backend | str | None) -> CompleteBackend:
    """Kernels for complete tables of a backend, of ``auto`` one with them; UnsupportedError: it has none."""
    kernels: Any = backend_for(cells, backend)
    if hasattr(kernels, "eliminate_complete"):
        found: CompleteBackend = kernels
        return found
    if backend not in (None, "auto"):
        raise UnsupportedError(f"the {kernels.name} backend has no kernel for complete tables yet; use backend cpu")
    return complete_kernels(cells, "cpu")


@cache
def _cuda() -> Backend:
    # A singleton: it sets the limit of the memory pool.
    from oocbe.kernels.cuda.backend import CudaBackend

    return CudaBackend(device_memory_limit())


@cache
def cuda_works(wanted: bool) -> bool:
    """Whether CUDA can be used; logs the reason once if not, as a warning if ``wanted``."""
    from oocbe.kernels.cuda.device import why_unavailable

    reason = why_unavailable()
    if reason is not None:
        level = logging.WARNING if wanted else logging.INFO
        logging.getLogger("oocbe").log(level, "backend auto works on the CPU alone: %s", reason)
    return reason is None


MOVES = ("upload", "download")
"""Methods that are not kernels: on the CPU they do nothing."""


class _Traced:
    """CPU kernels under their own names, each call with a span; device kernels are traced at their launch."""

    def __init__(self, kernels: Backend) -> None:
        self.name = kernels.name
        self._kernels = kernels

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kernels, name)
        traced = found if name in MOVES else spanning(KERNELS, name)(found)
        setattr(self, name, traced)
        return traced
