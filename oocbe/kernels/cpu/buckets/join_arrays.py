"""The flat arrays of a bucket as named tuples, arguments of its join on the CPU and on the device; merged lookups.

:mod:`oocbe.kernels.cpu.buckets.bucket_join` defines runs, levels and leaves. Numba takes these tuples directly.
``oocbe/kernels/cuda/buckets/bucket_join.cu`` has structs of the same names for lookups, leaves and bounds, with the
fields that it uses; :mod:`oocbe.kernels.cuda.modules` fills them by name, and a test compares them.

Lists of lists are concatenated: those of i are start[i] to start[i + 1] - 1. Unless stated otherwise, arrays of indices
are int64, and arrays of key bits are uint64.

A *packed* function or constraint is a dense array with ``2 ** bits`` entries, indexed by the concatenated bit fields of
its scope (the variable eliminated first lowest). Entries for unused codes are forbidden, or one. The merge of several
over the union of their scopes replaces many lookups by one; the cost of a row in the join is its number of lookups.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit


class TrieArrays(NamedTuple):
    """The keys of the tables to join, concatenated, and prices of their rows; independent of the dtype of values.

    keys : each table's key words, (words, rows) flat.
    key_base, rows, row_base : (tables,), start of each one's keys, its number of rows, and that of the tables before.
    least : (tables,), minimum of each table's prices, in the dtype of the bounds.
    priced, narrow : (all rows,), price of each row's value and consumption in ``price_scale``: the values themselves
        without consumption. In the dtype of the bounds, or int32 in ``narrow``; the other one is empty. Both are empty
        without pruning.
    price_scale : factor of prices for comparisons with bounds.
    """

    keys: NDArray[np.uint64]
    key_base: NDArray[np.int64]
    rows: NDArray[np.int64]
    row_base: NDArray[np.int64]
    least: NDArray[Any]
    priced: NDArray[Any]
    narrow: NDArray[np.int32]
    price_scale: Any


class TableArrays(NamedTuple):
    """The tables to join, concatenated, as the leaves read them.

    keys : each table's key words, (words, rows) flat. values : of each row.
    key_base, value_base : (tables,), start of each one's keys and values.
    limbs : (tables,), values that each row has: 1, or the limbs of its count (:mod:`oocbe.tables.numbers`).
    """

    keys: NDArray[np.uint64]
    values: NDArray[Any]
    key_base: NDArray[np.int64]
    value_base: NDArray[np.int64]
    limbs: NDArray[np.int64]


class RunArrays(NamedTuple):
    """The runs of the separator, one a level, the most significant first; and the tables in each.

    word, shift, mask : (levels,), the run's bit field in the separator's key.
    size : (levels,), values of a run that no table contains; 0 for other runs.
    part_start : (levels + 1,), the parts of each level, one for each of its tables.
    part_table, part_word, part_shift : (parts,), the table, and position of the run's field in its key.
    """

    word: NDArray[np.int64]
    shift: NDArray[np.uint64]
    mask: NDArray[np.uint64]
    size: NDArray[np.int64]
    part_start: NDArray[np.int64]
    part_table: NDArray[np.int64]
    part_word: NDArray[np.int64]
    part_shift: NDArray[np.uint64]


class LookupArrays(NamedTuple):
    """The lookups of a walk: bit sets of constraints by level; then masks and functions at the leaves.

    level_start : (levels + 3,), the lookups of each level, then the masks, then the functions.
    segment_start : (lookups + 1,), the segments of each lookup: fields of the key that form its index.
    segment_middle : (bit sets,), segments before it read the level's own run, the others the runs above.
    segment_word, segment_shift, segment_mask, segment_place : (segments,), a bit field of the separator's key, and its
        position in the index.
    base : (lookups,), start of each one's entries: words of ``bits``, or of the leaf's masks or values.
    own_bits : (bit sets,), index bits from the level's own run.
    free_base : (bit sets,), first bit of each one in ``free``.
    bits : the bit sets, concatenated: 1 if permitted. An enumerating run has a set of values for each index.
    free : a bit for each index from the runs above, 1 if all entries below it are permitted.
    """

    level_start: NDArray[np.int64]
    segment_start: NDArray[np.int64]
    segment_middle: NDArray[np.int64]
    segment_word: NDArray[np.int64]
    segment_shift: NDArray[np.uint64]
    segment_mask: NDArray[np.uint64]
    segment_place: NDArray[np.uint64]
    base: NDArray[np.int64]
    own_bits: NDArray[np.int64]
    free_base: NDArray[np.int64]
    bits: NDArray[np.uint64]
    free: NDArray[np.uint64]


class LeafArrays(NamedTuple):
    """The eliminated variable, and the lookups for its values.

    size : of its domain. mask : its bit field, the lowest of each key except for a consumption.
    mask_words : words of a set of its values.
    masks : sets of permitted values, concatenated, one for each index of each lookup.
    values : functions, concatenated, ``size`` values for each index of each lookup; of the messages' dtype.
    """

    size: int
    mask: np.uint64
    mask_words: int
    masks: NDArray[np.uint64]
    values: NDArray[Any]


class SemiringCodes(NamedTuple):
    """The operations of the join and the elimination.

    combination, marginalisation : codes of :mod:`oocbe.model.semiring`. one : the neutral element of the combination.
    limbs : number of limbs of each result count (:mod:`oocbe.tables.numbers`); None for plain numbers: leaves with
        consumptions are then compiled without the code for counts.
    """

    combination: int
    marginalisation: int
    one: Any
    limbs: int | None


class BoundArrays(NamedTuple):
    """A lower bound for rows; :mod:`oocbe.elimination.row_pruning.row_bounds` defines its scale.

    level_start : (levels + 1,), the bound's tables for each level.
    word, shift, mask : (tables,), the bit field of the separator's key that indexes a table.
    base : (tables,), start of each in ``entries``. entries : int64 or float64, the concatenated tables after a 0.
    slack : (levels + 2,), exclusive limits: slack[i] for the tables of the levels before i plus the scaled minima of
        the joined tables; the last one for a whole row with its value. Empty without pruning.
    scale : factor of values for the comparison.
    """

    level_start: NDArray[np.int64]
    word: NDArray[np.int64]
    shift: NDArray[np.uint64]
    mask: NDArray[np.uint64]
    base: NDArray[np.int64]
    entries: NDArray[Any]
    slack: NDArray[Any]
    scale: Any


class ConsumptionArrays(NamedTuple):
    """Consumptions of linear constraints in the lowest field of rows' keys
    (:mod:`oocbe.elimination.engine.consumption`).

    bits : of that field; 0 if rows carry none.
    limit, guards : all limits, packed, with all guard bits set; the guard bits.
    group_shift : consumptions are compared if they agree in the bits from here on.
    keeps_staircase : whether rows of one key are dropped that consume at least as much as another and are no better.
    own : (domain size,), consumption of each value of the eliminated variable.
    unit_key, unit_value : (1,), a neutral row.
    shift, mask : int64 (constraints,), each constraint's field. price : of one unit, in the dtype of the bounds.
    ahead_word, ahead_shift, ahead_mask, ahead_base : (groups,), a bit field of the separator's key, and the start of
        its values' later consumption in ``ahead``. Rows must leave this capacity.
    ahead : int64, packed; for an exceeded limit, one more than all limits.
    """

    bits: int
    limit: int
    guards: int
    group_shift: int
    keeps_staircase: bool
    own: NDArray[np.int64]
    unit_key: NDArray[np.uint64]
    unit_value: NDArray[Any]
    shift: NDArray[np.int64]
    mask: NDArray[np.int64]
    price: NDArray[Any]
    ahead_word: NDArray[np.int64]
    ahead_shift: NDArray[np.uint64]
    ahead_mask: NDArray[np.uint64]
    ahead_base: NDArray[np.int64]
    ahead: NDArray[np.int64]


class JoinProgram(NamedTuple):
    """All arguments of a bucket's join besides the tables."""

    runs: RunArrays
    lookups: LookupArrays
    leaf: LeafArrays
    semiring: SemiringCodes
    bounds: BoundArrays
    consumption: ConsumptionArrays

    @property
    def levels(self) -> int:
        """Number of runs."""
        return len(self.runs.word)

    @property
    def consumes(self) -> bool:
        """Whether rows carry consumptions of linear constraints."""
        return self.consumption.bits > 0

    @property
    def prunes(self) -> bool:
        """Whether rows are pruned by a bound."""
        return len(self.bounds.slack) > 0

    def expected_work(self, rows: int) -> float:
        """Estimate of the rows that the walk visits, from the rows of the largest table (at least one).

        Each row is extended by the variables without a table; the number of values that constraints permit is estimated
        as the square root of the domain size.
        """
        sizes = self.runs.size
        return max(1, rows) * math.sqrt(math.prod(float(size) for size in sizes[sizes > 0]))


class Frontier(NamedTuple):
    """Partial walks, or leaves: prefixes of separator keys in ascending order, each with its rows of every table.

    keys : uint64 (items, words). low, high : int64 (items, tables), row range of each table.
    reached : (items,), sum of the bound tables of the levels before, in the dtype of the bounds.
    """

    keys: NDArray[np.uint64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    reached: NDArray[Any]

    @classmethod
    def empty(cls, items: int, words: int, tables: int, dtype: np.dtype[Any]) -> Frontier:
        """An uninitialised frontier; ``dtype`` of the bounds."""
        low, high = np.empty((items, tables), dtype=np.int64), np.empty((items, tables), dtype=np.int64)
        return cls(np.empty((items, words), dtype=np.uint64), low, high, np.empty(items, dtype=dtype))

    @classmethod
    def joined(cls, parts: list[Frontier]) -> Frontier:
        """The items of all parts, in order."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def first(self, items: int) -> Frontier:
        """A copy of the first ``items`` items."""
        return Frontier._make(array[:items].copy() for array in self)


class SharedCounts(NamedTuple):
    """Data shared by all walks of a bucket.

    made : int64 (2,), rows and steps so far, updated periodically. Threads add without a lock, so it may be slightly
        too small; the caller checks the rows at the end.
    stop : int64 (1,); a nonzero value makes all walks give up soon.
    """

    made: NDArray[np.int64]
    stop: NDArray[np.int64]


class WalkState(NamedTuple):
    """Position of a walk, which makes it resumable; all arrays belong to it.

    key : uint64 (words,), the assigned part of the separator's key.
    low, high : (levels + 1, tables), each table's rows that match the levels before.
    position : (levels + 1, tables + 1), the next row of each table at each level; last, the enumerated value.
    indices : (lookups,), part of each lookup's index from the runs above.
    active, active_to : (lookups,) and (levels + 1,), lookups of each level that may forbid something, and their end.
    permitted_values : uint64 (levels + 1,), permission bits of the 64 values around the enumerated one.
    reached, least_sum : (levels + 1,), least : (levels + 1, tables), in the dtype of the bounds: sum of the bound
        tables of the levels before; minimum of the prices among the matching rows, summed over tables, and of each.
    """

    key: NDArray[np.uint64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    position: NDArray[np.int64]
    indices: NDArray[np.int64]
    active: NDArray[np.int64]
    active_to: NDArray[np.int64]
    permitted_values: NDArray[np.uint64]
    reached: NDArray[Any]
    least: NDArray[Any]
    least_sum: NDArray[Any]

    @classmethod
    def empty(cls, words: int, levels: int, tables: int, lookups: int, dtype: np.dtype[Any]) -> WalkState:
        """The state of a walk that has not begun; ``dtype`` of the bounds."""
        rows = (levels + 1, tables)
        return cls(
            np.zeros(words, dtype=np.uint64),
            np.zeros(rows, dtype=np.int64),
            np.zeros(rows, dtype=np.int64),
            np.zeros((levels + 1, tables + 1), dtype=np.int64),
            np.zeros(lookups, dtype=np.int64),
            np.zeros(lookups, dtype=np.int64),
            np.zeros(levels + 1, dtype=np.int64),
            np.zeros(levels + 1, dtype=np.uint64),
            np.zeros(levels + 1, dtype=dtype),
            np.zeros(rows, dtype=dtype),
            np.zeros(levels + 1, dtype=dtype),
        )


class WalkLists(NamedTuple):
    """Lists for leaves with consumptions: :mod:`oocbe.kernels.cpu.buckets.consumption_runs`.

    amounts, worths : int64 and value dtype (lists, room), consumptions and values; counts of limbs as in
        :mod:`oocbe.kernels.cpu.buckets.limb_leaf`, (lists, room * limbs). run_ends : (runs + 1,).
    """

    amounts: NDArray[np.int64]
    worths: NDArray[Any]
    run_ends: NDArray[np.int64]


class LeafScratch(NamedTuple):
    """Scratch of a leaf: int64 indices (lookups,), int64 places (2, tables), uint64 product (2, limbs)."""

    indices: NDArray[np.int64]
    places: NDArray[np.int64]
    product: NDArray[np.uint64]


class LeafOutput(NamedTuple):
    """Rows with free capacity: uint64 ascending ``keys`` (words, capacity), flat ``values`` with limbs."""

    keys: NDArray[np.uint64]
    values: NDArray[Any]


class LeafPruning(NamedTuple):
    """Comparison of rows with a bound: a row is dropped if its bound reaches ``slack``.

    The bound is ``reached`` plus the row's value times ``scale``.

    prunes : whether rows are compared at all. slack, scale : in the dtype of the bounds.
    """

    prunes: bool
    slack: Any
    scale: Any


class LeafRows(NamedTuple):
    """One leaf of a walk.

    low, high : (tables,), each table's rows.
    indices, base : (lookups,), the index of each mask and function, and the start of its entries.
    mask_from, mask_to, function_to : masks are mask_from to mask_to - 1, functions mask_to to function_to - 1.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    indices: NDArray[np.int64]
    base: NDArray[np.int64]
    mask_from: int
    mask_to: int
    function_to: int


class LeafRule(NamedTuple):
    """Selection and combination of a leaf's rows: fields of ``ConsumptionArrays`` and ``SemiringCodes``."""

    limit: int
    guards: int
    group_shift: int
    keeps_staircase: bool
    combination: int
    marginalisation: int


U64 = np.uint64


@jit
def merge_constraints(
    pool: Any,
    offsets: Any,
    segment_start: Any,
    segment_shift: Any,
    segment_mask: Any,
    segment_place: Any,
    bits: Any,
    leaf_bits: Any,
    leaf_size: Any,
    step: Any,
    out: Any,
) -> Any:
    """Conjunction of packed constraints over a merged index and one more variable, as a bit set.

    pool : uint8, concatenated packed constraints (1: permitted). offsets : int64 (parts,), start of each.
    segment_start : int64 (parts + 1,); segments map bits of the merged index to each part's index.
    segment_shift, segment_mask, segment_place : uint64. bits : of the merged index.
    leaf_bits, leaf_size : the lowest bits of each part's index, and the values of the variable there; 0 and 1 for none.
    step : bits of the bit set for each merged index.
    out : uint64, overwritten; bit ``i * step + x`` is 1 if all parts permit the merged index i with the value x.
    """
    out[:] = 0
    for i in range(1 << bits):
        for x in range(leaf_size):
            permitted = True
            for part in range(len(offsets)):
                index = U64(0)
                for s in range(segment_start[part], segment_start[part + 1]):
                    index |= ((U64(i) >> segment_shift[s]) & segment_mask[s]) << segment_place[s]
                if pool[offsets[part] + np.int64((index << U64(leaf_bits)) | U64(x))] == 0:
                    permitted = False
                    break
            if permitted:
                place = i * step + x
                out[place >> 6] |= U64(1) << U64(place & 63)


@jit
def merge_functions(
    pool: Any,
    offsets: Any,
    segment_start: Any,
    segment_shift: Any,
    segment_mask: Any,
    segment_place: Any,
    bits: Any,
    leaf_bits: Any,
    leaf_size: Any,
    combination: Any,
    one: Any,
    out: Any,
) -> Any:
    """Combination of packed functions over the eliminated variable; out is (2 ** bits * leaf_size,)."""
    for i in range(1 << bits):
        for x in range(leaf_size):
            total = one
            for part in range(len(offsets)):
                index = U64(0)
                for s in range(segment_start[part], segment_start[part + 1]):
                    index |= ((U64(i) >> segment_shift[s]) & segment_mask[s]) << segment_place[s]
                value = pool[offsets[part] + np.int64((index << U64(leaf_bits)) | U64(x))]
                if combination == 0:
                    total += value
                else:
                    total *= value
            out[i * leaf_size + x] = total


@jit
def mark_free(bits: Any, own_bits: Any, slices: Any, out: Any) -> Any:
    """Mark the slices of a bit set that are all ones.

    bits : uint64, ``slices << own_bits`` bits. out : uint64 (max(1, slices / 64),), overwritten: bit i is 1 if the
        entries i << own_bits to ((i + 1) << own_bits) - 1 are all permitted.
    """
    out[:] = 0
    for i in range(slices):
        free = True
        for j in range(i << own_bits, (i + 1) << own_bits):
            if (bits[j >> 6] >> U64(j & 63)) & U64(1) == U64(0):
                free = False
                break
        if free:
            out[i >> 6] |= U64(1) << U64(i & 63)


@jit
def merge_bound_tables(
    tables: Any, offsets: Any, sizes: Any, groups: Any, places: Any, bits: Any, base: Any, out: Any
) -> Any:
    """Add small tables up over joint indices.

    tables : int64 or float64, concatenated. offsets, sizes : int64 (tables,), start and size of each.
    groups : int64 (tables,), the merged table of each.
    places, bits : int64 (tables,), the bits of the merged table's index that belong to each table.
    base : int64 (merged tables + 1,), start of each merged table in ``out``. out : zeros, overwritten.
    """
    for t in range(len(offsets)):
        first, last = base[groups[t]], base[groups[t] + 1]
        for i in range(last - first):
            x = (i >> places[t]) & ((1 << bits[t]) - 1)
            if x < sizes[t]:
                out[first + i] += tables[offsets[t] + x]
