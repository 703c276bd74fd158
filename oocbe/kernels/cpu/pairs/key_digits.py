"""Digits of packed keys, by which rows are sorted, the least significant first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Digit(NamedTuple):
    """Up to eight key bits from one or two places of a word; the second place's bits go above the first one's."""

    word: int
    shift: int
    bits: int
    second_shift: int = 0
    second_bits: int = 0

    @property
    def size(self) -> int:
        """Different values of the digit."""
        return 1 << (self.bits + self.second_bits)

    @property
    def arguments(self) -> tuple[np.uint64, ...]:
        """Shifts, masks and the second part's place, as the compiled loops take them."""
        masks = ((1 << self.bits) - 1, ((1 << self.second_bits) - 1) << self.bits)
        # The second shift brings the bits right above the first part's, which may be to the left.
        right, left = max(0, self.second_shift - self.bits), max(0, self.bits - self.second_shift)
        return tuple(np.uint64(x) for x in (self.shift, masks[0], right, left, masks[1]))

    @property
    def positions(self) -> list[int]:
        """The key bit that each bit of the digit is, the lowest first."""
        return [
            *range(self.shift, self.shift + self.bits),
            *range(self.second_shift, self.second_shift + self.second_bits),
        ]
