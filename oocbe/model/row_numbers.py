"""Rows as single numbers: keys for comparison, search and records, and positions in the list of all tuples."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_AXES = 63
"""NumPy's limit on the axes of an array with one axis per variable, indexed by lists of positions on all axes.
Domains of one value count, too."""


def tuples_at(cells: NDArray[np.int64], sizes: Sequence[int]) -> NDArray[np.int64]:
    """Tuples (cells, variables) at positions of the lexicographic list of all tuples; for any number of variables.

    cells : int64 (cells,), below the product of the domain sizes.
    """
    tuples = np.empty((len(cells), len(sizes)), dtype=np.int64)
    for place in range(len(sizes) - 1, -1, -1):
        cells, tuples[:, place] = np.divmod(cells, sizes[place])
    return tuples


def distinct_values(values: NDArray[Any], axis: int | None = None) -> NDArray[Any]:
    """Distinct values of an array, (n,), or its distinct slices along ``axis``; ascending, of the same dtype.

    Without counts, ``np.unique`` of NumPy 2.3 and later imports ``numpy.ma``, in 15 to 20 ms, and hashes, which is ten
    times as slow.
    """
    found: NDArray[Any] = np.unique(values, axis=axis, return_counts=True)[0]
    return found


def distinct_rows(tuples: NDArray[np.int64], sizes: Sequence[int]) -> int:
    """Number of different rows among at least one; sizes : of the columns' domains, within which all values are."""
    if not sizes:
        return 1
    if math.prod(sizes) < 2**62 and len(sizes) <= MOST_AXES:
        codes = np.sort(np.ravel_multi_index(tuple(tuples.T), tuple(sizes)))  # np.unique hashes, ten times as slow
        return 1 + int(np.count_nonzero(codes[1:] != codes[:-1]))
    return len(distinct_values(tuples, axis=0))


def key_number(keys: NDArray[np.uint64], row: int) -> int:
    """A row's key as one number, word 0 least significant; keys : uint64 (words, rows)."""
    return sum(int(word[row]) << (64 * place) for place, word in enumerate(keys))


def first_not_below(keys: NDArray[np.uint64], number: int, low: int, high: int) -> int:
    """First row of a range of ascending keys, uint64 (words, rows), that is not below a number; ``high`` if none."""
    if number >> 64 * len(keys):
        return high
    if len(keys) == 1:
        return low + int(np.searchsorted(keys[0, low:high], np.uint64(number)))
    return bisect_left(range(high), number, low, key=lambda row: key_number(keys, row))


def even_ranges(rows: int, most: int) -> Iterator[tuple[int, int]]:
    """``range(rows)`` in consecutive ranges of ``most`` rows, the last one shorter."""
    return pairwise([*range(0, rows, most), rows])


def stretches_of(starts: Sequence[int] | NDArray[np.int64], first: int, count: int) -> Iterator[tuple[int, int, slice]]:
    """The stretches that ``count`` rows from ``first`` on lie in, of rows that are stretches laid end to end.

    starts : first row of each stretch, and the number of all rows.
    Yields int : the stretch. int : the first wanted row in it, from its own first row on. slice : its rows among those
        wanted.
    """
    number, done = bisect_right(starts, first) - 1, 0
    while done < count:
        skipped = first + done - int(starts[number])
        end = min(count, int(starts[number + 1]) - first)
        if end > done:
            yield number, skipped, slice(done, end)
        number, done = number + 1, end
