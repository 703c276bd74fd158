"""Operations of a semiring on values of a dtype, for kernels of complete tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oocbe.kernels.cuda.modules import C_TYPES, Definition
from oocbe.model.infeasible import infeasible_value, largest_feasible
from oocbe.model.semiring import Combination


@dataclass(frozen=True)
class CellOperation:
    """A semiring's operations on values of a dtype.

    combination, marginalisation : codes of :mod:`oocbe.model.semiring`.
    dtype : of all values.
    infeasible, limit : scalars of the dtype; see :mod:`oocbe.model.infeasible`. limit 0: no limit.
    """

    combination: int
    marginalisation: int
    dtype: np.dtype[Any]
    infeasible: Any
    limit: Any

    @classmethod
    def of(cls, combination: int, marginalisation: int, dtype: np.dtype[Any]) -> CellOperation:
        """The operation of a semiring on a dtype."""
        sums = dtype.kind == "i" and combination == Combination.ADD
        infeasible = infeasible_value(dtype, combination, marginalisation)
        limit = dtype.type(largest_feasible(dtype) if sums else 0)
        return cls(int(combination), int(marginalisation), dtype, infeasible, limit)

    @property
    def definitions(self) -> dict[str, Definition]:
        """Compile-time definitions of the kernels of complete tables."""
        return {
            "VALUE": "short" if self.dtype.itemsize == 2 else C_TYPES[self.dtype],
            "COMBINATION": self.combination,
            "MARGINALISATION": self.marginalisation,
        }
