"""The values that assignments of a problem can have."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ValueGrid:
    """The values that assignments of a problem can have: ``offset + step * k`` for integers k; step 0: any number.

    A bound between two values of the grid may be rounded up, so that a row goes as soon as its bound exceeds
    ``largest_below(incumbent)``, often by much less than the incumbent itself.
    """

    step: int
    offset: int

    def round_up(self, bound: int | float) -> int | float:
        """The least value of the grid that is not below a bound."""
        if self.step == 0 or bound == math.inf:
            return bound
        return self.offset - (self.offset - math.ceil(bound)) // self.step * self.step

    def largest_below(self, value: int | float) -> int | float:
        """The largest value of the grid strictly below a value; without a grid, the next float below."""
        if self.step == 0 or value == math.inf:
            return math.nextafter(value, -math.inf)
        return self.offset + (math.ceil(value) - 1 - self.offset) // self.step * self.step
