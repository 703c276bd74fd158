"""Join of matched groups on the device: by gather, or with the marginalisation in one step, without joined rows.

The gather is algorithm 4 of Bistaffa, Bombieri and Farinelli 2016. In one step, adjacent rows that differ in the
eliminated variables only first become one entry, a run (:file:`runs.cu`): one pass over each table. Groups, one
assignment of the shared kept variables each, are found among the runs, by the result's keys. Within a group an output
row is a pair of an outer and an inner run with a common eliminated value, and its value is computed in registers. Some
lanes of a warp handle as many outer runs and the group's inner runs; the number of lanes is the average number of inner
runs of a group. One launch counts the output rows of each outer run, a second one writes them to their final positions.

Up to eight eliminated values are stored densely, a run's values adjacent, so that a pair of runs takes a fixed number
of steps and no further memory access. For more values, pairs without a common value cost a test of two bit sets; with
more than 64 values, a merge of two lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import C_TYPES, Definition, kernel, launch, or_null
from oocbe.kernels.cuda.packing.fields import packed_plans
from oocbe.kernels.cuda.pairs.groups import find_partners, group_heads, starts_of
from oocbe.kernels.cuda.pairs.selection import PRODUCTS, SHORT_COUNTS, UNITS, Marked, find_tiles, summed
from oocbe.kernels.cuda.pairs.sort import sort_rows
from oocbe.kernels.cuda.transfer.memory import with_retry
from oocbe.kernels.interface import EliminationPlan, MatchedGroups

PAIR_THREADS = 128
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
    launch(function, blocks, PAIR_THREADS, *table1, *table2, *matched, words, keys, values, rows)
    return keys, values


MOST_RUNS = 1 << 32
"""Limit of the number of runs: a thread keeps their numbers in registers, in 32 bits each."""


@dataclass(frozen=True)
class Runs:
    """One table's runs.

    heads : the first row of each run, marked. starts : int64 (runs + 1,); None for dense values.
    sets : uint32 or uint64 (runs,), a bit for each occurring eliminated value; None if these have too many bits.
    eliminated : uint64 (rows,), eliminated values in one word, ascending within a run; None if there are sets.
    values : (rows,), ascending by eliminated value within a run; or dense, (runs, number of eliminated values),
        undefined for absent eliminated values.
    keys : uint64 (result words, runs), the run's part of the result's key.
    """

    heads: Marked
    starts: Any | None
    sets: Any | None
    eliminated: Any | None
    values: Any
    keys: Any

    def as_argument(self) -> NDArray[np.uint64]:
        """The source's struct ``Side``; valid while this object is alive."""
        arrays = self.starts, self.sets, self.eliminated, self.values, self.keys
        return np.array([*(0 if a is None else a.data.ptr for a in arrays), self.heads.count], dtype=np.uint64)


def find_runs(
    keys: Any,
    values: Any,
    heads: Marked,
    eliminated: NDArray[np.int64],
    plan: NDArray[np.int64],
    words: int,
    set_bits: int,
    dense: int,
) -> Runs:
    """Runs of a table in which each run's rows are adjacent.

    heads : the first rows of the runs, which differ from the previous row in another bit than the eliminated ones.
    eliminated, plan : moves of the eliminated values into one word, and of the others into the result's key.
    set_bits : 32 or 64, the width of a set of eliminated values; 0: they are listed instead.
    dense : number of eliminated values, for dense values; 0: values are not rearranged.
    """
    rows = keys.shape[1]
    if heads.count >= MOST_RUNS:
        raise UnsupportedError(
            f"{heads.count:,} rows without the eliminated variables; the cuda backend takes 2^32 - 1"
        )
    starts = None if dense else cupy().empty(heads.count + 1, dtype=np.int64)
    made = cupy().empty((heads.count, dense), dtype=values.dtype) if dense else None
    run_keys = cupy().empty((words, heads.count), dtype=np.uint64)
    sets = cupy().zeros(heads.count, dtype=f"u{set_bits // 8}") if set_bits else None
    unsorted = None if dense else cupy().zeros(1, dtype=np.uint32)
    values_plan = packed_plans(eliminated)[0]
    blocks = -(-rows // _rows_a_block(dense * values.dtype.itemsize))
    payload = C_TYPES[np.dtype(f"u{values.dtype.itemsize}")]
    function = kernel("runs", "write_runs", SET_BITS=set_bits or 32, DENSE=dense, PAYLOAD=payload)
    for number, (moves, count) in enumerate(packed_plans(plan)):
        launch(
            function, blocks, THREADS,
            keys, values, rows, heads.bits, heads.before, heads.count, *values_plan, moves, count, int(number > 0),
            words, *map(or_null, (starts, sets, made)), run_keys, or_null(unsorted),
        )  # fmt: skip
    if dense:
        return Runs(heads, None, sets, None, made, run_keys)
    listed = None if set_bits else _listed(keys, heads, values_plan, unsorted)[0]
    if unsorted is not None and int(unsorted[0]):
        both = _listed(keys, heads, values_plan, unsorted)
        bits = int((eliminated[:, 2] + eliminated[:, 4]).max())
        both, values = sort_rows(both, values, [(0, 0, bits), (1, 0, heads.count.bit_length())])
        listed = None if set_bits else both[0]
    return Runs(heads, starts, sets, listed, values, run_keys)


def _rows_a_block(record_bytes: int) -> int:
    """Rows of a block of write_runs, as in the source."""
    return THREADS * (4 if record_bytes <= 16 else 2 if record_bytes <= 32 else 1)


def _listed(keys: Any, heads: Marked, plan: tuple[NDArray[np.void], int], unsorted: Any) -> Any:
    """Eliminated value and run of each row, uint64 (2, rows)."""
    out = cupy().empty((2, heads.rows), dtype=np.uint64)
    marks = heads.bits, heads.before
    blocks = -(-heads.rows // THREADS)
    function = kernel("runs", "read_eliminated", SET_BITS=32, DENSE=0, PAYLOAD=C_TYPES[np.dtype(np.uint32)])
    launch(function, blocks, THREADS, keys, heads.rows, *marks, *plan, out, unsorted)
    return out


THREADS = 256
"""Threads of a block, as in the source."""

DENSE_BITS = 3
"""Maximum bits of eliminated variables for dense values."""

LEAST_WIDTH, MOST_WIDTH = 4, 32
"""Minimum and maximum lanes of one unit."""


def join_reduce(
    tables: list[tuple[Any, Any]],
    groups: MatchedGroups | None,
    plan: EliminationPlan,
    combination: int,
    marginalisation: int,
    piece_rows: int | None = None,
) -> tuple[Any, Any]:
    """Join and marginalise; see :meth:`oocbe.kernels.interface.Backend.join_reduce`."""
    if not all(len(values) for _, values in tables):
        return cupy().empty((plan.words, 0), dtype=np.uint64), cupy().empty(0, dtype=tables[0][1].dtype)
    runs = MatchedRuns.of(tables, plan)
    tables.clear()
    return runs.joined(combination, marginalisation)


@dataclass(frozen=True)
class MatchedRuns:
    """Runs of two tables, and for each group of outer runs the inner runs that they meet.

    outer_starts : int64 (groups + 1,), the first run of each group. outer_counts, inner_starts, inner_counts : int64
        (groups,), runs of a group; no inner ones where the inner table does not have the group.
    inner_groups : groups of the inner table.
    """

    outer: Runs
    inner: Runs
    outer_starts: Any
    outer_counts: Any
    inner_starts: Any
    inner_counts: Any
    inner_groups: int
    plan: EliminationPlan

    @classmethod
    def of(cls, tables: Sequence[tuple[Any, Any]], plan: EliminationPlan) -> MatchedRuns:
        """Of the keys and values of two tables with rows, sorted as :class:`EliminationPlan` says."""
        masks = plan.outer_run, plan.inner_rank
        heads = with_retry(group_heads)(*((keys, mask) for (keys, _), mask in zip(tables, masks, strict=True)))
        moves = (plan.outer_eliminated, plan.outer_move), (plan.inner_eliminated, plan.inner_move)
        outer, inner = (
            with_retry(find_runs)(*table, marked, *move, plan.words, _set_bits(plan), _dense(plan))
            for table, marked, move in zip(tables, heads, moves, strict=True)
        )
        return with_retry(cls._matched)(outer, inner, plan)

    @classmethod
    def _matched(cls, outer: Runs, inner: Runs, plan: EliminationPlan) -> MatchedRuns:
        kept = plan.kept
        outer_kept, inner_kept = (runs.keys[plan.words - len(kept) :] for runs in (outer, inner))
        heads = group_heads((outer_kept, kept), (inner_kept, kept))
        starts, others = map(starts_of, heads)
        counts, inner_starts, inner_counts = find_partners(outer_kept, starts, inner_kept, others, kept)
        return cls(outer, inner, starts, counts, inner_starts, inner_counts, heads[1].count, plan)

    @with_retry
    def equal_rows(self) -> float:
        """See :func:`equal_rows`; 0 if sets replace the merges."""
        outer, inner = self.outer.starts, self.inner.starts
        if outer is None or inner is None or not has_merges(self.plan):
            return 0
        rows, inner_stops = outer[self.outer_starts], self.inner_starts + self.inner_counts
        inner_rows = inner[inner_stops] - inner[self.inner_starts]
        return equal_rows(rows[1:] - rows[:-1], self.outer_counts, inner_rows, self.inner_counts)

    def joined(self, combination: int, marginalisation: int) -> tuple[Any, Any]:
        """The result's keys and values, a row for each pair of runs with a common eliminated value."""
        return with_retry(self._joined)(int(combination), int(marginalisation))

    def _joined(self, combination: int, marginalisation: int) -> tuple[Any, Any]:
        plan, dtype, dense = self.plan, self.outer.values.dtype, _dense(self.plan)
        runs_a_group = self.inner.heads.count / self.inner_groups
        width = _width(runs_a_group)
        counts = self.outer_counts, self.inner_counts
        (units, segments), totals = summed(UNITS, (*counts, width), (*counts, 1))
        matched = (self.inner_starts, self.inner_counts, self.outer_starts, self.outer_counts, units, segments)
        unit_count, segment_count = totals.numbers().tolist()
        blocks = -(-unit_count * width // THREADS)
        tiles = find_tiles(units, THREADS // width, blocks)
        pointers = np.array([array.data.ptr for array in matched], dtype=np.uint64)  # the source's struct Groups
        shared = self.inner.as_argument(), self.outer.as_argument(), pointers, tiles, unit_count, width
        definitions: dict[str, Definition] = {
            "TURNS": _turns(runs_a_group, dense * dtype.itemsize), "DENSE": dense, "SET_BITS": _set_bits(plan),
            "VALUE": C_TYPES[dtype], "COMBINATION": combination, "MARGINALISATION": marginalisation,
        }  # fmt: skip
        pairs = cupy().empty(segment_count, dtype=np.uint32)
        launch(kernel("join_reduce", "count_pairs", **definitions), blocks, THREADS, *shared, pairs)
        (row_places,), total = summed(SHORT_COUNTS, (pairs, pairs, 1))
        rows = int(total.numbers()[0])
        keys, values = cupy().empty((plan.words, rows), dtype=np.uint64), cupy().empty(rows, dtype=dtype)
        function = kernel("join_reduce", "write_pairs", **definitions)
        launch(function, blocks, THREADS, *shared, row_places, plan.words, keys, values, rows)
        return keys, values


STEPS_A_ROW, ROWS_A_LONE_STEP = 24, 200
"""Steps of merges that take as long as a joined row, made and reduced, where all lanes merge; and joined rows in the
time of one step where a lane merges alone, each step waiting for memory (0.3 to 0.5 us on an H200)."""

CHUNK = 512
"""Inner runs that a lane meets, at most, as in the source."""


@with_retry
def equal_rows(rows: Any, runs: Any, other_rows: Any, other_runs: Any) -> float:
    """Joined rows that are made and reduced in the time in which each run of a group is merged with each other one.

    Arguments: rows and runs of each group of either table, int64 (groups,) each. A few large groups keep few lanes
    busy; that time is the longest lane's.
    """
    xp = cupy()
    steps = (rows * other_runs.astype(np.float64) + other_rows * runs.astype(np.float64)).sum()
    lengths = rows / xp.maximum(runs, 1) + other_rows / xp.maximum(other_runs, 1)
    lane = (xp.minimum(other_runs, CHUNK) * lengths).max() if len(rows) else 0  # 0: no group is in both tables
    return float(xp.maximum(steps / STEPS_A_ROW, lane * ROWS_A_LONE_STEP))


def has_merges(plan: EliminationPlan) -> bool:
    """Whether pairs of runs are merged: eliminated values are too many for sets."""
    return not _set_bits(plan)


def _set_bits(plan: EliminationPlan) -> int:
    """Bits of a set of eliminated values; 0: they are listed."""
    return 32 if plan.eliminated_bits <= 5 else 64 if plan.eliminated_bits == 6 else 0


def _dense(plan: EliminationPlan) -> int:
    """Eliminated values of a run with dense values; 0: values are not dense."""
    return 1 << max(1, plan.eliminated_bits) if plan.eliminated_bits <= DENSE_BITS else 0


def _width(runs: float) -> int:
    """Lanes of a unit: the power of two that fits the average number of inner runs of a group."""
    return min(MOST_WIDTH, max(LEAST_WIDTH, 1 << (max(1, round(runs)) - 1).bit_length()))


def _turns(runs: float, record_bytes: int) -> int:
    """Inner runs that a lane holds in registers at a time: limited by the runs of a group and the registers."""
    return 1 if runs <= MOST_WIDTH else 4 if record_bytes <= 32 else 2
