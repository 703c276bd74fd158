"""Join and marginalise at once: no joined row is ever written.

Within a group (one assignment of the shared variables that stay) the result is a matrix product in the semiring: rows
are the outer table's own variables, columns the inner table's, and the eliminated variables run over the inner
dimension. Gustavson's row-wise scheme (1978) fits sparse operands: for one outer assignment after the other, the inner
rows that agree on the eliminated variables are marginalised into an array with one place a column.

For a group, inner rows are first put into buckets by the eliminated variables' values (a small hash table from value to
bucket, direct where the values have few bits), each row with the rank of its column. The group stays in the first
or second cache meanwhile. The first pass counts the result's rows, the second one writes them to their final places:
that costs less than allocating for the worst case, and pieces can run in any order on any number of threads.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.fields import moved_word
from oocbe.kernels.cpu.groups import differs
from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.threads import row_ranges, run_all
from oocbe.kernels.cpu.values import accumulate, combine
from oocbe.kernels.interface import EliminationPlan, MatchedGroups

DIRECT_BITS = 10
"""Eliminated values of up to this many bits index the bucket table themselves; 1,024 entries stay in first cache."""

PIECES_A_THREAD = 8
"""Enough to even out groups of unequal work; a piece that starts inside a group prepares the group once more."""


def join_reduce(
    outer: tuple[NDArray[np.uint64], NDArray[Any]],
    inner: tuple[NDArray[np.uint64], NDArray[Any]],
    groups: MatchedGroups,
    plan: EliminationPlan,
    combination: int,
    marginalisation: int,
    piece_rows: int | None = None,
) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Join and marginalise; see :meth:`oocbe.kernels.interface.Backend.join_reduce`."""
    keys, values = outer
    largest = int(groups.counts2.max()) if len(groups.counts2) else 0
    direct = plan.eliminated_bits <= DIRECT_BITS
    table_bits = plan.eliminated_bits if direct else max(1, (2 * largest - 1).bit_length())
    pieces = _run_aligned(keys, plan.outer_run, row_ranges(keys.shape[1], piece_rows, PIECES_A_THREAD))
    shared = (
        *outer, *inner, groups.starts1, groups.counts1, groups.starts2, groups.counts2, largest, table_bits, direct,
        plan.outer_eliminated, plan.inner_eliminated, plan.outer_run, plan.inner_rank, plan.outer_move, plan.inner_move,
        combination, marginalisation,
    )  # fmt: skip
    no_keys, no_values = np.empty((plan.words, 0), dtype=np.uint64), np.empty(0, dtype=values.dtype)
    counts = run_all(_join_reduce, [(*shared, no_keys, no_values, False, 0, *piece) for piece in pieces])
    places = np.concatenate(([0], np.cumsum(counts)))
    rows = int(places[-1])
    out_keys, out_values = np.empty((plan.words, rows), dtype=np.uint64), np.empty(rows, dtype=values.dtype)
    run_all(
        _join_reduce,
        [(*shared, out_keys, out_values, True, int(places[i]), *piece) for i, piece in enumerate(pieces)],
    )
    return out_keys, out_values


def _run_aligned(
    keys: NDArray[np.uint64], masks: NDArray[np.uint64], ranges: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The ranges with their bounds moved on to where the next run starts; empty ones left out (but for the last)."""
    bounds = [0, *(_next_run(keys, masks, stop) for _, stop in ranges)]
    pieces = [(a, b) for a, b in pairwise(bounds) if b > a]
    return pieces or [(0, 0)]


@jit
def _next_run(keys: NDArray[np.uint64], masks: NDArray[np.uint64], row: int) -> int:
    while 0 < row < keys.shape[1] and not differs(keys, masks, row, row - 1):
        row += 1
    return row


@jit
def _home(value: np.uint64, table_bits: int, direct: bool) -> np.uint64:
    """Place in the bucket table where the search for an eliminated value starts (Fibonacci hashing)."""
    if direct:
        return value
    return (value * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - table_bits)


@jit
def _join_reduce(
    outer_keys: NDArray[np.uint64],
    outer_values: NDArray[Any],
    inner_keys: NDArray[np.uint64],
    inner_values: NDArray[Any],
    outer_starts: NDArray[np.int64],
    outer_counts: NDArray[np.int64],
    inner_starts: NDArray[np.int64],
    inner_counts: NDArray[np.int64],
    largest: int,
    table_bits: int,
    direct: bool,
    outer_eliminated: NDArray[np.int64],
    inner_eliminated: NDArray[np.int64],
    outer_run: NDArray[np.uint64],
    inner_rank: NDArray[np.uint64],
    outer_move: NDArray[np.int64],
    inner_move: NDArray[np.int64],
    combination: int,
    marginalisation: int,
    out_keys: NDArray[np.uint64],
    out_values: NDArray[Any],
    fill: bool,
    place: int,
    first: int,
    last: int,
) -> int:
    one = np.uint64(1)
    last_slot = (one << np.uint64(table_bits)) - one
    slot_value = np.zeros(1 << table_bits, dtype=np.uint64)
    slot_group = np.full(1 << table_bits, -1, dtype=np.int64)
    slot_bucket = np.zeros(1 << table_bits, dtype=np.int32)
    row_bucket = np.empty(largest, dtype=np.int32)
    row_rank = np.empty(largest, dtype=np.int32)
    bucket_end = np.empty(largest + 1, dtype=np.int64)
    bucket_ranks = np.empty(largest, dtype=np.int32)
    bucket_values = np.empty(largest, dtype=inner_values.dtype)
    bucket_mask = np.zeros(largest, dtype=np.uint64)
    rank_keys = np.empty((largest, out_keys.shape[0]), dtype=np.uint64)
    held = np.empty(largest, dtype=outer_values.dtype)
    seen = np.full(largest, -1, dtype=np.int64)
    touched = np.empty(largest, dtype=np.int32)
    fixed = np.empty(out_keys.shape[0], dtype=np.uint64)
    group = int(np.searchsorted(outer_starts, first, side="right"))
    group -= group > 0
    while group < len(outer_starts) and outer_starts[group] < last:
        row = max(first, outer_starts[group])
        end = min(last, outer_starts[group] + outer_counts[group])
        if row >= end:
            group += 1
            continue

        # Buckets by eliminated value, ranks by the inner table's own variables (which its rows are sorted by).
        start, count = inner_starts[group], inner_counts[group]
        buckets, ranks = 0, 0
        for i in range(count):
            inner_row = start + i
            if i == 0 or differs(inner_keys, inner_rank, inner_row, inner_row - 1):
                if fill:
                    for word in range(rank_keys.shape[1]):
                        rank_keys[ranks, word] = moved_word(inner_keys, inner_row, inner_move, word)
                ranks += 1
            value = moved_word(inner_keys, inner_row, inner_eliminated, 0)
            slot = _home(value, table_bits, direct)
            while slot_group[slot] == group and slot_value[slot] != value:
                slot = (slot + one) & last_slot
            if slot_group[slot] != group:
                slot_group[slot], slot_value[slot], slot_bucket[slot] = group, value, buckets
                bucket_end[buckets], bucket_mask[buckets] = 0, 0
                buckets += 1
            bucket = slot_bucket[slot]
            row_bucket[i], row_rank[i] = bucket, ranks - 1
            bucket_end[bucket] += 1
            bucket_mask[bucket] |= one << np.uint64((ranks - 1) & 63)
        total = 0
        for bucket in range(buckets):
            total, bucket_end[bucket] = total + bucket_end[bucket], total
        for i in range(count):
            target = bucket_end[row_bucket[i]]
            bucket_end[row_bucket[i]] = target + 1
            bucket_ranks[target] = row_rank[i]
            bucket_values[target] = inner_values[start + i]
        # bucket_end[b] is now the end of bucket b, and the end of b - 1 its start.

        while row < end:
            run = row
            matches, touches, present = 0, 0, np.uint64(0)
            while row < end and (row == run or not differs(outer_keys, outer_run, row, run)):
                value = moved_word(outer_keys, row, outer_eliminated, 0)
                slot = _home(value, table_bits, direct)
                while slot_group[slot] == group and slot_value[slot] != value:
                    slot = (slot + one) & last_slot
                row += 1
                if slot_group[slot] != group:
                    continue
                bucket = slot_bucket[slot]
                matches += 1
                if ranks <= 64 and not fill:
                    present |= bucket_mask[bucket]
                    continue
                low = bucket_end[bucket - 1] if bucket > 0 else 0
                factor = outer_values[row - 1]
                for i in range(low, bucket_end[bucket]):
                    rank = bucket_ranks[i]
                    joined = combine(factor, bucket_values[i], combination)
                    if seen[rank] == run:
                        accumulate(held, rank, joined, marginalisation)
                    else:
                        seen[rank], held[rank], touched[touches] = run, joined, rank
                        touches += 1
            if matches == 0:
                continue
            if not fill:
                if ranks <= 64:
                    while present:
                        present &= present - one
                        place += 1
                else:
                    place += touches
                continue
            for word in range(fixed.shape[0]):
                fixed[word] = moved_word(outer_keys, run, outer_move, word)
            # Ascending ranks: a single bucket has them so; else sort the few touched ones, or look at all.
            if matches > 1 and touches * 8 < ranks:
                touched[:touches].sort()
            elif matches > 1:
                touches = 0
                for rank in range(ranks):
                    touched[touches] = rank
                    touches += seen[rank] == run
            for i in range(touches):
                rank = touched[i]
                for word in range(fixed.shape[0]):
                    out_keys[word, place] = fixed[word] | rank_keys[rank, word]
                out_values[place] = held[rank]
                place += 1
        group += 1
    return place
