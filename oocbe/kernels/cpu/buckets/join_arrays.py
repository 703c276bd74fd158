"""The flat arrays of a bucket, by name: what its join is handed, on the CPU and on the device.

:mod:`oocbe.kernels.cpu.buckets.bucket_join` says what runs, levels and leaves are. Numba takes these tuples as they
are. ``oocbe/kernels/cuda/buckets/bucket_join.cu`` has structs of the same names for lookups, leaves and bounds, with
the fields that it uses, which :mod:`oocbe.kernels.cuda.structs` fills by name; a test compares them.

Lists of lists are end to end: those of i are start[i] to start[i + 1] - 1. Unless said otherwise arrays of indices are
int64, and arrays of key bits are uint64.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class TableArrays(NamedTuple):
    """The tables to join, end to end.

    Attributes
    ----------
    keys : each table's key words, (words, rows) flat. values : of each row.
    key_base, rows, value_base : (tables,), where each one's keys and values begin, and its rows.
    least : (tables,), least of ``priced`` in each, in the dtype of the bounds.
    priced : (all rows,), what each row's value and consumption are worth in ``price_scale``: the values themselves
        where no consumption is carried. Unused where nothing is pruned.
    price_scale : what ``priced`` is multiplied by to be compared with bounds.
    limbs : (tables,), values that each row has: 1, or the limbs of its count (:mod:`oocbe.tables.limbs`).
    """

    keys: NDArray[np.uint64]
    values: NDArray[Any]
    key_base: NDArray[np.int64]
    rows: NDArray[np.int64]
    value_base: NDArray[np.int64]
    least: NDArray[Any]
    priced: NDArray[Any]
    price_scale: Any
    limbs: NDArray[np.int64]


class RunArrays(NamedTuple):
    """The runs that the separator is cut into, one a level, the most significant first; and the tables in each.

    Attributes
    ----------
    word, shift, mask : (levels,), the run's bit field in the separator's key.
    size : (levels,), values that a run enumerates in which no table takes part; 0 for others.
    part_start : (levels + 1,), the parts of each level, one for each table that takes part.
    part_table, part_word, part_shift : (parts,), the table, and where the run's field is in its key.
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
    """What is looked up on the way: bit sets of constraints by level; then masks and functions at the leaves.

    Attributes
    ----------
    level_start : (levels + 3,), the lookups of each level, then the masks, then the functions.
    segment_start : (lookups + 1,), the segments of each lookup: fields of the key that make its index.
    segment_middle : (bit sets,), segments before it read the level's own run, the others the runs above.
    segment_word, segment_shift, segment_mask, segment_place : (segments,), a bit field of the separator's key, and its
        place in the index.
    base : (lookups,), where each one's entries begin: words of ``bits``, or of the leaf's masks or values.
    own_bits : (bit sets,), bits of the index that the level's own run makes.
    free_base : (bit sets,), bit of ``free`` at which each one's begin.
    bits : the bit sets end to end: what is permitted. A run that enumerates has a set of values for each index.
    free : a bit for each index made of the runs above, set where everything below it is permitted.
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
    """The eliminated variable, and what is looked up for its values.

    Attributes
    ----------
    size : of its domain. mask : its bit field, the lowest of each key but for a consumption.
    mask_words : words that a set of its values takes.
    masks : sets of permitted values end to end, one for each index of each lookup.
    values : functions end to end, ``size`` values for each index of each lookup; of the messages' dtype.
    """

    size: int
    mask: np.uint64
    mask_words: int
    masks: NDArray[np.uint64]
    values: NDArray[Any]


class SemiringCodes(NamedTuple):
    """What joining and eliminating mean.

    Attributes
    ----------
    combination, marginalisation : codes of :mod:`oocbe.model.semiring`. one : the neutral value of joining.
    limbs : of each count that is made (:mod:`oocbe.tables.limbs`); None where values are plain numbers, for which the
        walk is then compiled without the leaf of counts.
    """

    combination: int
    marginalisation: int
    one: Any
    limbs: int | None


class BoundArrays(NamedTuple):
    """A bound that rows are held against; :mod:`oocbe.elimination.engine.row_pruning` says what it is worth.

    Attributes
    ----------
    level_start : (levels + 1,), the bound's tables for each level.
    word, shift, mask : (tables,), the bit field of the separator's key that a table is indexed by.
    base : (tables,), where each begins in ``entries``.
    entries : int64 or float64, the tables end to end after a 0.
    slack : (levels + 2,), what the tables of the levels before i, and the scaled least values of the joined tables,
        must stay below at slack[i]; at the last one, a whole row with its value. Empty where nothing is pruned.
    scale : what values are multiplied by to be compared.
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
    """What rows carry of linear constraints in the lowest field of their keys
    (:mod:`oocbe.elimination.engine.consumption`).

    Attributes
    ----------
    bits : of that field; 0 where nothing is carried.
    limit, guards : all limits, packed, with all guard bits set; the guard bits.
    group_shift : consumptions are compared where they agree in the bits from here on.
    keeps_staircase : of the rows of one key, those go that consume no less than another and are no better.
    own : (domain size,), what each value of the eliminated variable consumes.
    unit_key, unit_value : (1,), a row that adds nothing.
    shift, mask : int64 (constraints,), each constraint's field. price : of one unit, in the dtype of the bounds.
    ahead_word, ahead_shift, ahead_mask, ahead_base : (groups,), a bit field of the separator's key, and where what its
        values consume begins in ``ahead``. Rows must leave room for that.
    ahead : int64, packed; where a limit is passed, one more than all limits.
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
    """All that the join of a bucket needs besides the tables."""

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
        """Whether rows carry what they consume of linear constraints."""
        return self.consumption.bits > 0

    @property
    def prunes(self) -> bool:
        """Whether rows are held against a bound."""
        return len(self.bounds.slack) > 0

    def expected_work(self, rows: int) -> float:
        """A guess at the rows that the walk visits, from the rows of the largest table (at least one).

        Each row is extended by the variables that no table has: constraints leave some of their values, taken here as
        the square root of how many there are.
        """
        sizes = self.runs.size
        return max(1, rows) * math.sqrt(math.prod(float(size) for size in sizes[sizes > 0]))


class WalkStart(NamedTuple):
    """Where a walk begins and ends.

    Attributes
    ----------
    keys : uint64 (words, items), prefixes of separator keys. low, high : (tables, items), each table's rows.
    first, last : items to walk from, one past the last. level : of the items. stop_level : where the walk ends.
    """

    keys: NDArray[np.uint64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    first: int
    last: int
    level: int
    stop_level: int


class SharedCounts(NamedTuple):
    """What all walks of a bucket share.

    Attributes
    ----------
    made : int64 (2,), rows and steps so far, counted now and then. Threads add to it without a lock, so it may fall
        behind a little; the caller checks the rows at the end.
    stop : int64 (1,); whoever sets it to another value than 0 makes all walks give up soon.
    """

    made: NDArray[np.int64]
    stop: NDArray[np.int64]


class WalkState(NamedTuple):
    """Where a walk is, so that it can stop and go on; all arrays are its own.

    Attributes
    ----------
    key : uint64 (words,), the separator's key, as far as it is known.
    low, high : (levels + 1, tables), each table's rows that agree with the levels before.
    position : (levels + 1, tables + 1), the next row of each table at each level; last, the value that is enumerated.
    places : (2, tables), for leaves.
    indices : (lookups,), what each lookup's index has from the runs above.
    active, active_to : (lookups,) and (levels + 1,), lookups of each level that may forbid something; where they end.
    permitted_values : uint64 (levels + 1,), of the 64 values around the one that is enumerated.
    reached, least_sum : (levels + 1,), least : (levels + 1, tables), in the dtype of the bounds: what their tables say
        of the levels before; least ``priced`` among the tables' rows, of all tables together and of each.
    product : uint64 (2, limbs), of the counts of a leaf.
    """

    key: NDArray[np.uint64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    position: NDArray[np.int64]
    places: NDArray[np.int64]
    indices: NDArray[np.int64]
    active: NDArray[np.int64]
    active_to: NDArray[np.int64]
    permitted_values: NDArray[np.uint64]
    reached: NDArray[Any]
    least: NDArray[Any]
    least_sum: NDArray[Any]
    product: NDArray[np.uint64]


class WalkLists(NamedTuple):
    """Lists for leaves whose rows carry a consumption: :mod:`oocbe.kernels.cpu.buckets.consumption_runs`.

    Attributes
    ----------
    amounts, worths : int64 and value dtype (lists, room), consumptions and values. run_ends : (runs + 1,).
    """

    amounts: NDArray[np.int64]
    worths: NDArray[Any]
    run_ends: NDArray[np.int64]


class WalkOutput(NamedTuple):
    """What a walk writes to, with room for more rows: fields of
    :class:`oocbe.kernels.cpu.buckets.walk_steps.Frontier`."""

    keys: NDArray[np.uint64]
    values: NDArray[Any]
    low: NDArray[np.int64]
    high: NDArray[np.int64]


class LeafRows(NamedTuple):
    """One leaf of a walk whose rows carry a consumption.

    Attributes
    ----------
    low, high : (tables,), each table's rows.
    indices, base : (lookups,), the index that each mask and function has here, and where its entries begin.
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
    """Which rows of a leaf stay, and how they are combined: fields of ``ConsumptionArrays`` and ``SemiringCodes``."""

    limit: int
    guards: int
    group_shift: int
    keeps_staircase: bool
    combination: int
    marginalisation: int
