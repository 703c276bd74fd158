"""Kernels: the loops of the engine, behind one small interface (:mod:`oocbe.kernels.interface`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend


def default_backend() -> Backend:
    """The backend that operators use when none is given: the CPU's."""
    # Imported here because Numba takes a third of a second, which commands that compute nothing should not pay.
    from oocbe.kernels.cpu.backend import CpuBackend

    return CpuBackend()
