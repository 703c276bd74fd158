"""Small steps of a bucket's join (:mod:`oocbe.kernels.cpu.buckets.bucket_join`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.buckets.join_arrays import LeafRows
from oocbe.kernels.cpu.jit import inline, without_allocation

U64 = np.uint64


@inline
def group_end(keys: Any, offset: Any, position: Any, end: Any, shift: Any, mask: Any, value: Any) -> Any:
    """First row after ``position`` whose field differs from ``value``: doubling steps, then bisection."""
    low = position + 1
    if low >= end or ((keys[offset + low] >> shift) & mask) != value:
        return low
    step = 1
    while low + step < end and ((keys[offset + low + step] >> shift) & mask) == value:
        low += step
        step += step
    high = min(low + step, end)
    low += 1
    while low < high:
        middle = (low + high) >> 1
        if ((keys[offset + middle] >> shift) & mask) == value:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def seek(keys: Any, offset: Any, position: Any, end: Any, shift: Any, mask: Any, value: Any) -> Any:
    """First row at or after ``position`` whose field is at least ``value``: doubling steps, then bisection."""
    low = position
    step = 1
    while low + step < end and ((keys[offset + low + step] >> shift) & mask) < value:
        low += step
        step += step
    high = min(low + step, end)
    while low < high:
        middle = (low + high) >> 1
        if ((keys[offset + middle] >> shift) & mask) < value:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def gather(key: Any, segments: Any, first: Any, last: Any) -> Any:
    """Index from a key's segments ``first`` to ``last - 1``, each (word, shift, mask, place) of LookupArrays."""
    word, shift, mask, place = segments
    index = U64(0)
    for s in range(first, last):
        index |= ((key[word[s]] >> shift[s]) & mask[s]) << place[s]
    return np.int64(index)


@inline
def rows_of_leaf(lookup: Any, leaves: Any, place: Any, indices: Any) -> Any:
    """The ``LeafRows`` of one leaf of a ``Frontier``; ``indices`` : filled for its masks and functions."""
    start = lookup.segment_start
    segments = (lookup.segment_word, lookup.segment_shift, lookup.segment_mask, lookup.segment_place)
    mask_from, mask_to, function_to = lookup.level_start[-3], lookup.level_start[-2], lookup.level_start[-1]
    for f in range(mask_from, function_to):
        indices[f] = gather(leaves.keys[place], segments, start[f], start[f + 1])
    return LeafRows(leaves.low[place], leaves.high[place], indices, lookup.base, mask_from, mask_to, function_to)


@without_allocation
def bound_part(key: Any, bounds: Any, level: Any) -> Any:
    """Sum of the bound tables over the variables of one level."""
    start, word, shift, mask = bounds.level_start, bounds.word, bounds.shift, bounds.mask
    base, entries = bounds.base, bounds.entries
    total = entries[0]  # always 0: a number of the right type
    for b in range(start[level], start[level + 1]):
        total += entries[base[b] + np.int64((key[word[b]] >> shift[b]) & mask[b])]
    return total


@without_allocation
def least_value(values: Any, first: Any, last: Any) -> Any:
    """Least of some adjacent values."""
    least = values[first]
    for row in range(first + 1, last):
        least = min(least, values[row])
    return least
