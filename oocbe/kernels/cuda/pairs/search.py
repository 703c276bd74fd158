"""Find rows of a sorted table on the device, with a few small copies to main memory."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.transfer.memory import with_retry
from oocbe.model.row_numbers import key_number

SAMPLES = 1 << 12
"""Rows that are brought to main memory at a time: a copy of so few costs no more than one of a single row."""


@with_retry
def rows_around(keys: Any, key: NDArray[np.uint64]) -> tuple[int, NDArray[np.uint64]]:
    """Some neighbouring rows, with the one that has a key if any has.

    keys : uint64 (words, rows) on the device, sorted. key : uint64 (words,).

    Returns the number of their first row, and their keys uint64 (words, n) in main memory; n is at most
    :data:`SAMPLES`.

    Raises
    ------
    ResourceError : device memory ran out.
    """
    low, high = 0, keys.shape[1]
    wanted = key_number(key[:, np.newaxis], 0)
    while high - low > SAMPLES:
        step = -(-(high - low) // SAMPLES)
        sample = keys[:, low:high:step].get()
        place = bisect_left(range(sample.shape[1]), wanted, key=lambda row: key_number(sample, row))
        high = min(high, low + place * step + 1)
        low = low + (place - 1) * step + 1 if place else low
    return low, keys[:, low:high].get()
