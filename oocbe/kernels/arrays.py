"""Location of arrays, and copies to host memory: NumPy arrays are in host memory, CuPy arrays in a device's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_device_array(array: Any) -> bool:
    """Whether an array is in a device's memory."""
    return not isinstance(array, np.ndarray)


def host_array(array: Any) -> NDArray[Any]:
    """An array in host memory: itself, or a copy of a device array; waits for the kernels that write it."""
    return host_arrays([array])[0]


def host_arrays(arrays: Sequence[Any]) -> list[NDArray[Any]]:
    """Arrays, (items,) or (rows, items), in host memory: themselves, or C-order copies, transferred together."""
    there = [array for array in arrays if is_device_array(array)]
    if not there:
        return list(arrays)
    from oocbe.kernels.cuda.transfer.home import bring_home

    copies = iter(bring_home(there))
    return [next(copies) if is_device_array(array) else array for array in arrays]
