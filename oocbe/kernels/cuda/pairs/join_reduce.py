"""Join and marginalisation in one step on the device: joined rows are never written.

First, rows that differ in the eliminated variables only are collected into runs (:mod:`oocbe.kernels.cuda.pairs.runs`):
one pass over each table. Within a group (one assignment of the shared kept variables) an output row is a pair of an
outer and an inner run with a common eliminated value, and its value is computed in registers. Some lanes of a warp
handle as many outer runs and the group's inner runs; the number of lanes is the average number of inner runs of a
group. One launch counts the output rows of each outer run, a second one writes them to their final positions.

Up to eight eliminated values are stored densely, a run's values adjacent, so that a pair of runs takes a fixed number
of steps and no further memory access. For more values, pairs without a common value cost a test of two bit sets; with
more than 64 values, a merge of two lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import C_TYPES, Definition, kernel, launch
from oocbe.kernels.cuda.pairs.groups import group_heads
from oocbe.kernels.cuda.pairs.runs import find_runs
from oocbe.kernels.cuda.pairs.selection import SEGMENTS, SHORT_COUNTS, UNITS, find_tiles, prefix_sum
from oocbe.kernels.cuda.transfer.readback import last_entries
from oocbe.kernels.interface import EliminationPlan, MatchedGroups

THREADS = 256
"""Threads of a block, as in the source."""

DENSE_BITS = 3
"""Maximum bits of eliminated variables for dense values."""

LEAST_WIDTH, MOST_WIDTH = 4, 32
"""Minimum and maximum lanes of one unit."""

GROUPS = np.dtype(
    [
        (name, np.uint64)
        for name in ("inner_starts", "inner_counts", "outer_starts", "outer_counts", "units", "segments")
    ]
)
"""The source's struct of the groups' arrays."""


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
    dense = 1 << max(1, plan.eliminated_bits) if plan.eliminated_bits <= DENSE_BITS else 0
    shape = plan.words, set_bits, dense
    outer_heads, inner_heads = group_heads((outer[0], plan.outer_run), (inner[0], plan.inner_rank))
    outer_runs = find_runs(*outer, outer_heads, plan.outer_eliminated, plan.outer_move, *shape)
    inner_runs = find_runs(*inner, inner_heads, plan.inner_eliminated, plan.inner_move, *shape)
    outer_starts, outer_counts = outer_runs.groups(groups.starts1, groups.counts1)
    inner_starts, inner_counts = inner_runs.groups(groups.starts2, groups.counts2)
    runs_a_group = inner_runs.heads.count / len(groups.starts2)
    width = _width(runs_a_group)
    units = prefix_sum(UNITS, outer_counts, inner_counts, width)
    segments = prefix_sum(SEGMENTS, outer_counts, inner_counts)
    matched = (inner_starts, inner_counts, outer_starts, outer_counts, units, segments)
    unit_count, segment_count = last_entries(units, segments)
    blocks = -(-unit_count * width // THREADS)
    tiles = find_tiles(units, THREADS // width, blocks)
    shared = inner_runs.as_argument(), outer_runs.as_argument(), _pointers(matched), tiles, unit_count, width
    definitions: dict[str, Definition] = {
        "TURNS": _turns(runs_a_group, dense * dtype.itemsize), "DENSE": dense, "SET_BITS": set_bits,
        "VALUE": C_TYPES[dtype], "COMBINATION": int(combination), "MARGINALISATION": int(marginalisation),
    }  # fmt: skip
    counts = cupy().empty(segment_count, dtype=np.uint32)
    launch(kernel("join_reduce", "count_pairs", **definitions), blocks, THREADS, *shared, counts)
    row_places = prefix_sum(SHORT_COUNTS, counts)
    rows = last_entries(row_places)[0]
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


def _pointers(arrays: tuple[Any, ...]) -> NDArray[np.void]:
    """The kernels' struct; valid while the arrays are alive."""
    return np.array([tuple(a.data.ptr for a in arrays)], dtype=GROUPS)
