"""Numbers in the minimum number of whole bytes: for rows stored temporarily on disk, with random access.

Packed chunks (:mod:`oocbe.kernels.cpu.packing.bit_pack`) are smaller; here any rows can be read separately. Both
directions take a nanosecond or two a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import inline, jit


@inline
def _moved(numbers: NDArray[Any], distance: np.uint64, out: NDArray[Any]) -> None:
    for row in range(len(out)):
        out[row] = numbers[row] + distance


@jit
def narrow(numbers: NDArray[Any], base: np.uint64, size: int, out: NDArray[np.uint8]) -> None:
    """Lowest ``size`` bytes, least first, of uint32 or uint64 distances from ``base``, to uint8 (rows * size,)."""
    distance = np.uint64(0) - base
    if size == 8:
        _moved(numbers, distance, out.view(np.uint64))
    elif size == 4:
        _moved(numbers, distance, out.view(np.uint32))
    elif size == 2:
        _moved(numbers, distance, out.view(np.uint16))
    else:
        for row in range(len(numbers)):
            rest = numbers[row] + distance
            for place in range(row * size, (row + 1) * size):
                out[place] = rest & np.uint64(255)
                rest >>= np.uint64(8)


@jit
def widen(data: NDArray[np.uint8], base: np.uint64, size: int, out: NDArray[Any]) -> None:
    """Inverse of :func:`narrow`: out, uint32 or uint64 (rows,)."""
    if size == 8:
        _moved(data.view(np.uint64), base, out)
    elif size == 4:
        _moved(data.view(np.uint32), base, out)
    elif size == 2:
        _moved(data.view(np.uint16), base, out)
    else:
        for row in range(len(out)):
            number = np.uint64(0)
            for byte in range(size):
                number |= np.uint64(data[row * size + byte]) << np.uint64(8 * byte)
            out[row] = number + base
