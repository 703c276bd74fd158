"""Domains of all variables as flags in one array, for compiled loops and devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False)
class Domains:
    """Values left of each variable.

    Attributes
    ----------
    offsets : int64 (variables + 1,), where each variable's flags begin.
    alive : uint8 (values,), 1 for each value that is left.
    counts : int64 (variables,), how many are left.
    """

    offsets: NDArray[np.int64]
    alive: NDArray[np.uint8]
    counts: NDArray[np.int64]

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> Domains:
        """Domains with all values."""
        counts = np.array(sizes, dtype=np.int64)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        return cls(offsets, np.ones(int(offsets[-1]), dtype=np.uint8), counts)

    @cached_property
    def scratch(self) -> NDArray[np.uint8]:
        """Scratch flags of a loop, one a value; their content is undefined between uses."""
        return np.empty_like(self.alive)

    @cached_property
    def counters(self) -> NDArray[np.int64]:
        """Scratch numbers of a loop, one a value; their content is undefined between uses."""
        return np.empty(len(self.alive), dtype=np.int64)

    def flags(self, v: int) -> NDArray[np.uint8]:
        """A variable's flags, a view."""
        return self.alive[self.offsets[v] : self.offsets[v + 1]]

    def values(self, v: int) -> NDArray[np.int64]:
        """The values that a variable has left, ascending."""
        return np.flatnonzero(self.flags(v))

    def keep(self, v: int, values: NDArray[np.bool_]) -> int:
        """Remove all unflagged values; returns their number."""
        flags = self.flags(v)
        flags &= values
        lost = int(self.counts[v]) - int(np.count_nonzero(flags))
        self.counts[v] -= lost
        return lost
