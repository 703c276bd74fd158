"""Search for rows of a sorted table on the device, with a few small copies to host memory."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.transfer.memory import with_retry
from oocbe.model.row_numbers import key_number

SAMPLES = 1 << 12
"""Rows that are copied to the host at a time: a copy of so few takes no longer than one of a single row."""


@with_retry
def rows_around(
    keys: Any, first: NDArray[np.uint64], last: NDArray[np.uint64] | None = None
) -> tuple[int, NDArray[np.uint64]]:
    """A range of adjacent rows that contains all rows with a key from ``first`` to ``last``.

    keys : uint64 (words, rows) on the device, strictly ascending.
    first, last : uint64 (words,); None: equal to ``first``.

    Returns the index of their first row, and their keys uint64 (words, n) in host memory; n is at most
    :data:`SAMPLES`, or twice the number of rows with such keys.

    Raises ResourceError: device memory ran out.
    """
    low, high = 0, keys.shape[1]
    least = key_number(first[:, np.newaxis], 0)
    most = least if last is None else key_number(last[:, np.newaxis], 0)
    while high - low > SAMPLES:
        step = -(-(high - low) // SAMPLES)
        sample = keys[:, low:high:step].get()
        begin, end = (
            bisect_left(range(sample.shape[1]), wanted, key=lambda row: key_number(sample, row))
            for wanted in (least, most)
        )
        before = high - low
        low, high = low + (begin - 1) * step + 1 if begin else low, min(high, low + end * step + 1)
        if high - low == before:  # all have matching keys
            break
    return low, keys[:, low:high].get()
