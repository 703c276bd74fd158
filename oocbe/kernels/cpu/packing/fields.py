"""Bit fields of packed keys: permuting them from one layout to another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import helper, jit
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
