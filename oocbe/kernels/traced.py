"""CPU kernels with a trace span for each call; device kernels are traced at their launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from oocbe.runtime.tracing.recorder import KERNELS, spanning

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend

MOVES = ("upload", "download")
"""Methods that are not kernels: on the CPU they do nothing."""


class _Traced:
    """Kernels under their own names, each with a span."""

    def __init__(self, kernels: Backend) -> None:
        self.name = kernels.name
        self._kernels = kernels

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kernels, name)
        traced = found if name in MOVES else spanning(KERNELS, name)(found)
        setattr(self, name, traced)
        return traced


def traced(kernels: Backend) -> Backend:
    """The given kernels, with a span for each call."""
    return cast("Backend", _Traced(kernels))
