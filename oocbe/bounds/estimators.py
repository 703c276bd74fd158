"""Additive under-estimators: the common form of all reparametrisations, and the bounds on rows derived from them.

A *term* states ``constant + Σ_v entries_v(x_v) <= part(x)`` for a part of the problem, in fixed point. A *soft* term
bounds one function. A *hard* term is at most 0 for every assignment that counts: a multiplier times a valid
inequality (``-y * rhs + Σ y * coef * x <= 0``), or the costs charged to a hard constraint. A *literal* term is an
inequality of literals with coefficients of at least 0; where it is violated, the costly tuples of functions
(:mod:`oocbe.bounds.costly_tuples`) pay for it. A *consumed* term is a multiplier times one of the problem's linear
constraints. The sum of all terms is a lower bound on the problem; each variable then takes its cheapest value
independently.

Functions whose scope meets no eliminated variable lie outside a message. Their terms are added up. So are all hard
terms, as assignments that count satisfy them; eliminated variables contribute their least entry. Literal terms count
without the literals of eliminated variables: the tuples that pay for the rest lie outside. Consumed terms always
count; the consumption by a row's eliminated variables has the multiplier as its price. The remaining sum depends on
the separator's variables separately, and on other variables, which take their cheapest value.

The bound ``constant`` is available for every problem: each function outside a message costs at least its minimum.
Functions over one variable are kept value by value, as they are additive already. All other sources start from these
terms.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.fixed_point import LARGEST, FixedPoint
from oocbe.bounds.forbidden import SingleValues, removed_values
from oocbe.bounds.kernels.cpu.estimators import ELIMINATED, OUTSIDE, SEPARATOR, SOFT, sum_outside
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.elimination.row_pruning.row_bounds import RowBound, ValueGrid
from oocbe.errors import ValueRangeError
from oocbe.kernels.cpu.jit import call
from oocbe.model.problem import Problem

LARGEST_SUM = 2**62
"""Limit of a row's sum in units of fixed point: below it, removed values are priced prohibitively without overflow."""

SWEEPS = 3
"""Number of passes that select hard terms over eliminated variables; a third pass hardly ever changes anything."""


@dataclass(frozen=True)
class Terms:
    """Terms in flat arrays, as :func:`oocbe.bounds.kernels.cpu.estimators.sum_outside` takes them.

    Attributes
    ----------
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


def joined(one: Terms, other: Terms) -> Terms:
    """The concatenated terms."""
    return Terms(
        np.concatenate([one.start, other.start[1:] + len(one.variable)]),
        np.concatenate([one.variable, other.variable]),
        np.concatenate([one.offset, other.offset + len(one.entries)]),
        np.concatenate([one.entries, other.entries]),
        np.concatenate([one.constant, other.constant]),
        np.concatenate([one.kind, other.kind]),
        one.linear + tuple((term + len(one.constant), number, price) for term, number, price in other.linear),
    )


class AdditiveSource:
    """A source of bounds (:class:`oocbe.elimination.row_pruning.row_bounds.BoundSource`) made of terms.

    Parameters
    ----------
    name, why : for the plan.
    problem : the bounded problem, in the min-sum semiring.
    fixed_point : of the terms.
    terms : under-estimators; for every function at most one soft term.
    removed : uint8, for all (variable, value) pairs in order: 1 where no assignment that counts has the value.

    Attributes
    ----------
    margin : error bound of sums of floats.

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
        terms: Terms,
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
        self._constant = int(fixed_point.down(problem.constant))
        self._grid = ValueGrid.of(problem)
        magnitude = terms.magnitude()
        if magnitude + abs(float(self._constant)) > LARGEST:
            raise ValueRangeError(f"{problem.name}: the terms of the {name} bound leave 64-bit integers")
        # More than the difference of any two bounds or values: a row with a removed value is pruned.
        self._excess = 2 * (int(magnitude) + abs(self._constant) + int(fixed_point.magnitude * fixed_point.scale)) + 2
        sums_to = float(fixed_point.magnitude) + magnitude / float(fixed_point.scale)
        self.margin = sums_to * fixed_point.rounding
        everything, self._sums, _ = self._sum(np.full(len(self._sizes), OUTSIDE, dtype=np.uint8))
        self._least = everything + int(self._least_of_each(self._sums).sum())
        is_empty = bool(len(self._sizes)) and bool(np.minimum.reduceat(removed, self._first[:-1]).any())
        self.root: int | float = math.inf if is_empty else self._rounded(self._least)

    def for_message(self, eliminated: int, separator: Sequence[int]) -> RowBound:
        """Bound the rows of a message; see :class:`oocbe.elimination.row_pruning.row_bounds.BoundSource`."""
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
        scaled = {v: table / scale for v, table in tables.items()}
        return RowBound(1, constant / scale - self.margin, scaled, {n: p / scale for n, p in prices.items()})

    def fixed_values(self, upper_bound: int | float) -> list[tuple[int, int]]:
        """Pairs (variable, value) whose reduced cost lifts the root bound to ``upper_bound``, and those removed."""
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
            return self._constant, sums, {}
        kept = np.empty(len(terms.constant), dtype=np.uint8)
        uses = (terms.start, terms.variable, terms.offset)
        parts = (terms.entries, terms.constant, terms.kind)
        arguments = (*uses, *parts, self._first, role, self.removed, SWEEPS, sums, kept)
        total = call(sum_outside, len(terms.entries) + len(terms.variable), *arguments)
        prices: dict[int, int] = {}
        for term, number, price in terms.linear:
            if kept[term]:
                prices[number] = prices.get(number, 0) + price
        return self._constant + int(total), sums, prices


def minimum_terms(problem: Problem, fixed_point: FixedPoint, with_minima: bool = True) -> Terms:
    """Soft terms: functions over one variable as they are, others by their minimum, or not at all.

    Zero terms are left out, as are terms of functions that permit no tuple: every bound holds for these.
    """
    single = SingleValues.of_functions(problem)
    entries = _entries(single, fixed_point)
    says_something = np.zeros(len(single.numbers), dtype=np.bool_)
    if len(entries):
        says_something = np.maximum.reduceat(entries != 0, single.starts[:-1])
    arity = np.fromiter((len(f.scope) for f in problem.functions), dtype=np.int64, count=len(problem.functions))
    minima = scaled_minima(problem, fixed_point)
    others = np.flatnonzero((minima != 0) & (arity != 1) & (with_minima | (arity == 0)))
    # The scope is listed, with entries of 0: the term is outside a message exactly when its function is.
    scopes = [problem.functions[number].scope for number in others.tolist()]
    members = np.fromiter(itertools.chain.from_iterable(scopes), dtype=np.int64, count=int(arity[others].sum()))
    lengths = np.concatenate([np.ones(int(says_something.sum()), dtype=np.int64), arity[others]])
    nothing = np.zeros(max(problem.sizes, default=0) if len(members) else 0, dtype=np.int64)
    return Terms(
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([single.variables[says_something], members]),
        np.concatenate([single.starts[:-1][says_something], np.full(len(members), len(entries))]),
        np.concatenate([entries, nothing]),
        np.concatenate([np.zeros(int(says_something.sum()), dtype=np.int64), minima[others]]),
        np.full(len(lengths), SOFT, dtype=np.uint8),
    )


def scaled_minima(problem: Problem, fixed_point: FixedPoint) -> NDArray[np.int64]:
    """Minimum of each function in fixed point; 0 for functions that permit no tuple."""
    least = problem.least_values
    return fixed_point.down(np.where(least == np.inf, 0, least))


def _entries(single: SingleValues, fixed_point: FixedPoint) -> NDArray[np.int64]:
    """Costs of unary functions in fixed point; forbidden values get the function's maximum; 0 if all are forbidden."""
    costs, permitted, begins = single.costs, single.permitted, single.starts[:-1]
    if not len(costs):
        return np.zeros(0, dtype=np.int64)
    lowest = np.iinfo(np.int64).min if costs.dtype.kind == "i" else -np.inf
    largest = np.maximum.reduceat(np.where(permitted, costs, lowest), begins)
    largest[~np.logical_or.reduceat(permitted, begins)] = 0
    return fixed_point.down(np.where(permitted, costs, np.repeat(largest, np.diff(single.starts))))


def constant_source(problem: Problem) -> AdditiveSource:
    """The source named ``constant``, for any problem in the min-sum semiring."""
    fixed_point = FixedPoint.of(problem)
    removed, is_empty = removed_values(problem)
    if is_empty or (problem.least_values == np.inf).any():
        removed[:] = 1
    terms = minimum_terms(problem, fixed_point)
    source = AdditiveSource("constant", "", problem, fixed_point, terms, removed)
    source.why = f"the functions' minima add up to {source.root}"
    return source
