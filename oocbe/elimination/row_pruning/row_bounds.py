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
a few lookups (:mod:`oocbe.elimination.engine.row_bound`).

Only assignments that *count* are bounded: feasible ones with a value below ``Problem.upper_bound``, if there is one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.engine.row_bound import RowBound
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.errors import ValueRangeError
from oocbe.kernels.cpu.buckets.outside_terms import ELIMINATED, OUTSIDE, SEPARATOR, sum_outside
from oocbe.model.problem import Problem, relative_rounding
from oocbe.runtime.deadline import check_deadline

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
        """The terms over the variables with several values left, renumbered; one value left adds to the constants.

        kept : remaining values of each variable, ascending.
        """
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

    Parameters
    ----------
    name, why : for the plan: what the bounds are made of, and the bound at the root.
    problem : the bounded problem, in the min-sum semiring.
    fixed_point : of the terms.
    terms : under-estimators; for every function, and for the constant, at most one soft term.
    removed : uint8, for all (variable, value) pairs in order: 1 where no assignment that counts has the value.

    Attributes
    ----------
    margin : error bound of sums of floats.
    root : lower bound on the value of every assignment that counts, rounded up to a value that the problem can have;
        infinite where nothing counts.
    assignment : an assignment found on the way, or None. The bounds then hold for assignments strictly better than it.

    Raises
    ------
    ValueRangeError : sums of the terms may overflow 64-bit integers.
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
        self.name = name
        self.why = why
        self.assignment: tuple[int, ...] | None = None
        self.terms = terms
        self.removed = removed
        self.fixed_point = fixed_point
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
        scale = int(self.fixed_point.scale)
        return self._grid.round_up(-(-bound // scale))

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
