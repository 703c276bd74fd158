"""The bound on the rows of one message, and its arrays for the join.

A row s of a message has a value h(s), the least cost of the functions in the message's subtree. The bound is additive
over the message's separator. Every completion of the row costs at least

    (h(s) * scale + constant + sum over the separator's variables v of tables[v][s_v]) / scale

A row whose bound reaches the *threshold* belongs to no assignment better than the incumbent and is dropped. If rows
carry consumption of linear constraints, each unit adds its price. The join applies the same test to every prefix of a
key, with the least value of each table for the remaining variables and the least value of each joined table's rows that
match the prefix. So most rows are dropped long before they are complete.

A row's tables are looked up in groups of neighbouring bit fields, up to :data:`MERGED_BITS` bits at once. All data is
in flat arrays, which the kernels of both backends use.

**Why pruning is sound together with substitution dominance** (:mod:`oocbe.elimination.row_pruning.dominance`). Let x
be, among the feasible assignments, the one with the least (cost, consumption, assignment read from the variable
eliminated last), where consumption is its total in the linear constraints that rows carry. Let its cost be below the
threshold; otherwise there is nothing to find, and every row may go. By induction over the buckets, the row s that x
selects in each message is present, and its value is at most the cost of x's eliminated variables:

* It is made, since the rows that it is joined from are present, and its value h(s) is that of some feasible assignment
  of the subtree, at most the cost of x there.
* It is not pruned: h(s) and the bound on the rest are at most the cost of x, which is below the threshold.
* It is not dominated. A row s' that dominates it, by a substitution or by less consumption at no greater cost, is in
  the message, so h(s') is the cost of some assignment of the subtree that is feasible with s' and has the consumption
  of s'. Both in the place of x's part give a feasible assignment that comes before x. It does not matter whether s'
  itself goes later: the argument is about x only, and an absent row drops no other row.

So a value below the threshold is found where there is one, and it is the least; a message without rows proves that
there is none. Bounds and dominance must refer to the same feasible assignments: where a constraint is left out of
elimination, the bounds leave it out as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.engine.consumption import Consumption
from oocbe.kernels.cpu.buckets.join_arrays import BoundArrays
from oocbe.kernels.cpu.buckets.lookups import merge_bound_tables
from oocbe.model.problem import Problem
from oocbe.tables.layout import Field

MERGED_BITS = 8
"""Maximum index bits of a merged table: 256 entries of 8 bytes."""

LARGEST_SUM = 1 << 61
"""Limit of sums of values and bounds, so that they fit in 64 bits."""


@dataclass(frozen=True)
class RowBound:
    """Lower bound on the cost outside a message, for each row, and the threshold for pruning.

    For every row s with value h(s), and every full assignment that counts and extends s:
    ``h(s) * scale + constant + sum(tables[v][s_v]) + sum(prices[c] * (consumption of c by the eliminated variables))
    <= scale * (value of the assignment)``, where the assignment's value includes ``Problem.constant``. With integer
    costs all of this is exact in int64 and cannot overflow. With floating-point costs ``scale`` is 1 and ``constant``
    is lowered by more than the rounding errors of the sums.

    scale : fixed-point factor: a value h is represented as h * scale; 1 if values are floats.
    constant : bound on everything outside the message's subtree without the separator's part, scaled.
    tables : variable of the separator -> int64 or float64 (domain size,), scaled; other variables add nothing.
    prices : linear constraint (its index) -> increase of a row's bound by a unit of consumption by its eliminated
        variables, beyond the least coefficient of each, scaled; at least 0, and 0 for other constraints. The bound is
        valid without the prices, too.
    threshold : rows whose bound reaches it are dropped, scaled; infinite before :meth:`below`.
    """

    scale: int
    constant: int | float
    tables: Mapping[int, NDArray[Any]] = field(default_factory=dict)
    prices: Mapping[int, int | float] = field(default_factory=dict)
    threshold: int | float = math.inf

    def below(self, problem: Problem, consumption: Consumption | None = None) -> RowBound | None:
        """The bound of values below ``problem.upper_bound``, and rows' consumption; None: sums could leave 64 bits."""
        assert problem.upper_bound is not None
        if not problem.is_integral:
            return replace(self, threshold=float(problem.upper_bound))
        threshold = int(problem.value_grid.largest_below(problem.upper_bound)) * self.scale + 1
        total = int(problem.magnitude) * self.scale + abs(int(self.constant)) + abs(threshold)
        total += sum(max(abs(int(table.max())), abs(int(table.min()))) for table in self.tables.values())
        bound = replace(self, threshold=threshold)
        if consumption is not None:
            unit_prices = zip(self.unit_prices(consumption), consumption.limits, strict=True)
            paid = sum(int(price) * (limit + 1) for price, limit in unit_prices)
            if total + paid < LARGEST_SUM:
                total += paid
            else:  # a bound that counts nothing for what rows consume is lower, and holds
                bound = replace(bound, prices={})
        return bound if total < LARGEST_SUM else None

    def rounded_down(self) -> RowBound:
        """The bound in integers, for integers that are left of a problem of floats."""
        tables = {v: np.floor(table).astype(np.int64) for v, table in self.tables.items()}
        prices = {number: math.floor(price) for number, price in self.prices.items()}
        return RowBound(self.scale, math.floor(self.constant), tables, prices)

    def unit_prices(self, consumption: Consumption | None) -> list[int | float]:
        """Price for a unit of each constraint that rows carry, scaled."""
        if consumption is None:
            return []
        carried = zip(consumption.numbers, consumption.units, strict=True)
        return [self.prices.get(number, 0) * unit for number, unit in carried]

    def arrays(
        self,
        separator: Sequence[int],
        fields: Sequence[Field],
        level_of: Mapping[int, int],
        levels: int,
        dtype: np.dtype[Any],
        least_functions: int | float,
        merged_bits: int = MERGED_BITS,
    ) -> BoundArrays:
        """The bound as arguments of one bucket's join.

        separator, fields : variables and their places in the message's keys, the least significant first.
        level_of : run of each variable. levels : number of runs.
        dtype : of the message's values.
        least_functions : least sum of the bucket's functions.
        merged_bits : at most :data:`MERGED_BITS`; fewer for buckets with few rows.
        """
        kind = np.dtype(np.float64 if dtype.kind == "f" else np.int64)
        least_of = [kind.type(0)] * (levels + 1)
        groups: list[tuple[Field, list[int]]] = []
        starts = [0] * (levels + 1)
        members = [(level_of[v], v, field) for v, field in zip(separator, fields, strict=True) if v in self.tables]
        members.sort(key=lambda member: (member[0], member[2].shift))
        previous = -1
        for level, v, place in members:
            least_of[level] += self.tables[v].min()
            last = groups[-1][0] if groups else None
            if last is not None and level == previous and place.shift + place.bits - last.shift <= merged_bits:
                groups[-1] = (Field(last.word, last.shift, place.shift + place.bits - last.shift), groups[-1][1])
                groups[-1][1].append(v)
            else:
                groups.append((place, [v]))
                starts[level] += 1
            previous = level
        field_of = dict(zip(separator, fields, strict=True))
        entries, base = self._merged_tables(groups, field_of, kind)
        least_after = [kind.type(0)] * (levels + 1)
        for level in range(levels - 1, -1, -1):
            least_after[level] = least_after[level + 1] + least_of[level]
        number: Any = kind.type
        room = number(self.threshold) - number(self.constant)
        slack = np.empty(levels + 2, dtype=kind)
        slack[:-1] = room - np.array(least_after) - number(least_functions) * self.scale
        slack[-1] = room
        return BoundArrays(
            level_start=np.concatenate([[0], np.cumsum(starts[:levels])]).astype(np.int64),
            word=np.array([f.word for f, _ in groups], dtype=np.int64),
            shift=np.array([f.shift for f, _ in groups], dtype=np.uint64),
            mask=np.array([f.mask for f, _ in groups], dtype=np.uint64),
            base=base,
            entries=entries,
            slack=slack,
            scale=kind.type(self.scale),
        )

    def _merged_tables(
        self, groups: Sequence[tuple[Field, list[int]]], field_of: Mapping[int, Field], kind: np.dtype[Any]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The summed tables of each group of variables, concatenated after a zero, and their positions."""
        base = np.array([1, *(1 << f.bits for f, _ in groups)], dtype=np.int64).cumsum()
        entries = np.zeros(base[-1], dtype=kind)
        if groups:
            parts = [(field_of[v].shift - f.shift, v, g) for g, (f, members) in enumerate(groups) for v in members]
            tables = [self.tables[v] for _, v, _ in parts]
            sizes = np.array([len(t) for t in tables], dtype=np.int64)
            merge_bound_tables(
                np.concatenate(tables).astype(kind, copy=False),
                np.cumsum(sizes) - sizes,
                sizes,
                np.array([g for *_, g in parts], dtype=np.int64),
                np.array([place for place, *_ in parts], dtype=np.int64),
                np.array([field_of[v].bits for _, v, _ in parts], dtype=np.int64),
                base,
                entries,
            )
        return entries, base[:-1]


def no_bounds(levels: int, dtype: np.dtype[Any]) -> BoundArrays:
    """Bound arrays that prune nothing. dtype : of the message's values."""
    kind = np.dtype(np.float64 if dtype.kind == "f" else np.int64)
    empty, unsigned = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64)
    start = np.zeros(levels + 1, dtype=np.int64)
    return BoundArrays(start, empty, unsigned, unsigned, empty, np.zeros(1, kind), np.zeros(0, kind), kind.type(1))
