"""Substitution dominance on the device: drop rows dominated by another row of the same message."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.buckets.flags import flag, keep_flagged, pack
from oocbe.kernels.cuda.modules import C_TYPES, kernel

SOURCE = "dominance"
"""Name of the CUDA source."""


def drop_dominated(
    keys: Any,
    values: Any,
    fields: NDArray[Any],
    start_offset: NDArray[np.int64],
    start: NDArray[np.int64],
    target: NDArray[np.int64],
    penalty: NDArray[Any],
    sign: int,
) -> tuple[Any, Any]:
    """Rows that no substitution of one variable dominates, on the device, in their order.

    keys : device uint64 (words, rows), ascending. values : device (rows,).
    fields : uint64 (variables, 3), word, shift and mask of each substitutable variable.
    start_offset, start, target, penalty : substitutions of value a of variable v are start[start_offset[v] + a] up to,
        not including, the next entry; see :mod:`oocbe.kernels.cpu.buckets.dominance`. penalty is int64 or float64.
    sign : 1 if small values are better, -1 if large ones are.
    """
    rows = len(values)
    columns = [np.ascontiguousarray(fields[:, i]) for i in range(3)]
    buffer, places = pack([*columns, start_offset, start, target, penalty])
    word, shift, mask, offset, begin, to, worst = (int(buffer.data.ptr) + 8 * place for place in places)
    struct = np.array([word, shift, mask, offset, len(fields), begin, to, worst], dtype=np.uint64)
    struct = np.concatenate([struct, np.array([sign], dtype=np.int64).view(np.uint64)])

    def kernels(name: str) -> Any:
        return kernel(SOURCE, name, WORDS=keys.shape[0], VALUE=C_TYPES[values.dtype])

    ballots, ends = flag(kernels("flag_undominated"), rows, keys, values, rows, struct)
    return keep_flagged(kernels, keys, values, ballots, ends)
