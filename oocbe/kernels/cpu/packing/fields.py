"""Bit fields of packed keys moved to another layout, and numbers in the minimum number of whole bytes.

The latter are for rows stored temporarily on disk. Packed chunks (:mod:`oocbe.kernels.cpu.packing.bit_pack`) are
smaller; here any rows can be read separately. Both directions take a nanosecond or two a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import helper, inline, jit
from oocbe.kernels.cpu.threads import row_ranges, run_all

BLOCK = 2048
"""Rows permuted at a time: a block of a few words stays in the first-level cache during all moves."""


def permute(
    keys: NDArray[np.uint64], plan: NDArray[np.int64], words: int, piece_rows: int | None = None
) -> NDArray[np.uint64]:
    """Move fields of keys to other places; see :meth:`oocbe.kernels.interface.Backend.permute`."""
    out = np.empty((words, keys.shape[1]), dtype=np.uint64)
    run_all(_permute_rows, [(keys, plan, out, start, stop) for start, stop in row_ranges(keys.shape[1], piece_rows)])
    return out


@jit
def _permute_rows(
    keys: NDArray[np.uint64], plan: NDArray[np.int64], out: NDArray[np.uint64], start: int, stop: int
) -> None:
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        out[:, first:last] = np.uint64(0)
        for move in range(plan.shape[0]):
            shift, back = np.uint64(plan[move, 1]), np.uint64(plan[move, 4])
            mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - plan[move, 2])
            source = keys[plan[move, 0], first:last]
            target = out[plan[move, 3], first:last]
            for row in range(last - first):
                target[row] |= ((source[row] >> shift) & mask) << back


@helper
def moved_word(keys: NDArray[np.uint64], row: int, plan: NDArray[np.int64], word: int) -> np.uint64:
    """One word of one row's key after the moves of a plan (to be called from compiled loops)."""
    result = np.uint64(0)
    for move in range(plan.shape[0]):
        if plan[move, 3] == word:
            mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - plan[move, 2])
            field = (keys[plan[move, 0], row] >> np.uint64(plan[move, 1])) & mask
            result |= field << np.uint64(plan[move, 4])
    return result


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
