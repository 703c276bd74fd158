"""Small steps of a bucket's join (:mod:`oocbe.kernels.cpu.buckets.bucket_join`), inlined into its loop."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import helper, inline

U64 = np.uint64


class Frontier(NamedTuple):
    """Result of one call: ``filled`` rows of output, or partial walks if it stopped above the leaves.

    Attributes
    ----------
    keys : uint64 (words, capacity), separator keys (or their prefixes), ascending.
    values : value dtype (capacity,), one a leaf, or the limbs of counts; unused for partial walks.
    low, high : int64 (tables, capacity), row range of each table; used for partial walks only.
    filled : rows in use.
    complete : False if a limit was exceeded or ``stop`` was set, and the walk was given up.
    pruned : number of prefixes and rows without a completion below the threshold.
    """

    keys: NDArray[np.uint64]
    values: NDArray[Any]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    filled: int
    complete: bool
    pruned: int = 0


@inline
def gather(key: Any, lookups: Any, first: Any, last: Any) -> Any:
    """Index from fields of a key: segments ``first`` to ``last - 1`` of the lookups."""
    word, shift = lookups.segment_word, lookups.segment_shift
    mask, place = lookups.segment_mask, lookups.segment_place
    index = U64(0)
    for s in range(first, last):
        index |= ((key[word[s]] >> shift[s]) & mask[s]) << place[s]
    return np.int64(index)


@inline
def bound_part(key: Any, bounds: Any, level: Any) -> Any:
    """Sum of the bound tables over the variables of one level."""
    start, word, shift, mask = bounds.level_start, bounds.word, bounds.shift, bounds.mask
    base, entries = bounds.base, bounds.entries
    total = entries[0]  # always 0: a number of the right type
    for b in range(start[level], start[level + 1]):
        total += entries[base[b] + np.int64((key[word[b]] >> shift[b]) & mask[b])]
    return total


@inline
def least_value(values: Any, first: Any, last: Any) -> Any:
    """Least of some adjacent values."""
    least = values[first]
    for row in range(first + 1, last):
        least = min(least, values[row])
    return least


@helper
def values_a_row(limbs: Any) -> Any:
    """Values of each row: the limbs of a count, or one where there are none."""
    if limbs is None:
        return 1
    return limbs


@helper
def grown(array: Any, count: Any, capacity: Any) -> Any:
    """A copy of a matrix's first columns with a larger capacity."""
    larger = np.empty((array.shape[0], capacity), dtype=array.dtype)
    for row in range(array.shape[0]):
        for column in range(count):
            larger[row, column] = array[row, column]
    return larger
