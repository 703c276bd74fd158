"""Kernel tests run over every backend; they speak NumPy, so a GPU's arrays are brought there and back for them."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from oocbe.kernels import backend_named
from oocbe.kernels.interface import CompleteFunction, MatchedGroups

IN_MAIN_MEMORY = {"plan", "masks", "forbidden", "ranges", "sizes", "dtype"}
"""Arguments that a backend takes as they are."""


class FromMainMemory:
    """A backend whose kernels take and return NumPy arrays."""

    def __init__(self, backend) -> None:
        self.backend = backend

    def __getattr__(self, name):
        kernel = getattr(self.backend, name)

        def call(*arguments, **named):
            bound = inspect.signature(kernel).bind(*arguments, **named)
            for key, value in bound.arguments.items():
                if key not in IN_MAIN_MEMORY:
                    bound.arguments[key] = self.brought(value, self.backend.upload)
            return self.brought(kernel(*bound.args, **bound.kwargs), self.backend.download)

        return call

    def brought(self, value, there):
        if isinstance(value, (tuple, list)):
            return type(value)(self.brought(part, there) for part in value)
        if isinstance(value, CompleteFunction):
            return replace(value, values=there(value.values))
        if is_dataclass(value) and isinstance(value, MatchedGroups):
            return replace(value, **{f.name: there(getattr(value, f.name)) for f in fields(value)})
        return there(value) if isinstance(value, np.ndarray) or hasattr(value, "get") else value


def skip_without_gpu() -> None:
    from oocbe.kernels.cuda.device import why_unavailable

    if why_unavailable():
        pytest.skip(f"no GPU: {why_unavailable()}")


@pytest.fixture(scope="session")
def cuda():
    """The CUDA backend, for NumPy arrays."""
    skip_without_gpu()
    return FromMainMemory(backend_named("cuda"))


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def kernels(request):
    """Each backend, for NumPy arrays."""
    if request.param == "cuda":
        skip_without_gpu()
    return FromMainMemory(backend_named(request.param))
