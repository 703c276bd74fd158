"""Join and marginalise at once on the device: no joined row is ever written.

Rows that agree on all but the eliminated variables become runs first (:mod:`oocbe.kernels.cuda.runs`): one pass over
each table. Within a group (one assignment of the shared variables that stay) an output row is a pair of an outer and an
inner run that have an eliminated value in common, and its value is made in registers. So the work is laid out by pairs,
as the join by gather lays it out by output rows: a block takes 2,048 of them, many small groups or part of a large one.
One launch counts the output rows of each block, a second one writes them to their final places.

Pairs without a common value cost a look at two sets of bits. Where the eliminated variables have more than 64 values,
they cost a merge of two lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.join import PAIRS_A_BLOCK, THREADS
from oocbe.kernels.cuda.modules import C_TYPES, Definition, kernel, launch
from oocbe.kernels.cuda.runs import find_runs
from oocbe.kernels.cuda.selection import COUNTS, PRODUCTS, find_tiles, prefix_sum
from oocbe.kernels.interface import EliminationPlan, MatchedGroups


def join_reduce(
    outer: tuple[Any, Any],
    inner: tuple[Any, Any],
    groups: MatchedGroups,
    plan: EliminationPlan,
    combination: int,
    marginalisation: int,
    piece_rows: int | None = None,
) -> tuple[Any, Any]:
    """Join and marginalise; see :meth:`oocbe.kernels.interface.Backend.join_reduce`."""
    dtype = outer[1].dtype
    if len(groups.starts1) == 0:
        return cupy().empty((plan.words, 0), dtype=np.uint64), cupy().empty(0, dtype=dtype)
    set_bits = 32 if plan.eliminated_bits <= 5 else 64 if plan.eliminated_bits == 6 else 0
    outer_runs = find_runs(*outer, plan.outer_run, plan.outer_eliminated, plan.outer_move, plan.words, set_bits)
    inner_runs = find_runs(*inner, plan.inner_rank, plan.inner_eliminated, plan.inner_move, plan.words, set_bits)
    outer_starts, outer_counts = outer_runs.groups(groups.starts1, groups.counts1)
    inner_starts, inner_counts = inner_runs.groups(groups.starts2, groups.counts2)
    places = prefix_sum(PRODUCTS, inner_counts, outer_counts)
    pairs = int(places[-1])
    blocks = -(-pairs // PAIRS_A_BLOCK)
    tiles = find_tiles(places, PAIRS_A_BLOCK, blocks)
    shared = (
        inner_runs.as_argument(), outer_runs.as_argument(), inner_starts, inner_counts, outer_starts, places, tiles,
        pairs,
    )  # fmt: skip
    definitions: dict[str, Definition] = {
        "SET_BITS": set_bits, "VALUE": C_TYPES[dtype],
        "COMBINATION": int(combination), "MARGINALISATION": int(marginalisation),
    }  # fmt: skip
    counts = cupy().empty(blocks, dtype=np.int64)
    launch(kernel("join_reduce", "count_pairs", **definitions), blocks, THREADS, *shared, counts)
    row_places = prefix_sum(COUNTS, counts)
    rows = int(row_places[-1])
    keys, values = cupy().empty((plan.words, rows), dtype=np.uint64), cupy().empty(rows, dtype=dtype)
    function = kernel("join_reduce", "write_pairs", **definitions)
    launch(function, blocks, THREADS, *shared, row_places, plan.words, keys, values, rows)
    return keys, values
