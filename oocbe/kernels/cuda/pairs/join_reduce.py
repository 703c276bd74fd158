"""Join and marginalisation in one step on the device: joined rows are never written.

First, rows that differ in the eliminated variables only are collected into runs (:mod:`oocbe.kernels.cuda.pairs.runs`):
one pass over each table. Groups, one assignment of the shared kept variables each, are found among the runs, by the
result's keys. Within a group an output row is a pair of an outer and an inner run with a common eliminated value, and
its value is computed in registers. Some lanes of a warp handle as many outer runs and the group's inner runs; the
number of lanes is the average number of inner runs of a group. One launch counts the output rows of each outer run, a
second one writes them to their final positions.

Up to eight eliminated values are stored densely, a run's values adjacent, so that a pair of runs takes a fixed number
of steps and no further memory access. For more values, pairs without a common value cost a test of two bit sets; with
more than 64 values, a merge of two lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import C_TYPES, Definition, kernel, launch
from oocbe.kernels.cuda.pairs.groups import find_partners, group_heads, starts_of
from oocbe.kernels.cuda.pairs.runs import find_runs
from oocbe.kernels.cuda.pairs.selection import SHORT_COUNTS, UNITS, find_tiles, summed
from oocbe.kernels.interface import EliminationPlan, MatchedGroups

THREADS = 256
"""Threads of a block, as in the source."""

DENSE_BITS = 3
"""Maximum bits of eliminated variables for dense values."""

LEAST_WIDTH, MOST_WIDTH = 4, 32
"""Minimum and maximum lanes of one unit."""


def join_reduce(
    outer: tuple[Any, Any],
    inner: tuple[Any, Any],
    groups: MatchedGroups | None,
    plan: EliminationPlan,
    combination: int,
    marginalisation: int,
    piece_rows: int | None = None,
) -> tuple[Any, Any]:
    """Join and marginalise; see :meth:`oocbe.kernels.interface.Backend.join_reduce`."""
    dtype = outer[1].dtype
    if not len(outer[1]) or not len(inner[1]):
        return cupy().empty((plan.words, 0), dtype=np.uint64), cupy().empty(0, dtype=dtype)
    set_bits = 32 if plan.eliminated_bits <= 5 else 64 if plan.eliminated_bits == 6 else 0
    dense = 1 << max(1, plan.eliminated_bits) if plan.eliminated_bits <= DENSE_BITS else 0
    shape = plan.words, set_bits, dense
    outer_heads, inner_heads = group_heads((outer[0], plan.outer_run), (inner[0], plan.inner_rank))
    outer_runs = find_runs(*outer, outer_heads, plan.outer_eliminated, plan.outer_move, *shape)
    inner_runs = find_runs(*inner, inner_heads, plan.inner_eliminated, plan.inner_move, *shape)
    kept = plan.kept
    outer_kept, inner_kept = (runs.keys[plan.words - len(kept) :] for runs in (outer_runs, inner_runs))
    heads = group_heads((outer_kept, kept), (inner_kept, kept))
    outer_starts, others = map(starts_of, heads)
    outer_counts, inner_starts, inner_counts = find_partners(outer_kept, outer_starts, inner_kept, others, kept)
    runs_a_group = inner_runs.heads.count / heads[1].count
    width = _width(runs_a_group)
    (units, segments), totals = summed(UNITS, (outer_counts, inner_counts, width), (outer_counts, inner_counts, 1))
    matched = (inner_starts, inner_counts, outer_starts, outer_counts, units, segments)
    unit_count, segment_count = totals.numbers().tolist()
    blocks = -(-unit_count * width // THREADS)
    tiles = find_tiles(units, THREADS // width, blocks)
    pointers = np.array([array.data.ptr for array in matched], dtype=np.uint64)  # the source's struct Groups
    shared = inner_runs.as_argument(), outer_runs.as_argument(), pointers, tiles, unit_count, width
    definitions: dict[str, Definition] = {
        "TURNS": _turns(runs_a_group, dense * dtype.itemsize), "DENSE": dense, "SET_BITS": set_bits,
        "VALUE": C_TYPES[dtype], "COMBINATION": int(combination), "MARGINALISATION": int(marginalisation),
    }  # fmt: skip
    counts = cupy().empty(segment_count, dtype=np.uint32)
    launch(kernel("join_reduce", "count_pairs", **definitions), blocks, THREADS, *shared, counts)
    (row_places,), total = summed(SHORT_COUNTS, (counts, counts, 1))
    rows = int(total.numbers()[0])
    keys, values = cupy().empty((plan.words, rows), dtype=np.uint64), cupy().empty(rows, dtype=dtype)
    function = kernel("join_reduce", "write_pairs", **definitions)
    launch(function, blocks, THREADS, *shared, row_places, plan.words, keys, values, rows)
    return keys, values


def _width(runs: float) -> int:
    """Lanes of a unit: the power of two that fits the average number of inner runs of a group."""
    return min(MOST_WIDTH, max(LEAST_WIDTH, 1 << (max(1, round(runs)) - 1).bit_length()))


def _turns(runs: float, record_bytes: int) -> int:
    """Inner runs that a lane holds in registers at a time: limited by the runs of a group and the registers."""
    return 1 if runs <= MOST_WIDTH else 4 if record_bytes <= 32 else 2
