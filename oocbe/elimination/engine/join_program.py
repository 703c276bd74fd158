"""Turn a bucket into the flat arrays that the join kernel walks: runs, lookups by level, lookups at the leaves.

:mod:`oocbe.kernels.cpu.buckets.bucket_join` defines runs, levels and leaves. All work here is per bucket, not per row,
but problems have hundreds of buckets with a few rows each, so the code is optimised for speed in plain Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.engine.consumption import Consumption, consumption_arrays
from oocbe.elimination.engine.factors import FactorPool, PackedFactor, elements_of
from oocbe.elimination.row_pruning.row_bounds import MERGED_BITS, RowBound, no_bounds
from oocbe.kernels.cpu.buckets.join_arrays import (
    JoinProgram,
    LeafArrays,
    LookupArrays,
    RunArrays,
    SemiringCodes,
    mark_free,
    merge_constraints,
    merge_functions,
)
from oocbe.model.semiring import Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.tables.layout import WORD_BITS, Field, Layout, bits_for


@dataclass(slots=True)
class _Run:
    """Neighbouring variables of the separator that are joined as one field.
    ``word``, ``shift`` and ``bits`` are the field of the separator's key. ``size`` is that of the domain if no table
    has the variable, else 0. ``parts``: index of each table that has them, and word and shift of the field there."""

    word: int
    shift: int
    bits: int
    size: int
    parts: list[tuple[int, int, int]]


@dataclass(frozen=True)
class BucketScope:
    """Variables of a bucket and their fields in the keys.

    variable : the variable to eliminate. size : its domain size.
    separator : the other variables, the one eliminated next first (least significant).
    layout : of the separator and so of the message; consumption may have a field below the variables'.
    """

    variable: int
    size: int
    separator: tuple[int, ...]
    layout: Layout

    @property
    def fields(self) -> tuple[Field, ...]:
        """Bit field of each variable of the separator."""
        return self.layout.fields[len(self.layout.fields) - len(self.separator) :]


@dataclass(slots=True)
class _Merged:
    """Several factors merged into one lookup over ``scope`` (separator variables, ascending position)."""

    members: int
    bits: int
    parts: list[PackedFactor]


def _merge(factors: Iterable[PackedFactor], ignore: int, variable_bits: Sequence[int], limit: int) -> list[_Merged]:
    """Group factors greedily so that each union of scopes (without ``ignore``) stays within ``limit`` bits."""
    groups: list[_Merged] = []
    for factor in sorted(factors, key=lambda factor: factor.members & ~ignore):
        members = factor.members & ~ignore
        for group in groups:
            fresh = members & ~group.members
            extra = sum(variable_bits[v] for v in elements_of(fresh)) if fresh else 0
            if group.bits + extra <= limit:
                group.members |= fresh
                group.bits += extra
                group.parts.append(factor)
                break
        else:
            groups.append(_Merged(members, sum(variable_bits[v] for v in elements_of(members)), [factor]))
    return groups


def _word_bits(size: int) -> int:
    """Bits that a set of ``size`` values adds to a lookup's index: none while the set fits in a word."""
    return max(0, bits_for(size) - bits_for(WORD_BITS))


class ProgramBuilder:
    """Makes join programs for the buckets of one problem.

    sizes : domain size of each variable.
    constraints : pool of packed constraints (uint8). functions : pool of packed functions (value dtype).
    semiring : defines combination and marginalisation.
    consumption : carried by the rows of all tables and messages in the lowest field of their keys; None: none.
    keeps_staircase : whether only the Pareto front (consumption, value) of each key's rows is kept.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        constraints: FactorPool,
        functions: FactorPool,
        semiring: Semiring,
        consumption: Consumption | None = None,
        keeps_staircase: bool = False,
    ) -> None:
        self._bits = [bits_for(size) for size in sizes]
        self._sizes, self._constraints, self._functions = sizes, constraints, functions
        self._semiring, self._consumption, self._keeps_staircase = semiring, consumption, keeps_staircase

    def for_factors(
        self, constraints: Sequence[PackedFactor], functions: Sequence[PackedFactor]
    ) -> tuple[ProgramBuilder, Sequence[PackedFactor], Sequence[PackedFactor]]:
        """A builder with these factors alone, for another process; and the factors in its pools."""
        made = copy(self)
        made._constraints, made._functions = (
            self._constraints.selected(constraints),
            self._functions.selected(functions),
        )
        return made, made._constraints.factors, made._functions.factors

    def build(
        self,
        scope: BucketScope,
        tables: Sequence[tuple[tuple[int, ...], Layout]],
        constraints: Iterable[PackedFactor],
        functions: Iterable[PackedFactor],
        rows: int,
        bound: RowBound | None = None,
        limbs: int = 0,
    ) -> JoinProgram:
        """Program for one bucket.

        scope : the bucket.
        tables : scope (variable indices, the eliminated variable first) and layout of each table to join.
        constraints : those to enforce, each covered by the bucket's scope.
        functions : those to combine, each mentioning the eliminated variable.
        rows : of the tables; with few rows, large merged lookups do not pay.
        bound : for pruning rows; None: all are kept.
        limbs : of each resulting count (:mod:`oocbe.tables.numbers`); 0 if values are plain numbers.
        """
        limit = min(tuning().merged_bits, max(4, rows.bit_length() - 2))
        runs, level_of = self._runs(scope, tables)
        levels = len(runs.word)
        at_level: list[list[PackedFactor]] = [[] for _ in range(levels)]
        at_leaf: list[PackedFactor] = []
        for c in constraints:
            if c.scope and c.scope[0] == scope.variable:
                at_leaf.append(c)
            else:
                at_level[max(level_of[v] for v in c.scope)].append(c)

        place_of = {v: i for i, v in enumerate(scope.separator)}
        fields = scope.fields
        gathers = BitCopies()
        level_start = [0]
        base: list[int] = []
        middle: list[int] = []
        own_bits: list[int] = []
        free_base: list[int] = []
        bit_sets: list[NDArray[np.uint64]] = []
        free_sets: list[NDArray[np.uint64]] = []
        end = free_end = 0
        for level, members in enumerate(at_level):
            enumerated = int(runs.size[level]) if members else 0
            for group in _merge(
                members, 1 << members[0].scope[0] if enumerated else 0, self._bits, limit - _word_bits(enumerated)
            ):
                if enumerated:
                    # The run is one variable, the last of each constraint here: its values are stored as bits.
                    skip, mask_words = self._bits[members[0].scope[0]], -(-enumerated // WORD_BITS)
                    parts = self._layout_group(group, gathers, place_of, fields, skip=skip)
                    out, step = np.empty(mask_words << group.bits, dtype=np.uint64), WORD_BITS * mask_words
                    merge_constraints(self._constraints.entries, *parts, group.bits, skip, enumerated, step, out)
                    own, slices = 0, 0
                    middle.append(gathers.start[-1])
                else:
                    own_scope = [v for v, there in level_of.items() if there == level and group.members >> v & 1]
                    own = sum(self._bits[v] for v in own_scope)
                    parts = self._layout_group(group, gathers, place_of, fields, 0, cut=own)
                    out = np.empty(max(1, (1 << group.bits) >> 6), dtype=np.uint64)
                    merge_constraints(self._constraints.entries, *parts, group.bits, 0, 1, 1, out)
                    slices = 1 << (group.bits - own)
                    middle.append(gathers.middle)
                free = np.empty(max(1, slices >> 6), dtype=np.uint64)
                mark_free(out, own, slices, free)
                base.append(end)
                own_bits.append(own)
                free_base.append(free_end * WORD_BITS)
                bit_sets.append(out)
                free_sets.append(free)
                end += len(out)
                free_end += len(free)
            level_start.append(len(base))

        variable, leaf_bits, size = 1 << scope.variable, self._bits[scope.variable], scope.size
        mask_words = (size + WORD_BITS - 1) // WORD_BITS
        masks: list[NDArray[np.uint64]] = []
        end = 0
        for group in _merge(at_leaf, variable, self._bits, limit - _word_bits(size)):
            parts = self._layout_group(group, gathers, place_of, fields, skip=leaf_bits)
            out, step = np.empty(mask_words << group.bits, dtype=np.uint64), WORD_BITS * mask_words
            merge_constraints(self._constraints.entries, *parts, group.bits, leaf_bits, size, step, out)
            base.append(end)
            masks.append(out)
            end += len(out)
        level_start.append(len(base))

        dtype = self._functions.entries.dtype
        one = dtype.type(self._semiring.one)
        values: list[NDArray[Any]] = []
        end = 0
        for group in _merge(functions, variable, self._bits, limit - leaf_bits):
            parts = self._layout_group(group, gathers, place_of, fields, skip=leaf_bits)
            merged = np.empty(size << group.bits, dtype=dtype)
            combination = int(self._semiring.combination)
            merge_functions(self._functions.entries, *parts, group.bits, leaf_bits, size, combination, one, merged)
            base.append(end)
            values.append(merged)
            end += len(merged)
        level_start.append(len(base))

        segment_start, segment_word, segment_shift, segment_mask, segment_place = gathers.arrays()
        lookups = LookupArrays(
            level_start=np.array(level_start, dtype=np.int64),
            segment_start=segment_start,
            segment_middle=np.array(middle, dtype=np.int64),
            segment_word=segment_word,
            segment_shift=segment_shift,
            segment_mask=segment_mask,
            segment_place=segment_place,
            base=np.array(base, dtype=np.int64),
            own_bits=np.array(own_bits, dtype=np.int64),
            free_base=np.array(free_base, dtype=np.int64),
            bits=np.concatenate(bit_sets) if bit_sets else np.zeros(1, dtype=np.uint64),
            free=np.concatenate(free_sets) if free_sets else np.zeros(1, dtype=np.uint64),
        )
        leaf = LeafArrays(
            size=size,
            mask=np.uint64((1 << leaf_bits) - 1),
            mask_words=mask_words,
            masks=np.concatenate(masks) if masks else np.zeros(1, dtype=np.uint64),
            values=np.concatenate(values) if values else np.zeros(1, dtype=dtype),
        )
        semiring = SemiringCodes(
            int(self._semiring.combination), int(self._semiring.marginalisation), one, limbs or None
        )
        if bound is None:
            bounds, prices = no_bounds(levels, dtype), list[int | float]()
        else:
            least = sum(v.min().item() for v in values)
            merged_bits = min(MERGED_BITS, max(1, rows.bit_length() - 2))
            bounds = bound.arrays(scope.separator, fields, level_of, levels, dtype, least, merged_bits)
            prices = bound.unit_prices(self._consumption)
        placed_variables = (scope.variable, scope.separator, fields, rows)
        carried = (self._consumption, *placed_variables, self._keeps_staircase, prices, bounds.entries.dtype, one)
        return JoinProgram(runs, lookups, leaf, semiring, bounds, consumption_arrays(*carried))

    def _runs(
        self, scope: BucketScope, tables: Sequence[tuple[tuple[int, ...], Layout]]
    ) -> tuple[RunArrays, dict[int, int]]:
        """Cut the separator into runs, most significant first; also returns the run of each variable.

        A variable joins the run above where its field ends at the run's, in the separator's key and in each table.
        """
        owners: dict[int, list[tuple[int, int, int]]] = {v: [] for v in scope.separator}
        for t, (members, layout) in enumerate(tables):
            for v, (word, shift, _) in zip(members, layout.fields[len(layout.fields) - len(members) :], strict=True):
                if v in owners:
                    owners[v].append((t, word, shift))
        runs: list[_Run] = []
        level_of: dict[int, int] = {}
        for v, field in zip(reversed(scope.separator), reversed(scope.fields), strict=True):
            parts, (word, shift, bits) = owners[v], field
            above = (word, shift + bits, [(t, own, low + bits) for t, own, low in parts])
            if parts and runs and above == (runs[-1].word, runs[-1].shift, runs[-1].parts):
                runs[-1].shift, runs[-1].bits, runs[-1].parts = shift, runs[-1].bits + bits, parts
            else:
                runs.append(_Run(*field, 0 if parts else self._sizes[v], parts))
            level_of[v] = len(runs) - 1
        everyone = [part for run in runs for part in run.parts]
        arrays = RunArrays(
            word=np.array([run.word for run in runs], dtype=np.int64),
            shift=np.array([run.shift for run in runs], dtype=np.uint64),
            mask=np.array([(1 << run.bits) - 1 for run in runs], dtype=np.uint64),
            size=np.array([run.size for run in runs], dtype=np.int64),
            part_start=np.array([0, *accumulate(len(run.parts) for run in runs)], dtype=np.int64),
            part_table=np.array([t for t, _, _ in everyone], dtype=np.int64),
            part_word=np.array([word for _, word, _ in everyone], dtype=np.int64),
            part_shift=np.array([shift for _, _, shift in everyone], dtype=np.uint64),
        )
        return arrays, level_of

    def _layout_group(
        self,
        group: _Merged,
        gathers: BitCopies,
        place_of: dict[int, int],
        fields: Sequence[Field],
        skip: int,
        cut: int = -1,
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Copies that read the group's index from a separator key, and each part's index from the group's."""
        bits, group_members = self._bits, group.members
        scope = [v for v in place_of if group_members >> v & 1]  # ascending positions, as the separator's are
        place: dict[int, int] = {}
        end = 0
        for v in scope:
            place[v] = end
            end += bits[v]
        gathers.add([fields[place_of[v]] for v in scope], place.values(), cut)
        start, shift, width, where = [0], list[int](), list[int](), list[int]()
        for part in group.parts:
            target, neighbour = 0, -1
            for v in part.scope[1:] if skip else part.scope:
                source, own = place[v], bits[v]
                if source == neighbour:
                    width[-1] += own
                else:
                    shift.append(source)
                    width.append(own)
                    where.append(target)
                neighbour, target = source + own, target + own
            start.append(len(shift))
        return (
            np.array([part.offset for part in group.parts], dtype=np.int64),
            np.array(start, dtype=np.int64),
            np.array(shift, dtype=np.uint64),
            np.array([(1 << own) - 1 for own in width], dtype=np.uint64),
            np.array(where, dtype=np.uint64),
        )


class BitCopies:
    """Copies of bit fields, CSR-like: those of lookup i are start[i] .. start[i + 1] - 1."""

    def __init__(self) -> None:
        self.start = [0]
        self.middle = 0
        self.word: list[int] = []
        self.shift: list[int] = []
        self.bits: list[int] = []
        self.place: list[int] = []

    def add(self, fields: Iterable[Field], places: Iterable[int], cut: int = -1) -> None:
        """Add a lookup whose index has, at each place, the bits of a field; neighbours are merged, not across ``cut``.

        ``middle`` then is the first copy whose place is at or above ``cut``.
        """
        begin = len(self.word)
        self.middle = -1
        for (word, shift, bits), place in zip(fields, places, strict=True):
            if place == cut:
                self.middle = len(self.word)
            last = len(self.word) - 1
            if (
                last >= begin
                and place != cut
                and self.word[last] == word
                and self.shift[last] + self.bits[last] == shift
                and self.place[last] + self.bits[last] == place
            ):
                self.bits[last] += bits
            else:
                self.word.append(word)
                self.shift.append(shift)
                self.bits.append(bits)
                self.place.append(place)
        self.start.append(len(self.word))
        if self.middle < 0:
            self.middle = len(self.word)

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """start and word as int64; shift, mask and place as uint64."""
        return (
            np.array(self.start, dtype=np.int64),
            np.array(self.word, dtype=np.int64),
            np.array(self.shift, dtype=np.uint64),
            np.array([(1 << b) - 1 for b in self.bits], dtype=np.uint64),
            np.array(self.place, dtype=np.uint64),
        )
