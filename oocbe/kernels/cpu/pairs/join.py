"""Join sum by gather (Bistaffa, Bombieri and Farinelli 2016, algorithm 4) on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.threads import row_ranges, run_all
from oocbe.kernels.cpu.values import combine
from oocbe.kernels.interface import MatchedGroups


def join_rows(
    keys1: NDArray[np.uint64],
    values1: NDArray[Any],
    keys2: NDArray[np.uint64],
    values2: NDArray[Any],
    groups: MatchedGroups,
    words: int,
    combination: int,
    piece_rows: int | None = None,
) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Join the rows of matched groups; see :meth:`oocbe.kernels.interface.Backend.join_rows`."""
    places = np.concatenate(([0], np.cumsum(groups.counts1 * groups.counts2)))
    rows = int(places[-1])
    keys, values = np.empty((words, rows), dtype=np.uint64), np.empty(rows, dtype=values1.dtype)
    tables = (keys1, values1, keys2, values2, groups.starts1, groups.counts1, groups.starts2, places)
    # Plain integers: Numba takes 20 microseconds or more a call to type an enumeration's member
    arrays = (*tables, int(combination), keys, values)
    run_all(_gather_join, [(*arrays, *piece) for piece in row_ranges(rows, piece_rows)])
    return keys, values


@jit
def _gather_join(
    keys1: NDArray[np.uint64],
    values1: NDArray[Any],
    keys2: NDArray[np.uint64],
    values2: NDArray[Any],
    starts1: NDArray[np.int64],
    counts1: NDArray[np.int64],
    starts2: NDArray[np.int64],
    places: NDArray[np.int64],
    combination: int,
    out_keys: NDArray[np.uint64],
    out_values: NDArray[Any],
    start: int,
    stop: int,
) -> None:
    group = np.searchsorted(places, start, side="right") - 1
    row = start
    while row < stop:
        end = min(places[group + 1], stop)
        count = counts1[group]
        # One division a group and piece: afterwards remainder and quotient are only incremented.
        offset2, offset1 = divmod(row - places[group], count)
        while row < end:
            row1, row2 = starts1[group] + offset1, starts2[group] + offset2
            many = min(count - offset1, end - row)
            for word in range(out_keys.shape[0]):
                fixed = keys2[word, row2]
                if word < keys1.shape[0]:
                    for i in range(many):
                        out_keys[word, row + i] = keys1[word, row1 + i] | fixed
                else:
                    out_keys[word, row : row + many] = fixed
            factor = values2[row2]
            for i in range(many):
                out_values[row + i] = combine(values1[row1 + i], factor, combination)
            row += many
            offset1, offset2 = 0, offset2 + 1
        group += 1
