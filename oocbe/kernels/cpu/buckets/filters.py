"""Filter by forbidden tuples: mark the rows of a table that contain none of them."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.threads import row_ranges, run_all

BITMAP_BITS = 20
"""Maximum bits of forbidden tuples in a table (1 MiB, second-level cache); longer tuples are searched by bisection."""


def drop_forbidden(
    keys: NDArray[np.uint64],
    values: NDArray[Any],
    parts: NDArray[np.uint64],
    forbidden: NDArray[np.uint64],
    bits: int,
    piece_rows: int | None = None,
) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Rows without a forbidden part; see :meth:`oocbe.kernels.interface.Backend.drop_forbidden`."""
    pieces = row_ranges(len(values), piece_rows)
    keep = np.empty(len(values), dtype=np.bool_)
    if bits <= BITMAP_BITS:
        permitted = np.ones(1 << bits, dtype=np.bool_)
        permitted[forbidden[0]] = False
        indices = parts[0].view(np.int64)
        run_all(permitted.take, [(indices[low:high], None, keep[low:high]) for low, high in pieces])
    else:
        ordered = np.ascontiguousarray(forbidden[:, np.lexsort(forbidden)])
        run_all(_keep_by_search, [(parts, ordered, keep, *piece) for piece in pieces])
    places = [0, *accumulate(int(np.count_nonzero(keep[low:high])) for low, high in pieces)]
    kept = places[-1]
    if kept == len(values):
        return keys, values
    out_keys, out_values = np.empty((keys.shape[0], kept), dtype=np.uint64), np.empty(kept, dtype=values.dtype)
    run_all(
        np.compress,
        [
            (keep[low:high], source[..., low:high], -1, target[..., first:last])
            for source, target in ((keys, out_keys), (values, out_values))
            for (low, high), (first, last) in zip(pieces, pairwise(places), strict=True)
        ],
    )
    return out_keys, out_values


@jit
def _keep_by_search(
    parts: NDArray[np.uint64], forbidden: NDArray[np.uint64], keep: NDArray[np.bool_], start: int, stop: int
) -> None:
    words = parts.shape[0]
    for row in range(start, stop):
        low, high, found = 0, forbidden.shape[1], False
        while low < high and not found:
            middle = (low + high) // 2
            word = words - 1
            while word > 0 and forbidden[word, middle] == parts[word, row]:
                word -= 1
            here, wanted = forbidden[word, middle], parts[word, row]
            if here == wanted:
                found = True
            elif here < wanted:
                low = middle + 1
            else:
                high = middle
        keep[row] = not found
