"""Digits of packed keys for radix sort, the least significant first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Digit(NamedTuple):
    """Up to eight key bits from one or two positions of a word; the second part's bits are above the first part's."""

    word: int
    shift: int
    bits: int
    second_shift: int = 0
    second_bits: int = 0

    @property
    def size(self) -> int:
        """Number of values of the digit."""
        return 1 << (self.bits + self.second_bits)

    @property
    def arguments(self) -> tuple[np.uint64, ...]:
        """Shifts, masks and position of the second part, as the compiled loops take them."""
        masks = ((1 << self.bits) - 1, ((1 << self.second_bits) - 1) << self.bits)
        # The second shift moves the bits directly above the first part's, possibly to the left.
        right, left = max(0, self.second_shift - self.bits), max(0, self.bits - self.second_shift)
        return tuple(np.uint64(x) for x in (self.shift, masks[0], right, left, masks[1]))

    @property
    def positions(self) -> list[int]:
        """Key bit of each bit of the digit, the lowest first."""
        return [
            *range(self.shift, self.shift + self.bits),
            *range(self.second_shift, self.second_shift + self.second_bits),
        ]
