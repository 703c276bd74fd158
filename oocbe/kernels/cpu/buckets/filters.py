"""Filter by forbidden tuples: mark the rows of a table that contain none of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.threads import row_ranges, run_all

BITMAP_BITS = 20
"""Maximum bits of forbidden tuples in a bitmap (128 KiB, second-level cache); longer tuples are searched by
bisection."""


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
        bitmap = np.zeros(((1 << bits) + 63) // 64, dtype=np.uint64)
        _set_bits(bitmap, forbidden[0])
        counts = run_all(_keep_by_bitmap, [(parts[0], bitmap, keep, *piece) for piece in pieces])
    else:
        ordered = np.ascontiguousarray(forbidden[:, np.lexsort(forbidden)])
        counts = run_all(_keep_by_search, [(parts, ordered, keep, *piece) for piece in pieces])
    places = np.concatenate(([0], np.cumsum(counts)))
    kept = int(places[-1])
    if kept == len(values):
        return keys, values
    out_keys, out_values = np.empty((keys.shape[0], kept), dtype=np.uint64), np.empty(kept, dtype=values.dtype)
    arrays = (keys, values, keep, out_keys, out_values)
    run_all(_compress, [(*arrays, int(places[i]), *piece) for i, piece in enumerate(pieces)])
    return out_keys, out_values


@jit
def _set_bits(bitmap: NDArray[np.uint64], places: NDArray[np.uint64]) -> None:
    for place in places:
        bitmap[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))


@jit
def _keep_by_bitmap(
    parts: NDArray[np.uint64], bitmap: NDArray[np.uint64], keep: NDArray[np.bool_], start: int, stop: int
) -> int:
    count = 0
    for row in range(start, stop):
        part = parts[row]
        keep[row] = (bitmap[part >> np.uint64(6)] >> (part & np.uint64(63))) & np.uint64(1) == 0
        count += keep[row]
    return count


@jit
def _keep_by_search(
    parts: NDArray[np.uint64], forbidden: NDArray[np.uint64], keep: NDArray[np.bool_], start: int, stop: int
) -> int:
    words = parts.shape[0]
    count = 0
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
        count += not found
    return count


@jit
def _compress(
    keys: NDArray[np.uint64],
    values: NDArray[Any],
    keep: NDArray[np.bool_],
    out_keys: NDArray[np.uint64],
    out_values: NDArray[Any],
    place: int,
    start: int,
    stop: int,
) -> None:
    for row in range(start, stop):
        if keep[row]:
            for word in range(keys.shape[0]):
                out_keys[word, place] = keys[word, row]
            out_values[place] = values[row]
            place += 1
