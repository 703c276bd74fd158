"""The rows' consumption of linear constraints, as one packed number in their keys.

A linear constraint over many variables is too large for a lookup. But its left-hand side is a sum, so a message can
carry it: the rows of one separator assignment differ in the *consumption* of the variables eliminated below them, and a
bucket adds the consumptions of its tables and its own variable. Every variable takes at least its smallest coefficient;
consumption is the excess over that, in units of the coefficients' greatest common divisor, and the *limit* is the
remaining capacity. So coefficients of any sign become nonnegative numbers, and a row whose consumption exceeds the
limit is dropped at once.

A row's consumption excludes the separator's variables, but their amount is known from the key, and a row must leave
room for it, too. So rows without room for their own assignment are dropped, regardless of the remaining variables.

Several constraints are packed side by side in one integer, a bit field each with one spare bit: the packed consumptions
of two rows are added as one number, and one subtraction checks every field against its limit.

Small constraints are enforced by lookup instead. Constraints that do not fit in keys are *left out*: the optimum
without them is a bound, and if its assignment satisfies them, it is the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.model.parts import LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuning
from oocbe.tables.layout import WORD_BITS, Field, bits_for

if TYPE_CHECKING:
    from oocbe.kernels.cpu.buckets.join_arrays import ConsumptionArrays

LOOKUP_BITS = 20
"""Maximum index bits of a packed factor: a million entries, which as bits fit in a second-level cache."""

TABULATED_BITS = LOOKUP_BITS
"""Maximum index bits of linear constraints that are enforced as packed constraints."""

USUAL_BITS = 32
"""Limit of the packed consumption in bits, if not all constraints fit in :data:`MOST_BITS`."""

MOST_BITS = 62
"""Limit in bits if all constraints then fit, or if otherwise none would: packed numbers, and sums of two of them, are
signed 64-bit integers. The eliminated variable is in the same word of the key."""

INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class _Resource:
    """One linear constraint with coefficients of at least 0: ``taken[v]`` for each variable that takes any."""

    taken: dict[int, list[int]]
    limit: int
    unit: int

    @property
    def bits(self) -> int:
        """Bits of its field, including the spare one."""
        return _bits(self.limit)

    @staticmethod
    def of(linear: LinearConstraint) -> _Resource:
        """The constraint in units of its coefficients' common divisor; the limit may be negative."""
        unit = _unit(linear)
        taken = {
            v: [(amount - low) // unit for amount in own.tolist()]
            for v, own, low, high in zip(linear.scope, linear.coefficients, *linear.ends, strict=True)
            if low < high
        }
        return _Resource(taken, _limit(linear, unit), unit)


def _unit(linear: LinearConstraint) -> int:
    """Greatest common divisor of all differences between a value's coefficient and its variable's least one."""
    unit = 0
    for own, low, high in zip(linear.coefficients, *linear.ends, strict=True):
        if low < high <= INT64.max + min(0, low):
            unit = math.gcd(unit, int(np.gcd.reduce(own - low)))
        elif low < high:
            unit = math.gcd(unit, *(amount - low for amount in own.tolist()))
        if unit == 1:
            break
    return unit or 1


def _limit(linear: LinearConstraint, unit: int) -> int:
    """Capacity minus the cheapest values, in units; negative if they exceed it."""
    return (linear.capacity - linear.least) // unit


def _bits(limit: int) -> int:
    """Bits of a field for numbers up to a limit and sums of two of them."""
    return limit.bit_length() + 1


@dataclass(frozen=True)
class Consumption:
    """Layout of a problem's linear constraints in keys.

    numbers : the constraints carried, by their index in ``Problem.linear_constraints``.
    limits : of each, in its unit. units : size of each unit in the constraint's own coefficients.
    shifts, widths : bit field of each in the packed consumption, the spare bit included.
    own : int64 (domain size,) for each of the problem's variables, packed consumption of its values; amounts above a
        limit are stored as the limit plus 1.
    """

    numbers: tuple[int, ...]
    limits: tuple[int, ...]
    units: tuple[int, ...]
    shifts: tuple[int, ...]
    widths: tuple[int, ...]
    own: tuple[NDArray[np.int64], ...]

    @property
    def bits(self) -> int:
        """Bits of the packed consumption."""
        return sum(self.widths)

    @property
    def guards(self) -> int:
        """The spare bits."""
        return sum(1 << (s + w - 1) for s, w in zip(self.shifts, self.widths, strict=True))

    @property
    def limit(self) -> int:
        """All limits, packed."""
        return sum(limit << s for limit, s in zip(self.limits, self.shifts, strict=True))

    @property
    def parts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shift and mask of each constraint's field, int64 (constraints,)."""
        masks = [(1 << width) - 1 for width in self.widths]
        return np.array(self.shifts, dtype=np.int64), np.array(masks, dtype=np.int64)

    def savings(self, v: int, replaced: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
        """Consumption of the replaced values minus that of the targets, int64 (pairs, constraints)."""
        shifts, masks = self.parts
        own = (self.own[v][:, None] >> shifts) & masks
        return own[replaced] - own[target]

    def fits(self, packed: NDArray[np.int64], room: int | None = None) -> NDArray[np.bool_]:
        """Whether packed consumptions are within the limits, or within a packed ``room`` that is within them.

        Without a room, sums of two numbers within the limits are permitted; with one, the numbers must be within them.
        """
        guards = np.int64(self.guards)
        limit = np.int64(self.limit if room is None else room)
        within: NDArray[np.bool_] = (((limit | guards) - packed) & guards) == guards
        return within

    @property
    def beyond(self) -> int:
        """Each limit plus 1, packed."""
        return sum((limit + 1) << s for limit, s in zip(self.limits, self.shifts, strict=True))

    def ahead(self, separator: Sequence[int], fields: Sequence[Field], merged_bits: int) -> dict[str, NDArray[Any]]:
        """Lookup tables of the separator values' consumption, the last fields of
        :class:`~oocbe.kernels.cpu.buckets.join_arrays.ConsumptionArrays`; neighbours share a table of at most
        ``merged_bits``."""
        groups: list[tuple[Field, NDArray[np.int64]]] = []
        for v, field in zip(separator, fields, strict=True):
            own = self.own[v]
            if not own.any():
                continue
            if len(own) < 1 << field.bits:
                own = np.pad(own, (0, (1 << field.bits) - len(own)))
            last = groups[-1][0] if groups else None
            if (
                last is not None
                and last.word == field.word
                and last.shift + last.bits == field.shift
                and last.bits + field.bits <= merged_bits
            ):
                groups[-1] = (Field(last.word, last.shift, last.bits + field.bits), self._sums(groups[-1][1], own))
            else:
                groups.append((field, own))
        return {
            "ahead_word": np.array([f.word for f, _ in groups], dtype=np.int64),
            "ahead_shift": np.array([f.shift for f, _ in groups], dtype=np.uint64),
            "ahead_mask": np.array([f.mask for f, _ in groups], dtype=np.uint64),
            "ahead_base": np.cumsum([0, *(len(sums) for _, sums in groups)], dtype=np.int64)[: len(groups)],
            "ahead": np.concatenate([np.zeros(0, dtype=np.int64), *(sums for _, sums in groups)]),
        }

    def _sums(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
        """Consumption of two fields together, the second above the first; above a limit it is :attr:`beyond`."""
        # Only numbers within the limits are added: their sums stay within the fields.
        sums = np.add.outer(high, low)
        fits = np.logical_and.outer(self.fits(high), self.fits(low)) & self.fits(sums)
        return np.where(fits, sums, self.beyond).ravel()


def consumption_arrays(
    consumption: Consumption | None,
    variable: int,
    separator: Sequence[int],
    fields: Sequence[Field],
    rows: int,
    keeps_staircase: bool,
    prices: Sequence[int | float],
    dtype: np.dtype[Any],
    one: Any,
) -> ConsumptionArrays:
    """Consumption as the arguments of one bucket's join.

    consumption : None if rows carry none. variable : the variable that is eliminated.
    separator, fields : the other variables, and their fields in the message's keys, the lowest first.
    rows : of the joined tables; with few rows, sums over several variables do not pay.
    keeps_staircase : whether only the Pareto front (consumption, value) of each key's rows is kept.
    prices : contribution of a unit of each constraint to bounds; empty if nothing is pruned.
    dtype : of the bounds, int64 or float64. one : neutral value of the messages' dtype.
    """
    from oocbe.kernels.cpu.buckets.join_arrays import ConsumptionArrays

    unit_key, unit_value = np.zeros(1, dtype=np.uint64), np.array([one])
    if consumption is None:
        none, free = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=dtype)
        unsigned = np.zeros(0, dtype=np.uint64)
        nowhere = (none, unsigned, unsigned, none, none)
        return ConsumptionArrays(0, 0, 0, 0, False, none, unit_key, unit_value, none, none, free, *nowhere)
    shifts, masks = consumption.parts
    given = np.zeros(len(masks), dtype=dtype)
    given[: len(prices)] = prices
    ahead = consumption.ahead(separator, fields, min(tuning().merged_bits, max(1, rows.bit_length() - 2)))
    return ConsumptionArrays(
        bits=consumption.bits,
        limit=consumption.limit | consumption.guards,
        guards=consumption.guards,
        group_shift=consumption.widths[0],
        keeps_staircase=keeps_staircase,
        own=consumption.own[variable],
        unit_key=unit_key,
        unit_value=unit_value,
        shift=shifts,
        mask=masks,
        price=given,
        **ahead,
    )


def consumption_of(problem: Problem, numbers: Sequence[int]) -> Consumption | None:
    """The packing of the constraints with these indices; None without constraints.

    All their limits must be at least 0 (:func:`carried` selects constraints that can be carried).
    """
    if not numbers:
        return None
    resources = [_Resource.of(problem.linear_constraints[number]) for number in numbers]
    widths = tuple(r.bits for r in resources)
    shifts = tuple(sum(widths[:i]) for i in range(len(widths)))
    own = [np.zeros(size, dtype=np.int64) for size in problem.sizes]
    for resource, shift in zip(resources, shifts, strict=True):
        for v, amounts in resource.taken.items():
            own[v] += np.array([min(a, resource.limit + 1) << shift for a in amounts], dtype=np.int64)
    limits, units = tuple(r.limit for r in resources), tuple(r.unit for r in resources)
    return Consumption(tuple(numbers), limits, units, shifts, widths, tuple(own))


def most_bits(problem: Problem) -> int:
    """Maximum bits of a problem's packed consumption: it shares the lowest word with the largest variable."""
    return min(MOST_BITS, WORD_BITS - bits_for(max(problem.sizes, default=1)))


def carried(problem: Problem, numbers: Iterable[int]) -> tuple[int, ...]:
    """Indices of the constraints that are carried in keys: in the given order, as long as they fit.

    Several constraints produce many rows: more than :data:`USUAL_BITS` bits are used only if that enforces them all, or
    if otherwise none would be carried. No constraint may be impossible
    (:attr:`~oocbe.model.parts.LinearConstraint.is_impossible`).
    """
    bits = {}
    for number in numbers:
        linear = problem.linear_constraints[number]
        bits[number] = _bits(_limit(linear, _unit(linear)))
    most = most_bits(problem)
    if sum(bits.values()) <= most:
        return tuple(bits)
    return _in_order(bits, min(most, USUAL_BITS)) or _in_order(bits, most)


def _in_order(bits: Mapping[int, int], room: int) -> tuple[int, ...]:
    """Greedy selection, in order, of the constraints that fit."""
    found = []
    for number, needed in bits.items():
        if needed <= room:
            found.append(number)
            room -= needed
    return tuple(found)


def is_tabulated(problem: Problem, linear: LinearConstraint) -> bool:
    """Whether a linear constraint is enforced as a packed constraint: it can bind and its scope is small."""
    return linear.can_bind and sum(bits_for(problem.sizes[v]) for v in linear.scope) <= TABULATED_BITS


def _large(problem: Problem) -> list[int]:
    """Linear constraints, by index, that can bind, can be satisfied by themselves, and are no packed constraints."""
    return [
        number
        for number, c in enumerate(problem.linear_constraints)
        if c.scope and c.can_bind and not is_tabulated(problem, c) and not c.is_impossible
    ]


def carried_in_rows(problem: Problem) -> tuple[int, ...]:
    """Linear constraints, by index, whose consumption is part of the rows' keys."""
    return carried(problem, _large(problem))


def left_out(problem: Problem) -> list[LinearConstraint]:
    """Linear constraints that can bind and that elimination does not enforce."""
    large = _large(problem)
    inside = carried(problem, large)
    return [problem.linear_constraints[number] for number in large if number not in inside]


def why_left_out(relaxed: Sequence[LinearConstraint]) -> str:
    """A sentence about the first of some constraints that are left out."""
    c = relaxed[0]
    return (
        f"{c.name}: elimination carries what rows consume of linear constraints in up to {MOST_BITS} bits of their "
        f"keys, and there is no room for a capacity of {c.capacity} over {len(c.scope)} variables; divide its "
        "coefficients and capacity by a common factor (rounding changes the problem), or leave it out"
    )
