"""Flags of units of work, and compaction of flagged rows (:file:`flags.cuh`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import launch
from oocbe.kernels.cuda.pairs.selection import Marked, counted

THREADS = 256
"""Threads of a block, as in the source."""


def blocks_for(units: int) -> int:
    """Number of blocks with one unit a thread."""
    return -(-units // THREADS)


def flag(function: Any, units: int, *arguments: Any) -> Marked:
    """Launch a kernel that flags units."""
    blocks = blocks_for(units)
    bits = cupy().empty(blocks * (THREADS // 32), dtype=np.uint32)
    launch(function, blocks, THREADS, *arguments, bits)
    return counted(bits, units)


def keep_flagged(kernels: Callable[[str], Any], keys: Any, values: Any, flagged: Marked) -> tuple[Any, Any]:
    """Flagged rows, in order: uint64 (words, rows), (rows,) or limbs; if all are flagged, the inputs."""
    rows, kept = len(values), flagged.count
    if kept == rows:
        return keys, values
    kept_keys = cupy().empty((keys.shape[0], kept), dtype=np.uint64)
    kept_values = cupy().empty((kept, *values.shape[1:]), dtype=values.dtype)
    arguments = (keys, values, rows, flagged.bits, flagged.before, kept_keys, kept_values, kept)
    launch(kernels("keep_flagged"), blocks_for(rows), THREADS, *arguments)
    return kept_keys, kept_values


def pack(arrays: Sequence[NDArray[Any]]) -> tuple[Any, list[int]]:
    """Arrays in one device buffer uint64 (one copy instead of many), and the first word of each."""
    places, words, end = [], [], 0
    for array in arrays:
        places.append(end)
        own = np.ascontiguousarray(array).reshape(-1)
        if own.nbytes % 8 or not own.size:
            padded = np.zeros(max(8, -(-own.nbytes // 8) * 8), dtype=np.uint8)
            padded[: own.nbytes] = own.view(np.uint8)
            own = padded
        words.append(own.view(np.uint64))
        end += len(words[-1])
    return cupy().asarray(np.concatenate(words)), places
