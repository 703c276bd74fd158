"""Where an array is, and its way to main memory: NumPy's arrays are there, CuPy's in a device's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_device_array(array: Any) -> bool:
    """Whether an array is in a device's memory."""
    return not isinstance(array, np.ndarray)


def host_array(array: Any) -> NDArray[Any]:
    """An array in main memory: itself where it is there, else a copy; waits for the kernels that write it."""
    return host_arrays([array])[0]


def host_arrays(arrays: Sequence[Any]) -> list[NDArray[Any]]:
    """Some arrays in main memory: those that are there, and copies in C order of those on a device, brought together.

    arrays : (items,), or (rows, items).
    """
    there = [array for array in arrays if is_device_array(array)]
    if not there:
        return list(arrays)
    from oocbe.kernels.cuda.transfer.home import bring_home

    copies = iter(bring_home(there))
    return [next(copies) if is_device_array(array) else array for array in arrays]
