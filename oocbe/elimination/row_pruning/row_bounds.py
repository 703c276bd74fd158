"""Bounds on the rows of any message of a problem: sums of terms.

A *term* states ``constant + Σ_v entries_v(x_v) <= part(x)`` for a part of the problem, in fixed point. A *soft* term
bounds one function, or the problem's constant. A *hard* term is at most 0 for every assignment that counts: a
multiplier times a valid inequality (``-y * rhs + Σ y * coef * x <= 0``), or the costs charged to a hard constraint. A
*literal* term is an inequality of literals with coefficients of at least 0; where it is violated, the costly tuples of
functions (:mod:`oocbe.bounds.forbidden`) pay for it. A *consumed* term is a multiplier times one of the problem's
linear constraints. The sum of all terms is a lower bound on the problem; each variable then takes its cheapest value
independently. All reparametrisations (Cooper et al. 2010, *Soft arc consistency revisited*) and the reduced costs of
linear programs have this form.

Functions whose scope meets no eliminated variable lie outside a message. Their terms are added up. So are all hard
terms, as assignments that count satisfy them; eliminated variables contribute their least entry. Literal terms count
without the literals of eliminated variables: the tuples that pay for the rest lie outside. Consumed terms always
count; the consumption by a row's eliminated variables has the multiplier as its price. The remaining sum depends on
the separator's variables separately, and on other variables, which take their cheapest value. So the bound of a row is
a few lookups (:class:`RowBound`).

Only assignments that *count* are bounded: feasible ones with a value below ``Problem.upper_bound``, if there is one.

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
there is none. A further row does no harm: callers discard a final value that is not below the threshold. Bounds and
dominance must refer to the same feasible assignments: where a constraint is left out of elimination, the bounds leave
it out as well.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.engine.consumption import Consumption
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.errors import ValueRangeError
from oocbe.kernels.cpu.buckets.join_arrays import BoundArrays, merge_bound_tables
from oocbe.kernels.cpu.buckets.outside_terms import ELIMINATED, OUTSIDE, SEPARATOR, sum_outside
from oocbe.model.problem import Problem, relative_rounding
from oocbe.runtime.deadline import check_deadline
from oocbe.tables.layout import Field

MERGED_BITS = 8
"""Maximum index bits of a merged table: 256 entries of 8 bytes."""

LARGEST_BOUNDED_SUM = 1 << 61
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
    threshold : rows whose bound reaches it are dropped, scaled; infinite before :meth:`with_threshold`.
    """

    scale: int
    constant: int | float
    tables: Mapping[int, NDArray[Any]] = field(default_factory=dict)
    prices: Mapping[int, int | float] = field(default_factory=dict)
    threshold: int | float = math.inf

    def with_threshold(self, problem: Problem, consumption: Consumption | None = None) -> RowBound | None:
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
            if total + paid < LARGEST_BOUNDED_SUM:
                total += paid
            else:  # a bound that counts nothing for what rows consume is lower, and holds
                bound = replace(bound, prices={})
        return bound if total < LARGEST_BOUNDED_SUM else None

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
        level_of : run of each variable. levels : number of runs. dtype : of the message's values.
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


MOST_SCALE_BITS = 20
"""Maximum number of fraction bits for integer costs: multipliers are small fractions, such as thirds of costs."""

FLOAT_BITS = 44
"""Bits for floating-point costs: they are rounded down to multiples of 2**-44 of the sum of their magnitudes."""

LARGEST_EXPONENT = sys.float_info.max_exp - 1
"""Largest exponent of the scale in float64: if all costs together are below 1e-295, the resolution is coarser."""

COST_BITS = 52
"""Limit of scaled sums of costs, in bits: leaves room for multipliers in 64 bits."""

LARGEST = 2**61
"""Limit of any sum of scaled constants and entries."""

LARGEST_FLOAT_TOTAL = 2.0**1000
"""Limit of sums of floating-point costs: sums of terms, up to 2**17 times as large, stay finite."""

LARGEST_TOTAL = 2**62
"""Limit of sums of integer costs: no dtype of values holds larger sums, either."""


@dataclass(frozen=True)
class FixedPoint:
    """Conversion of the costs of one problem to integers, rounded down: bounds are computed exactly.

    Multipliers of a relaxation are found in floating point. They are rounded first, to multiples of ``1 / scale``. All
    further computations are in integers, so that no rounding error can make a bound too high.

    scale : a power of two; a cost c is stored as c * scale, rounded down. An int for problems of integers.
    is_integral : whether all costs are integers; rounding then loses nothing.
    magnitude : sum of the largest absolute values of all functions, and of the constant.
    rounding : relative error of sums of floats.
    """

    scale: int | float
    is_integral: bool
    magnitude: int | float
    rounding: float = 0.0

    @classmethod
    def of(cls, problem: Problem) -> FixedPoint:
        """The finest fixed point with sums of the problem's costs below 2 ** :data:`COST_BITS`.

        Raises ValueRangeError: the sum of floating-point costs may reach :data:`LARGEST_FLOAT_TOTAL`, or that of
        integers :data:`LARGEST_TOTAL`.
        """
        check_deadline()
        if problem.is_integral:
            total = int(problem.magnitude)
            if total >= LARGEST_TOTAL:
                raise ValueRangeError(
                    f"{problem.name}: sums of values may leave 64-bit integers, or come to what stands for infeasible "
                    "in them; scale the costs down"
                )
            bits = COST_BITS - total.bit_length()
            return cls(1 << min(MOST_SCALE_BITS, max(0, bits)), True, total)
        largest = float(problem.magnitude)
        if largest >= LARGEST_FLOAT_TOTAL:
            raise ValueRangeError(
                f"{problem.name}: sums of values may leave the range of float64; scale the costs down"
            )
        exponent = math.frexp(largest)[1] if largest else 0
        scale = math.ldexp(1.0, min(FLOAT_BITS - exponent, LARGEST_EXPONENT))
        return cls(scale, False, largest, relative_rounding(problem))

    def down(self, values: Any) -> NDArray[np.int64]:
        """Costs (an array or a number) as integers, rounded down."""
        if self.is_integral:
            return np.asarray(values, dtype=np.int64) * np.int64(self.scale)
        return np.floor(np.asarray(values, dtype=np.float64) * self.scale).astype(np.int64)

    def nearest(self, values: Any) -> NDArray[np.int64]:
        """Multipliers (an array or a number), rounded to nearest: valid for quantities of any value."""
        return np.rint(np.asarray(values, dtype=np.float64) * float(self.scale)).astype(np.int64)


LARGEST_SUM = 2**62
"""Limit of a row's sum in units of fixed point: below it, removed values are priced prohibitively without overflow."""

SWEEPS = 3
"""Number of passes that select hard terms over eliminated variables; a third pass hardly ever changes anything."""


@dataclass(frozen=True)
class BoundTerms:
    """Terms in flat arrays, the arguments of :func:`oocbe.kernels.cpu.buckets.outside_terms.sum_outside`.

    start : int64 (terms + 1,), CSR into ``variable`` and ``offset``.
    variable, offset : int64, variables of each term and where their entries (domain size each) begin.
    entries : int64. constant : int64 (terms,). kind : uint8 (terms,), SOFT, HARD, LITERAL or CONSUMED.
    linear : (term, index of the linear constraint, multiplier) of each consumed term.
    """

    start: NDArray[np.int64]
    variable: NDArray[np.int64]
    offset: NDArray[np.int64]
    entries: NDArray[np.int64]
    constant: NDArray[np.int64]
    kind: NDArray[np.uint8]
    linear: tuple[tuple[int, int, int], ...] = ()

    def magnitude(self) -> float:
        """Sum of the absolute values of all constants and entries: no sum of terms exceeds it."""
        return float(np.abs(self.constant, dtype=np.float64).sum() + np.abs(self.entries, dtype=np.float64).sum())

    def joined(self, other: BoundTerms) -> BoundTerms:
        """The terms of both, in order."""
        return BoundTerms(
            np.concatenate([self.start, other.start[1:] + len(self.variable)]),
            np.concatenate([self.variable, other.variable]),
            np.concatenate([self.offset, other.offset + len(self.entries)]),
            np.concatenate([self.entries, other.entries]),
            np.concatenate([self.constant, other.constant]),
            np.concatenate([self.kind, other.kind]),
            self.linear + tuple((term + len(self.constant), number, price) for term, number, price in other.linear),
        )

    def restricted(self, kept: Sequence[NDArray[np.int64]]) -> BoundTerms:
        """The terms over variables with several (ascending) ``kept`` values, renumbered; others turn into constants."""
        counts = np.array([len(values) for values in kept], dtype=np.int64)
        first, values = starts_of(counts), np.concatenate([np.zeros(0, dtype=np.int64), *kept])
        is_fixed = counts[self.variable] == 1
        term = np.repeat(np.arange(len(self.constant)), np.diff(self.start))
        constant = self.constant.copy()
        fixed = self.offset[is_fixed] + values[first[self.variable[is_fixed]]]
        np.add.at(constant, term[is_fixed], self.entries[fixed])
        # Terms may share entries.
        width = len(self.entries) + 1
        shared = self.variable[~is_fixed] * width + self.offset[~is_fixed]
        blocks, block = np.unique(shared, return_inverse=True)
        owner, begin = np.divmod(blocks, width)
        offset, length = starts_of(counts[owner]), counts[owner]
        places = np.arange(offset[-1]) + np.repeat(first[owner] - offset[:-1], length)
        return BoundTerms(
            starts_of(np.bincount(term[~is_fixed], minlength=len(constant))),
            (np.cumsum(counts > 1) - 1)[self.variable[~is_fixed]],
            offset[block],
            self.entries[np.repeat(begin, length) + values[places]],
            constant,
            self.kind,
            self.linear,
        )


class BoundSource:
    """Bounds on the rows of any message of one problem.

    name, why : for the plan: what the bounds are made of, and the bound at the root.
    problem : the bounded problem, in the min-sum semiring. fixed_point : of the terms.
    terms : under-estimators; for every function, and for the constant, at most one soft term.
    removed : uint8, for all (variable, value) pairs in order: 1 where no assignment that counts has the value.
    margin : error bound of sums of floats.
    root : lower bound on the value of every assignment that counts, rounded up to a value that the problem can have;
        infinite where nothing counts.
    assignment : an assignment found on the way, or None. The bounds then hold for assignments strictly better than it.
    Raises ValueRangeError: sums of the terms may overflow 64-bit integers.
    """

    def __init__(
        self,
        name: str,
        why: str,
        problem: Problem,
        fixed_point: FixedPoint,
        terms: BoundTerms,
        removed: NDArray[np.uint8],
    ) -> None:
        self.name, self.why = name, why
        self.assignment: tuple[int, ...] | None = None
        self.terms, self.removed, self.fixed_point = terms, removed, fixed_point
        self._sizes = problem.sizes
        self._first = starts_of(problem.sizes)
        self._grid, self._is_integral = problem.value_grid, problem.is_integral
        magnitude = terms.magnitude()
        if magnitude > LARGEST:
            raise ValueRangeError(f"{problem.name}: the terms of the {name} bound leave 64-bit integers")
        # More than the difference of any two bounds or values: a row with a removed value is pruned.
        self._excess = 2 * (int(magnitude) + int(fixed_point.magnitude * fixed_point.scale)) + 2
        sums_to = float(fixed_point.magnitude) + magnitude / float(fixed_point.scale)
        self.margin = sums_to * fixed_point.rounding
        everything, self._sums, _ = self._sum(np.full(len(self._sizes), OUTSIDE, dtype=np.uint8))
        self._least = everything + int(self._least_of_each(self._sums).sum())
        is_empty = bool(len(self._sizes)) and bool(np.minimum.reduceat(removed, self._first[:-1]).any())
        self.root: int | float = math.inf if is_empty else self._rounded(self._least)

    def for_message(self, eliminated: int, separator: Sequence[int]) -> RowBound:
        """Bound the rows of a message.

        eliminated : bit set of the variables eliminated in the message's subtree, the bucket's own included.
        separator : the message's variables, in any order.
        """
        count = len(self._sizes)
        bits = np.frombuffer(eliminated.to_bytes(count // 8 + 1, "little"), dtype=np.uint8)
        role = np.unpackbits(bits, bitorder="little", count=count) * np.uint8(ELIMINATED)
        role[list(separator)] = SEPARATOR
        constant, sums, prices = self._sum(role)
        constant += int(self._least_of_each(sums)[role == OUTSIDE].sum())
        if self._excess * (len(separator) + 1) < LARGEST_SUM:
            sums[self.removed > 0] += self._excess
        tables = {v: sums[self._slice(v)] for v in separator}
        tables = {v: table for v, table in tables.items() if table.any()}
        if self.fixed_point.is_integral:
            return RowBound(int(self.fixed_point.scale), constant, tables, prices)
        scale = float(self.fixed_point.scale)
        bound = RowBound(
            1,
            constant / scale - self.margin,
            {v: table / scale for v, table in tables.items()},
            {number: price / scale for number, price in prices.items()},
        )
        return bound.rounded_down() if self._is_integral else bound

    def restricted(self, problem: Problem, kept: Sequence[NDArray[np.int64]]) -> BoundSource:
        """The bounds of the remaining problem after the removal of values.

        problem : over the variables with several values left. kept : remaining values of each variable, ascending.
        """
        removed = [self.removed[self._slice(v)][values] for v, values in enumerate(kept) if len(values) > 1]
        removed_left = np.concatenate([self.removed[:0], *removed])
        return BoundSource(self.name, self.why, problem, self.fixed_point, self.terms.restricted(kept), removed_left)

    def fixed_values(self, upper_bound: int | float) -> list[tuple[int, int]]:
        """Pairs (variable, value) that no assignment with a value below ``upper_bound`` has.

        These are the pairs whose reduced cost lifts the root bound to it, and those removed.
        """
        least, reduced = self.reduced_costs()
        variables = np.repeat(np.arange(len(self._sizes)), self._sizes)
        found = []
        for place in np.flatnonzero((reduced > 0) | (self.removed > 0) | (self.root >= upper_bound)).tolist():
            if self.removed[place] or self._rounded(least + int(reduced[place])) >= upper_bound:
                v = int(variables[place])
                found.append((v, place - int(self._first[v])))
        return found

    def reduced_costs(self) -> tuple[int, NDArray[np.int64]]:
        """Scaled root bound, not rounded up, and the increase by each remaining (variable, value) pair."""
        return self._least, self._sums - np.repeat(self._least_of_each(self._sums), self._sizes)

    def _slice(self, v: int) -> slice:
        return slice(int(self._first[v]), int(self._first[v + 1]))

    def _rounded(self, bound: int) -> int | float:
        """A scaled bound as a value, rounded up to the next value that the problem can take."""
        if not self.fixed_point.is_integral:
            return bound / float(self.fixed_point.scale) - self.margin
        return self._grid.round_up(-(-bound // int(self.fixed_point.scale)))

    def _least_of_each(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Least sum over each variable's remaining values (over all values if none remains)."""
        if not self._sizes:
            return np.zeros(0, dtype=np.int64)
        begin = self._first[:-1]
        left = np.minimum.reduceat(np.where(self.removed > 0, np.iinfo(np.int64).max, sums), begin)
        is_empty = np.minimum.reduceat(self.removed, begin) > 0
        return np.where(is_empty, np.minimum.reduceat(sums, begin), left)

    def _sum(self, role: NDArray[np.uint8]) -> tuple[int, NDArray[np.int64], dict[int, int]]:
        """Constant and value sums of the terms outside a message, and prices of consumption by linear constraint."""
        sums = np.zeros(int(self._first[-1]), dtype=np.int64)
        terms = self.terms
        if len(terms.constant) == 0:
            return 0, sums, {}
        kept = np.empty(len(terms.constant), dtype=np.uint8)
        uses = (terms.start, terms.variable, terms.offset)
        parts = (terms.entries, terms.constant, terms.kind)
        arguments = (*uses, *parts, self._first, role, self.removed, SWEEPS, sums, kept)
        total = sum_outside(*arguments)
        prices: dict[int, int] = {}
        for term, number, price in terms.linear:
            if kept[term]:
                prices[number] = prices.get(number, 0) + price
        return int(total), sums, prices
