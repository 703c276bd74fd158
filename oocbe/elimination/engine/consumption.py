"""What rows consume of linear constraints, as one packed number that is part of their keys.

A linear constraint over many variables is no factor that a join can look up. But its left-hand side is a sum, so a
message can carry it: the rows of a separator's assignment then differ in what the variables eliminated below them
*consume*, and a bucket adds up what its tables and its own variable do. Every variable takes the least of its
coefficients in any case; consumption is what it takes beyond that, in units of the coefficients' greatest common
divisor, and the *limit* is what is left of the capacity. So coefficients of any sign become numbers of at least 0, and
a row whose consumption exceeds the limit can be dropped at once.

What the separator's variables themselves take is not in a row's consumption yet, but known: a row must leave room for
it, too. So no row stays that has no room for its own assignment, whatever the variables still to come take.

Several constraints are carried side by side in one integer, a bit field each with one bit to spare: two rows' packed
consumptions are added as one number, and one subtraction tells whether every field is within its limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.buckets.join_arrays import ConsumptionArrays
from oocbe.model.parts import LinearConstraint
from oocbe.model.problem import Problem
from oocbe.tables.layout import WORD_BITS, Field, bits_for

USUAL_BITS = 32
"""Bits that the packed consumption takes where not all constraints have room anyway."""

MOST_BITS = 62
"""Bits that it takes at most, where all constraints have room then, or one that would have none: packed numbers, and
sums of two of them, are signed integers of 64 bits. The eliminated variable is in the same word of the key."""

MERGED_BITS = 8
"""Bits of the separator's key that are looked up together: what they consume is added up for each bucket."""

INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class _Resource:
    """One linear constraint with coefficients of at least 0: ``taken[v]`` for each variable that takes any."""

    taken: dict[int, list[int]]
    limit: int
    unit: int

    @property
    def bits(self) -> int:
        """Of its field, the one to spare included."""
        return _bits(self.limit)

    @staticmethod
    def of(linear: LinearConstraint) -> _Resource:
        """The constraint in units of what its coefficients have in common; the limit may be negative."""
        unit = _unit(linear)
        taken = {
            v: [(amount - low) // unit for amount in own.tolist()]
            for v, own, low, high in zip(linear.scope, linear.coefficients, *linear.ends, strict=True)
            if low < high
        }
        return _Resource(taken, _limit(linear, unit), unit)


def _unit(linear: LinearConstraint) -> int:
    """The greatest common divisor of what values of a variable take more than its cheapest one."""
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
    """What is left of the capacity beyond the cheapest values, in units; negative where these exceed it."""
    return (linear.capacity - linear.least) // unit


def _bits(limit: int) -> int:
    """Of a field for numbers up to a limit, and the sum of two of them."""
    return limit.bit_length() + 1


@dataclass(frozen=True)
class Consumption:
    """How the linear constraints of a problem are carried in keys.

    Attributes
    ----------
    numbers : the constraints carried, by their index in ``Problem.linear_constraints``.
    limits : of each, in its unit. units : what one unit of each is in the constraint's own coefficients.
    shifts, widths : bit field of each in the packed consumption, the spare bit included.
    own : int64 (domain size,) for each of the problem's variables, packed consumption of its values; what exceeds a
        limit counts as the limit and one.
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
        """What some values of a variable consume more than others, int64 (pairs, constraints)."""
        shifts, masks = self.parts
        own = (self.own[v][:, None] >> shifts) & masks
        difference: NDArray[np.int64] = own[replaced] - own[target]
        return difference

    def fits(self, packed: NDArray[np.int64], room: int | None = None) -> NDArray[np.bool_]:
        """Whether packed consumptions are within the limits, or within a packed ``room`` that is.

        They may be sums of two that are within the limits; with a room, they must be within the limits themselves.
        """
        guards = np.int64(self.guards)
        limit = np.int64(self.limit if room is None else room)
        within: NDArray[np.bool_] = (((limit | guards) - packed) & guards) == guards
        return within

    @cached_property
    def _consumers(self) -> frozenset[int]:
        """Variables some of whose values consume anything."""
        return frozenset(v for v, own in enumerate(self.own) if own.any())

    @property
    def beyond(self) -> int:
        """One more than each limit, packed."""
        return sum((limit + 1) << s for limit, s in zip(self.limits, self.shifts, strict=True))

    def ahead(self, separator: Sequence[int], fields: Sequence[Field], merged_bits: int) -> _Ahead:
        """What the values of separator variables consume, neighbours looked up together, of so many bits at most."""
        groups: list[tuple[Field, NDArray[np.int64]]] = []
        for v, field in zip(separator, fields, strict=True):
            if v not in self._consumers:
                continue
            own = self.own[v]
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
        return _Ahead(
            np.array([f.word for f, _ in groups], dtype=np.int64),
            np.array([f.shift for f, _ in groups], dtype=np.uint64),
            np.array([f.mask for f, _ in groups], dtype=np.uint64),
            np.array([0, *(len(sums) for _, sums in groups[:-1])], dtype=np.int64).cumsum()[: len(groups)],
            np.concatenate([np.zeros(0, dtype=np.int64), *(sums for _, sums in groups)]),
        )

    def _sums(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
        """What two fields consume together, the second one above the first; what passes a limit as :attr:`beyond`."""
        # Two that are within the limits add up within their fields; others are not to be added.
        sums = np.add.outer(high, low)
        fits = np.logical_and.outer(self.fits(high), self.fits(low)) & self.fits(sums)
        found: NDArray[np.int64] = np.where(fits, sums, self.beyond).ravel()
        return found


class _Ahead(NamedTuple):
    """The last fields of :class:`~oocbe.kernels.cpu.buckets.join_arrays.ConsumptionArrays`."""

    word: NDArray[np.int64]
    shift: NDArray[np.uint64]
    mask: NDArray[np.uint64]
    base: NDArray[np.int64]
    entries: NDArray[np.int64]


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
    """What rows carry as the join of one bucket takes it.

    Parameters
    ----------
    consumption : None where rows carry none. variable : the variable that is eliminated.
    separator, fields : the others, and where they are in the message's keys, the lowest first.
    rows : of the tables joined; few do not repay sums over several variables.
    keeps_staircase : of the rows of one key, those go that consume no less than another and are no better.
    prices : what bounds count for a unit of each constraint; none where nothing is pruned.
    dtype : of the bounds, int64 or float64. one : neutral value of the messages' dtype.
    """
    unit_key, unit_value = np.zeros(1, dtype=np.uint64), np.array([one])
    if consumption is None:
        none, free = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=dtype)
        unsigned = np.zeros(0, dtype=np.uint64)
        nowhere = _Ahead(none, unsigned, unsigned, none, none)
        return ConsumptionArrays(0, 0, 0, 0, False, none, unit_key, unit_value, none, none, free, *nowhere)
    shifts, masks = consumption.parts
    given = np.zeros(len(masks), dtype=dtype)
    given[: len(prices)] = prices
    ahead = consumption.ahead(separator, fields, min(MERGED_BITS, max(1, rows.bit_length() - 2)))
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
        ahead_word=ahead.word,
        ahead_shift=ahead.shift,
        ahead_mask=ahead.mask,
        ahead_base=ahead.base,
        ahead=ahead.entries,
    )


def consumption_of(problem: Problem, numbers: Sequence[int]) -> Consumption | None:
    """How to carry the constraints with these indices; None where there are none.

    The limits of all of them must be at least 0 (:func:`carried` gives those that can be carried).
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
    """Bits that the packed consumption of a problem may take, beside its largest variable in the lowest word."""
    return min(MOST_BITS, WORD_BITS - bits_for(max(problem.sizes, default=1)))


def carried(problem: Problem, numbers: Iterable[int]) -> tuple[int, ...]:
    """Those of some constraints, by index, that are carried in keys: in the order given, as long as there is room.

    Several constraints make many rows: more than :data:`USUAL_BITS` are taken only where that enforces them all, or
    where none would be carried. They must be possible (:attr:`~oocbe.model.parts.LinearConstraint.is_impossible`).
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
    """Those that find room, one after the other."""
    found = []
    for number, needed in bits.items():
        if needed <= room:
            found.append(number)
            room -= needed
    return tuple(found)
