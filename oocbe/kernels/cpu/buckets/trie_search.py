"""Search steps along the sorted rows of a trie, inlined into the join."""

from __future__ import annotations

from typing import Any

from oocbe.kernels.cpu.jit import inline


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
