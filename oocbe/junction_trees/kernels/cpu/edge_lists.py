"""Inverted maps: the rows of a clique for each row of a message, or for each value of a variable."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.orders.graphs import turned


@jit
def list_rows(maps: Any, map_start: Any, slot_start: Any, lengths: Any, listed: Any) -> None:
    """List, for each edge, its clique's rows by message row.

    Parameters
    ----------
    maps : int32, of all edges concatenated. map_start : int64 (edges + 1,), where each edge's map begins.
    slot_start : int64 (edges + 1,), where the rows of each edge's message begin in ``lengths``.
    lengths : int64, zeros; overwritten with the number of clique rows for each message row.
    listed : int32, of the size of the maps; numbers of rows within the clique, written, ascending for each message row.
    """
    for edge in range(len(map_start) - 1):
        slot = slot_start[edge]
        for i in range(map_start[edge], map_start[edge + 1]):
            lengths[slot + maps[i]] += 1
        place = map_start[edge]
        for s in range(slot, slot_start[edge + 1]):
            count = lengths[s]
            lengths[s] = place
            place += count
        for i in range(map_start[edge], map_start[edge + 1]):
            s = slot + maps[i]
            listed[lengths[s]] = i - map_start[edge]
            lengths[s] += 1
        before = map_start[edge]
        for s in range(slot, slot_start[edge + 1]):
            end = lengths[s]
            lengths[s] = end - before
            before = end


@jit
def list_values(values: Any, size: Any) -> Any:
    """List rows by their value of a variable.

    Parameters
    ----------
    values : unsigned integers (rows,), below ``size``.

    Returns
    -------
    int32 (rows,), numbers of rows, ascending for each value; int64 (size + 1,), where those of each value begin.
    """
    ends, listed = turned(np.arange(len(values) + 1), values, size)
    return listed, ends
