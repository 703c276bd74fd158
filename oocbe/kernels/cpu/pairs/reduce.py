"""Marginalisation of groups of adjacent rows (Bistaffa, Bombieri and Farinelli 2016, algorithm 5) on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.threads import row_ranges, run_all
from oocbe.kernels.cpu.values import accumulate


def reduce_groups(
    keys: NDArray[np.uint64],
    values: NDArray[Any],
    starts: NDArray[np.int64],
    masks: NDArray[np.uint64],
    marginalisation: int,
    piece_rows: int | None = None,
) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """One row a group; see :meth:`oocbe.kernels.interface.Backend.reduce_groups`."""
    groups = len(starts) - 1
    out_keys, out_values = np.empty((len(masks), groups), dtype=np.uint64), np.empty(groups, dtype=values.dtype)
    # Plain integers: Numba takes 20 microseconds or more a call to type an enumeration's member
    arrays = (keys, values, starts, masks, int(marginalisation), out_keys, out_values)
    run_all(_reduce, [(*arrays, *piece) for piece in row_ranges(groups, piece_rows)])
    return out_keys, out_values


@jit
def _reduce(
    keys: NDArray[np.uint64],
    values: NDArray[Any],
    starts: NDArray[np.int64],
    masks: NDArray[np.uint64],
    marginalisation: int,
    out_keys: NDArray[np.uint64],
    out_values: NDArray[Any],
    first: int,
    last: int,
) -> None:
    for word in range(len(masks)):
        for group in range(first, last):
            out_keys[word, group] = keys[word, starts[group]] & masks[word]
    for group in range(first, last):
        out_values[group] = values[starts[group]]
        for row in range(starts[group] + 1, starts[group + 1]):
            accumulate(out_values, group, values[row], marginalisation)
