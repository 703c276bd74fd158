"""A problem's functions as complete tables of costs in fixed point, with a cap.

Each function stores its costs beyond its minimum, rounded down once; later operations are exact in integers. Forbidden
tuples cost the *cap*, and so do tuples that lift an assignment to the threshold by themselves. A sum of tables that
reaches the cap belongs to no assignment that counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.cost_tables import CostTable
from oocbe.bounds.row_tables import ScopeTable, ScopeTables

ROOM = {np.dtype(np.int32): 29, np.dtype(np.int64): 50}
"""Limit of the cap, in bits: twice the cap fits the dtype, and the cap fits the mantissa of a float."""

MOST_SCALE_BITS = 12
"""Maximum number of fraction bits for integer costs: costs are divided into equal parts, which are fractions."""


@dataclass(frozen=True)
class ScaledCosts:
    """Conversion of a problem's costs to integers below a threshold.

    Attributes
    ----------
    tables : of the problem. dtype : int32 or int64. bits : a cost c is stored as c * 2**bits.
    cap : cost of forbidden tuples; 0 if no assignment is below the threshold.
    slack : in units of the stored costs of floats; more than the error of subtraction and scaling.
    """

    tables: ScopeTables
    dtype: np.dtype[Any]
    bits: int
    cap: int
    slack: float = 0.0

    @classmethod
    def of(cls, tables: ScopeTables, threshold: int | float | None, dtype: np.dtype[Any]) -> Self:
        """The finest fixed point within the dtype's range; threshold : only values below it count; None: all count."""
        if tables.is_impossible:
            return cls(tables, dtype, 0, 0)
        most = sum(part.values[part.permitted].max().item() - part.least for part in tables.parts)
        most = int(most) if tables.is_integral else most * (1 + 2.0**-40) + 2 * tables.rounding
        if threshold is not None:
            most = min(most, tables.distance_below(threshold))
        return cls.within(tables, most, dtype, ROOM[np.dtype(dtype)])

    @classmethod
    def within(cls, tables: ScopeTables, distance: int | float, dtype: np.dtype[Any], room: int) -> Self:
        """The finest fixed point with a cap of ``room`` bits, of costs up to a distance above the sum of all minima."""
        if distance < 0:
            return cls(tables, dtype, 0, 0)
        if tables.is_integral:
            bits, slack = min(MOST_SCALE_BITS, room - max(int(distance), 1).bit_length()), 0.0
        else:
            bits, slack = min(1000, room - 1 - math.frexp(distance)[1]), math.ldexp(1.0, room - 52)
        return cls(tables, dtype, bits, _above(distance, bits), slack)

    def cap_for(self, threshold: int | float) -> int:
        """The cap of another threshold, in this scale; at most the own cap."""
        distance = self.tables.distance_below(threshold)
        return min(self.cap, 0 if distance < 0 else _above(distance, self.bits))

    def table(self, part: ScopeTable, order: Sequence[int]) -> CostTable:
        """A function in fixed point; order : of its scope, the slowest first."""
        turned = self.down(part.values - part.least, part.permitted).transpose([part.scope.index(v) for v in order])
        return CostTable(tuple(order), np.ascontiguousarray(turned).ravel())

    def down(self, above: Any, permitted: NDArray[np.bool_]) -> NDArray[Any]:
        """Costs of functions beyond their minima, rounded down and capped."""
        if self.tables.is_integral:
            scaled = above >> -self.bits if self.bits < 0 else np.minimum(above, self.cap) << self.bits
        else:
            scaled = np.floor(np.ldexp(np.minimum(above, math.ldexp(self.cap, -self.bits)), self.bits) - self.slack)
            scaled = np.maximum(scaled, 0)
        return np.where(permitted, np.minimum(scaled, self.cap), self.cap).astype(self.dtype)

    def unscale(self, bound: int) -> int | float:
        """The least value of an assignment whose tables sum to ``bound``; infinite at the cap."""
        if bound >= self.cap:
            return math.inf
        least = self.tables.least
        if self.tables.is_integral:
            above = -(-bound >> self.bits) if self.bits >= 0 else bound << -self.bits
            return self.tables.grid.round_up(int(least) + above)
        return least + math.ldexp(bound, -self.bits) - 2 * self.tables.rounding


def _above(distance: int | float, bits: int) -> int:
    """The least fixed-point number that no cost up to a distance attains."""
    if isinstance(distance, int):
        return (distance << bits if bits >= 0 else distance >> -bits) + 1
    return math.ceil(math.ldexp(distance, bits)) + 1
