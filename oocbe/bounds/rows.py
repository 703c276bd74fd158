"""Valid inequalities over literals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Row:
    """A valid inequality: the sum of coefficients of true literals is at most the right-hand side.

    literals : int64, ascending. coefficients : int64. right_hand_side : integer. kind : what the row is called.
    number : of the problem's linear constraint that the row is, -1 where it is none.
    """

    literals: NDArray[np.int64]
    coefficients: NDArray[np.int64]
    right_hand_side: int
    kind: str = "row"
    number: int = -1

    @classmethod
    def of(cls, literals: Sequence[int] | NDArray[np.int64], right_hand_side: int, kind: str) -> Row:
        """Row with coefficients of one."""
        chosen = np.sort(np.asarray(literals, dtype=np.int64))
        return cls(chosen, np.ones(len(chosen), dtype=np.int64), right_hand_side, kind)

    @cached_property
    def largest(self) -> int:
        """Largest absolute value of a coefficient or of the right-hand side."""
        ends = (int(self.coefficients.min(initial=0)), int(self.coefficients.max(initial=0)))
        return max(-ends[0], ends[1], abs(self.right_hand_side))

    def key(self) -> tuple[bytes, bytes, int]:
        """Equal for equal inequalities."""
        return self.literals.tobytes(), self.coefficients.tobytes(), self.right_hand_side
