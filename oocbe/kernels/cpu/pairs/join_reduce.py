"""Join and marginalisation of groups of rows, apart or in one step: then joined rows are never written.

Apart they are algorithms 4 and 5 of Bistaffa, Bombieri and Farinelli (2016). In one step, within a group (one
assignment of the shared kept variables) the result is a matrix product in the semiring: rows are the outer table's own
variables, columns the inner table's, and the eliminated variables are the inner dimension. Gustavson's row-wise scheme
(1978) suits sparse operands: for each outer assignment, the inner rows with the same eliminated values are marginalised
into an array with one entry a column.

For a group, inner rows are first distributed into buckets by eliminated value (a small hash table, or a direct index
for few bits), each row with the rank of its column. The group stays in the first or second cache meanwhile. The first
pass counts the result's rows, the second one writes them to their final places: this is cheaper than allocation for the
worst case, and pieces can run in any order on any number of threads.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.packing.fields import moved_word
from oocbe.kernels.cpu.pairs.groups import differs
from oocbe.kernels.cpu.threads import row_ranges, run_all
from oocbe.kernels.cpu.values import ADD, MAX, MIN, accumulate, combine, neutral_value
from oocbe.kernels.interface import EliminationPlan, MatchedGroups


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


DIRECT_BITS = 10
"""Most bits of eliminated values that index the bucket table; 1,024 entries stay in the first-level cache."""

MASK_RANKS = 64
"""Maximum number of columns for a bit mask of occurring columns; the first pass then needs no values."""

BLOCK = 1024
"""Outer rows whose eliminated values and run starts are read at a time, in vectorised loops."""

PIECES_A_THREAD = 8
"""Pieces per thread: balances groups of unequal work; a piece that starts inside a group prepares the group again."""

LARGE_GROUP = 1 << 16
"""Minimum inner rows of a group for one piece per thread: repeated preparation would cost more than balance saves. A
thread's buffers take some 70 bytes a row of the largest inner group."""


def join_reduce(
    tables: list[tuple[NDArray[np.uint64], NDArray[Any]]],
    groups: MatchedGroups | None,
    plan: EliminationPlan,
    combination: int,
    marginalisation: int,
    piece_rows: int | None = None,
) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Join and marginalise; see :meth:`oocbe.kernels.interface.Backend.join_reduce`."""
    assert groups is not None
    outer, inner = tables
    keys, values = outer
    largest = int(groups.counts2.max()) if len(groups.counts2) else 0
    direct = plan.eliminated_bits <= DIRECT_BITS
    table_bits = plan.eliminated_bits if direct else max(1, (2 * largest - 1).bit_length())
    # No piece has fewer rows than the largest group, which it might prepare for them again.
    most = None if piece_rows is None else max(piece_rows, largest)
    ranges = row_ranges(keys.shape[1], most, PIECES_A_THREAD if largest < LARGE_GROUP else 1)
    pieces = _run_aligned(keys, plan.outer_run, ranges)
    shared = (
        *outer, *inner, groups.starts1, groups.counts1, groups.starts2, groups.counts2, largest, table_bits, direct,
        plan.outer_eliminated, plan.inner_eliminated, plan.outer_run, plan.inner_rank, plan.outer_move, plan.inner_move,
        int(combination), int(marginalisation), neutral_value(marginalisation, values.dtype),  # plain, as for join_rows
    )  # fmt: skip
    no_keys, no_values = np.empty((plan.words, 0), dtype=np.uint64), np.empty(0, dtype=values.dtype)
    counts = run_all(_join_reduce, [(*shared, no_keys, no_values, False, 0, *piece) for piece in pieces])
    places = np.concatenate(([0], np.cumsum(counts)))
    rows = int(places[-1])
    out_keys, out_values = np.empty((plan.words, rows), dtype=np.uint64), np.empty(rows, dtype=values.dtype)
    run_all(
        _join_reduce, [(*shared, out_keys, out_values, True, int(places[i]), *piece) for i, piece in enumerate(pieces)]
    )
    return out_keys, out_values


def _run_aligned(
    keys: NDArray[np.uint64], masks: NDArray[np.uint64], ranges: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The ranges, bounds moved forward to the next start of a run, without empty ones (unless there is no other)."""
    bounds = [0]
    for _, stop in ranges:
        if stop > bounds[-1]:  # else within the last run
            bounds.append(_next_run(keys, masks, stop))
    return list(pairwise(bounds)) or [(0, 0)]


@jit
def _next_run(keys: NDArray[np.uint64], masks: NDArray[np.uint64], row: int) -> int:
    while 0 < row < keys.shape[1] and not differs(keys, masks, row, row - 1):
        row += 1
    return row


@helper
def _slot(
    value: np.uint64,
    slot_value: NDArray[np.uint64],
    slot_bucket: NDArray[np.int32],
    table_bits: int,
    direct: bool,
    last_slot: np.uint64,
) -> np.uint64:
    """Slot of an eliminated value in the bucket table, existing or new (linear probing, Fibonacci hashing)."""
    if direct:
        return value
    slot = (value * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - table_bits)
    while slot_bucket[slot] >= 0 and slot_value[slot] != value:
        slot = (slot + np.uint64(1)) & last_slot
    return slot


@helper
def _read_values(
    keys: NDArray[np.uint64], plan: NDArray[np.int64], start: int, count: int, out: NDArray[np.uint64]
) -> None:
    """Eliminated values of some rows, in one word each."""
    out[:count] = np.uint64(0)
    for move in range(plan.shape[0]):
        shift, back = np.uint64(plan[move, 1]), np.uint64(plan[move, 4])
        mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - plan[move, 2])
        source = keys[plan[move, 0], start : start + count]
        for i in range(count):
            out[i] |= ((source[i] >> shift) & mask) << back


@helper
def _read_changes(
    keys: NDArray[np.uint64], masks: NDArray[np.uint64], start: int, count: int, out: NDArray[np.bool_]
) -> None:
    """Whether each row differs from the previous one in the masked bits (True for the table's first row)."""
    skip = 1 if start == 0 else 0
    out[:skip] = True
    out[skip:count] = False
    for word in range(masks.shape[0]):
        here = keys[word, start + skip : start + count]
        before = keys[word, start + skip - 1 : start + count - 1]
        for i in range(count - skip):
            out[i + skip] |= (here[i] ^ before[i]) & masks[word] != 0


@helper
def _accumulate_bucket(
    held: NDArray[Any],
    ranks: NDArray[np.uint32],
    values: NDArray[Any],
    low: int,
    high: int,
    factor: Any,
    combination: int,
    marginalisation: int,
) -> None:
    """Marginalise the products of one outer value and a bucket's values into the entries of their ranks."""
    # The two semirings of optimisation have branch-free loops, in half the time of the general one.
    if combination == ADD and marginalisation == MAX:
        for i in range(low, high):
            held[ranks[i]] = max(held[ranks[i]], factor + values[i])
    elif combination == ADD and marginalisation == MIN:
        for i in range(low, high):
            held[ranks[i]] = min(held[ranks[i]], factor + values[i])
    else:
        for i in range(low, high):
            accumulate(held, ranks[i], combine(factor, values[i], combination), marginalisation)


@helper
def _ones(bits: np.uint64) -> int:
    """Number of ones (Warren, Hacker's Delight, section 5-1)."""
    bits -= (bits >> np.uint64(1)) & np.uint64(0x5555555555555555)
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    ones: int = np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))  # type: ignore[assignment]
    return ones


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
    neutral: Any,
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
    slot_bucket = np.full(1 << table_bits, -1, dtype=np.int32)
    inner_value, inner_new = np.empty(largest, dtype=np.uint64), np.empty(largest, dtype=np.bool_)
    outer_value, outer_new = np.empty(BLOCK, dtype=np.uint64), np.empty(BLOCK, dtype=np.bool_)
    row_bucket, row_rank = np.empty(largest, dtype=np.int32), np.empty(largest, dtype=np.int32)
    bucket_slot, bucket_mask = np.empty(largest, dtype=np.uint64), np.empty(largest, dtype=np.uint64)
    bucket_end = np.empty(largest, dtype=np.int64)
    bucket_ranks, bucket_values = np.empty(largest, dtype=np.uint32), np.empty(largest, dtype=inner_values.dtype)
    rank_keys = np.empty((out_keys.shape[0], largest), dtype=np.uint64)
    held = np.full(largest, neutral, dtype=outer_values.dtype)
    touched, seen = np.empty(largest, dtype=np.uint32), np.zeros(largest, dtype=np.bool_)
    fixed = np.empty(out_keys.shape[0], dtype=np.uint64)
    block_start = block_stop = first
    group = int(np.searchsorted(outer_starts, first, side="right"))
    group -= group > 0
    while group < len(outer_starts) and outer_starts[group] < last:
        row = max(first, outer_starts[group])
        end = min(last, outer_starts[group] + outer_counts[group])
        if row >= end:
            group += 1
            continue

        # Buckets by eliminated value; ranks by the inner table's own variables, its sort order.
        start, count = inner_starts[group], inner_counts[group]
        _read_values(inner_keys, inner_eliminated, start, count, inner_value)
        _read_changes(inner_keys, inner_rank, start, count, inner_new)
        inner_new[0] = True
        buckets, ranks = 0, 0
        for i in range(count):
            if inner_new[i]:
                if fill:
                    for word in range(rank_keys.shape[0]):
                        rank_keys[word, ranks] = moved_word(inner_keys, start + i, inner_move, word)
                ranks += 1
            slot = _slot(inner_value[i], slot_value, slot_bucket, table_bits, direct, last_slot)
            bucket = slot_bucket[slot]
            if bucket < 0:
                bucket = buckets
                slot_value[slot], slot_bucket[slot], bucket_slot[bucket] = inner_value[i], bucket, slot
                bucket_end[bucket], bucket_mask[bucket] = 0, 0
                buckets += 1
            row_bucket[i], row_rank[i] = bucket, ranks - 1
            bucket_end[bucket] += 1
            bucket_mask[bucket] |= one << np.uint64((ranks - 1) & 63)
        if fill or ranks > MASK_RANKS:
            total = 0
            for bucket in range(buckets):
                total, bucket_end[bucket] = total + bucket_end[bucket], total
            for i in range(count):
                target = bucket_end[row_bucket[i]]
                bucket_end[row_bucket[i]] = target + 1
                bucket_ranks[target], bucket_values[target] = row_rank[i], inner_values[start + i]
            # bucket_end[b] is now the end of bucket b and the start of bucket b + 1.

        while row < end:
            run, matches, touches, present = row, 0, 0, np.uint64(0)
            while row < end:
                if row >= block_stop:
                    block_start, block_stop = row, min(row + BLOCK, last)
                    _read_values(outer_keys, outer_eliminated, row, block_stop - row, outer_value)
                    _read_changes(outer_keys, outer_run, row, block_stop - row, outer_new)
                if outer_new[row - block_start] and row > run:
                    break
                slot = _slot(outer_value[row - block_start], slot_value, slot_bucket, table_bits, direct, last_slot)
                row += 1
                bucket = slot_bucket[slot]
                if bucket < 0:
                    continue
                matches += 1
                present |= bucket_mask[bucket]
                if ranks <= MASK_RANKS and not fill:
                    continue
                low = bucket_end[bucket - 1] if bucket > 0 else 0
                factor = outer_values[row - 1]
                _accumulate_bucket(
                    held, bucket_ranks, bucket_values, low, bucket_end[bucket], factor, combination, marginalisation
                )
                if ranks > MASK_RANKS:
                    for i in range(low, bucket_end[bucket]):
                        rank = bucket_ranks[i]
                        if not seen[rank]:
                            seen[rank], touched[touches] = True, rank
                            touches += 1
            if ranks <= MASK_RANKS and not fill:
                place += _ones(present)
                continue
            if ranks <= MASK_RANKS:
                for rank in range(ranks):
                    touched[touches] = rank
                    touches += (present >> np.uint64(rank)) & one != 0
            elif matches > 1 and touches * 8 < ranks:
                touched[:touches].sort()
            elif matches > 1:
                touches = 0
                for rank in range(ranks):
                    touched[touches] = rank
                    touches += seen[rank]
            if fill:
                for word in range(fixed.shape[0]):
                    fixed[word] = moved_word(outer_keys, run, outer_move, word)
                for word in range(fixed.shape[0]):
                    for i in range(touches):
                        out_keys[word, place + i] = fixed[word] | rank_keys[word, touched[i]]
                for i in range(touches):
                    out_values[place + i] = held[touched[i]]
            for i in range(touches):
                held[touched[i]], seen[touched[i]] = neutral, False
            place += touches
        for bucket in range(buckets):
            slot_bucket[bucket_slot[bucket]] = -1
        group += 1
    return place
