"""Flags of units of work, and compaction of flagged rows (:file:`flags.cuh`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import kernel, launch

THREADS = 256
"""Threads of a block, as in the source."""

SUM_THREADS, MOST_SUMMED = 1024, 1 << 14
"""Threads of the single block that sums a short list, as in the source, and the maximum length of such a list: one
launch, where the host takes three times as long for CuPy's prefix sum, which dominates small buckets."""


def blocks_for(units: int) -> int:
    """Number of blocks with one unit a thread."""
    return -(-units // THREADS)


def flag(function: Any, units: int, *arguments: Any) -> tuple[Any, Any]:
    """Launch a kernel that flags units: one bit a unit, and the inclusive prefix sum of the warps' counts."""
    blocks = blocks_for(units)
    warps = blocks * (THREADS // 32)
    ballots, counts = cupy().empty(warps, dtype=np.uint32), cupy().empty(warps, dtype=np.int64)
    launch(function, blocks, THREADS, *arguments, ballots, counts)
    return ballots, prefix_sum(counts, into=counts)


def prefix_sum(counts: Any, into: Any | None = None) -> Any:
    """Inclusive prefix sum of int64 (n,), ``into`` an array of that length, possibly ``counts``; None: new."""
    count = len(counts)
    if count > MOST_SUMMED:
        return cupy().cumsum(counts, out=into)
    out = cupy().empty(count, dtype=np.int64) if into is None else into
    launch(kernel("sums", "inclusive_sum"), min(1, count), SUM_THREADS, counts, out, count)
    return out


def keep_flagged(kernels: Callable[[str], Any], keys: Any, values: Any, ballots: Any, ends: Any) -> tuple[Any, Any]:
    """Rows with a set flag, in order: uint64 (words, rows), (rows,) or limbs; if all are set, the inputs."""
    rows = len(values)
    kept = int(ends[-1]) if rows else 0
    if kept == rows:
        return keys, values
    kept_keys = cupy().empty((keys.shape[0], kept), dtype=np.uint64)
    kept_values = cupy().empty((kept, *values.shape[1:]), dtype=values.dtype)
    arguments = (keys, values, rows, ballots, ends, kept_keys, kept_values, kept)
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
