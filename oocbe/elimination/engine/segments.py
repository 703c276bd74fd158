"""Copies of bit fields from one packed index to another, as arguments of compiled loops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.tables.layout import Field


class Segments:
    """Bit-field copies, CSR-like: lookup i's segments are start[i] .. start[i + 1] - 1."""

    def __init__(self) -> None:
        self.start = [0]
        self.middle = 0
        self.word: list[int] = []
        self.shift: list[int] = []
        self.bits: list[int] = []
        self.place: list[int] = []

    def add(self, fields: Iterable[Field], places: Iterable[int], cut: int = -1) -> None:
        """Add a lookup whose index has, at each place, the bits of a field; neighbours are merged, not across ``cut``.

        ``middle`` then is the first segment whose place is at or above ``cut``.
        """
        begin = len(self.word)
        self.middle = -1
        for (word, shift, bits), place in zip(fields, places, strict=True):
            if place == cut:
                self.middle = len(self.word)
            last = len(self.word) - 1
            if (
                last >= begin
                and place != cut
                and self.word[last] == word
                and self.shift[last] + self.bits[last] == shift
                and self.place[last] + self.bits[last] == place
            ):
                self.bits[last] += bits
            else:
                self.word.append(word)
                self.shift.append(shift)
                self.bits.append(bits)
                self.place.append(place)
        self.start.append(len(self.word))
        if self.middle < 0:
            self.middle = len(self.word)

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """start and word as int64; shift, mask and place as uint64."""
        return (
            np.array(self.start, dtype=np.int64),
            np.array(self.word, dtype=np.int64),
            np.array(self.shift, dtype=np.uint64),
            np.array([(1 << b) - 1 for b in self.bits], dtype=np.uint64),
            np.array(self.place, dtype=np.uint64),
        )
