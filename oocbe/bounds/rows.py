"""Valid inequalities over literals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from oocbe.model.parts import LinearConstraint


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

    @classmethod
    def of_linear(cls, constraint: LinearConstraint, number: int, first: Sequence[int] | NDArray[np.int64]) -> Row:
        """A linear constraint; first : literal of each variable."""
        literals = np.array([x for v in constraint.scope for x in range(first[v], first[v + 1])], dtype=np.int64)
        coefficients = np.concatenate([np.zeros(0, dtype=np.int64), *constraint.coefficients])
        order = np.argsort(literals)
        order = order[coefficients[order] != 0]
        return cls(literals[order], coefficients[order], constraint.capacity, "linear", number)

    @cached_property
    def largest(self) -> int:
        """Largest absolute value of a coefficient or of the right-hand side."""
        ends = (int(self.coefficients.min(initial=0)), int(self.coefficients.max(initial=0)))
        return max(-ends[0], ends[1], abs(self.right_hand_side))

    def key(self) -> tuple[bytes, bytes, int]:
        """Equal for equal inequalities."""
        return self.literals.tobytes(), self.coefficients.tobytes(), self.right_hand_side
