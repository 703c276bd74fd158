"""Join sum by gather (Bistaffa, Bombieri and Farinelli 2016, algorithm 4) on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch
from oocbe.kernels.cuda.pairs.selection import PRODUCTS, find_tiles, summed
from oocbe.kernels.interface import MatchedGroups

THREADS = 128
"""Threads of a block, as in the source."""

PAIRS_A_BLOCK = 1024
"""Output rows of a block, as in the source."""


def join_rows(
    keys1: Any,
    values1: Any,
    keys2: Any,
    values2: Any,
    groups: MatchedGroups,
    words: int,
    combination: int,
    piece_rows: int | None = None,
) -> tuple[Any, Any]:
    """Join the rows of matched groups; see :meth:`oocbe.kernels.interface.Backend.join_rows`."""
    (places,), total = summed(PRODUCTS, (groups.counts1, groups.counts2, 1))
    rows = int(total.numbers()[0])
    keys, values = cupy().empty((words, rows), dtype=np.uint64), cupy().empty(rows, dtype=values1.dtype)
    blocks = -(-rows // PAIRS_A_BLOCK)
    if rows == 0:
        return keys, values
    tiles = find_tiles(places, PAIRS_A_BLOCK, blocks)
    table1 = keys1, values1, keys1.shape[1], keys1.shape[0]
    table2 = keys2, values2, keys2.shape[1]
    matched = groups.starts1, groups.counts1, groups.starts2, places, tiles
    function = kernel("join", "join_rows", VALUE=C_TYPES[values1.dtype], COMBINATION=int(combination))
    launch(function, blocks, THREADS, *table1, *table2, *matched, words, keys, values, rows)
    return keys, values
