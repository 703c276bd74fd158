"""Test of rows against bound tables over several variables, indexed by the bits of their keys."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.buckets.join_arrays import BoundArrays
from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.threads import row_ranges, run_all


class JointArrays(NamedTuple):
    """Concatenated tables, and the position of a row's cell in each.

    Attributes
    ----------
    start : int64 (tables + 1,), CSR into the fields of each table. begin : int64 (tables,), start of its entries.
    word : int64 (fields,); shift, mask : uint64 (fields,), bits of a key. step : int64 (fields,), stride of a value in
        cells. entries : int32. unit : int64 or float64 (tables,), cost of 1 in each table.
    """

    start: NDArray[np.int64]
    begin: NDArray[np.int64]
    word: NDArray[np.int64]
    shift: NDArray[np.uint64]
    mask: NDArray[np.uint64]
    step: NDArray[np.int64]
    entries: NDArray[np.int32]
    unit: NDArray[Any]


def rows_below(
    keys: NDArray[np.uint64], values: NDArray[Any], additive: BoundArrays, joint: JointArrays
) -> NDArray[np.bool_]:
    """Bool (rows,), True for rows whose bound is below the threshold.

    Parameters
    ----------
    keys : uint64 (words, rows). values : (rows,). additive : of the rows' variables, in one level.
    """
    keep = np.empty(len(values), dtype=np.bool_)
    unary = (additive.word, additive.shift, additive.mask, additive.base, additive.entries)
    number = additive.entries.dtype.type
    fixed = (keys, values, number(additive.slack[-1]), number(additive.scale), *unary, *joint, keep)
    run_all(_hold, [(*fixed, *piece) for piece in row_ranges(len(keep))])
    return keep


@jit
def _hold(
    keys: Any,
    values: Any,
    room: Any,
    scale: Any,
    own_word: Any,
    own_shift: Any,
    own_mask: Any,
    own_base: Any,
    own_entries: Any,
    start: Any,
    begin: Any,
    word: Any,
    shift: Any,
    mask: Any,
    step: Any,
    entries: Any,
    unit: Any,
    keep: Any,
    first: int,
    last: int,
) -> None:
    """Mark rows ``first`` to ``last``; lookups of a row end when its bound reaches the threshold."""
    for row in range(first, last):
        left = room - values[row] * scale
        for g in range(len(own_base)):
            left -= own_entries[own_base[g] + np.int64((keys[own_word[g], row] >> own_shift[g]) & own_mask[g])]
        for t in range(len(begin)):
            if left <= 0:
                break
            place = begin[t]
            for f in range(start[t], start[t + 1]):
                place += np.int64((keys[word[f], row] >> shift[f]) & mask[f]) * step[f]
            left -= entries[place] * unit[t]
        keep[row] = left > 0
