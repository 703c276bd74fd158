"""What stands for CuPy on machines without a device, up to the first launch of a kernel: NumPy, with addresses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from oocbe.kernels.cuda import device


class DeviceArray(np.ndarray):
    """An array of NumPy's that has an address, like CuPy's."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class OutOfMemoryError(MemoryError):
    """Stands for CuPy's."""


def _on_device(make):
    return lambda *arguments, **named: make(*arguments, **named).view(DeviceArray)


@contextmanager
def pretended_cupy() -> Iterator[SimpleNamespace]:
    """Within the block, code that asks for CuPy gets this; kernels can be neither compiled nor launched."""
    names = (
        "asarray",
        "empty",
        "zeros",
        "cumsum",
        "concatenate",
        "ascontiguousarray",
        "arange",
        "empty_like",
        "take",
        "argsort",
    )
    pool = SimpleNamespace(
        set_limit=lambda size: None, get_limit=lambda: 0, used_bytes=lambda: 0, free_all_blocks=lambda: None
    )
    module = SimpleNamespace(
        **{name: _on_device(getattr(np, name)) for name in names},
        get_default_memory_pool=lambda: pool,
        cuda=SimpleNamespace(
            runtime=SimpleNamespace(memGetInfo=lambda: (1 << 30, 1 << 30)),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            Device=lambda: SimpleNamespace(synchronize=lambda: None),
        ),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", module)
        patch.setattr(device, "why_unavailable", lambda: None)
        device.cupy.cache_clear()
        try:
            yield module
        finally:
            device.cupy.cache_clear()
