"""Units of work that flag whether they leave something, and the rows that are left (:file:`flags.cuh`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import launch

THREADS = 256
"""Threads of a block, as in the source."""


def blocks_for(units: int) -> int:
    """Blocks that take one unit a thread."""
    return -(-units // THREADS)


def flag(kernel: Any, units: int, *arguments: Any) -> tuple[Any, Any]:
    """Launch a kernel that flags units: one bit a unit, and the inclusive prefix sum of the blocks' counts."""
    blocks = blocks_for(units)
    ballots = cupy().empty(blocks * (THREADS // 32), dtype=np.uint32)
    counts = cupy().empty(blocks, dtype=np.int64)
    launch(kernel, blocks, THREADS, *arguments, ballots, counts)
    return ballots, cupy().cumsum(counts)


def keep_flagged(
    kernels: Callable[[str], Any], keys: Any, values: Any, ballots: Any, block_ends: Any
) -> tuple[Any, Any]:
    """Rows whose flag is set, in their order; the inputs themselves where all are.

    keys : uint64 (words, rows). values : (rows,), or (rows, limbs) where the kernels are compiled for these.
    """
    rows = len(values)
    kept = int(block_ends[-1]) if rows else 0
    if kept == rows:
        return keys, values
    kept_keys = cupy().empty((keys.shape[0], kept), dtype=np.uint64)
    kept_values = cupy().empty((kept, *values.shape[1:]), dtype=values.dtype)
    arguments = (keys, values, rows, ballots, block_ends, kept_keys, kept_values, kept)
    launch(kernels("keep_flagged"), blocks_for(rows), THREADS, *arguments)
    return kept_keys, kept_values


def pack(arrays: Sequence[NDArray[Any]]) -> tuple[Any, list[int]]:
    """Arrays of 8-byte elements in one device buffer (one copy instead of many), and where each begins."""
    places, end = [], 0
    for array in arrays:
        places.append(end)
        end += max(1, array.size)
    packed = np.zeros(end, dtype=np.uint64)
    for array, place in zip(arrays, places, strict=True):
        packed[place : place + array.size] = np.ascontiguousarray(array).reshape(-1).view(np.uint64)
    return cupy().asarray(packed), places
