"""What kernels of complete tables do with values: a semiring's operations on a dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oocbe.kernels.cuda.modules import C_TYPES, Definition
from oocbe.model.infeasible import infeasible_value, largest_feasible
from oocbe.model.semiring import Combination


@dataclass(frozen=True)
class CellOperation:
    """What is done with values.

    Attributes
    ----------
    combination, marginalisation : codes of :mod:`oocbe.model.semiring`.
    dtype : of all values.
    infeasible, limit : scalars of the dtype; see :mod:`oocbe.model.infeasible`. limit 0: there is none.
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
        """What the kernels of complete tables are compiled with."""
        return {
            "VALUE": "short" if self.dtype.itemsize == 2 else C_TYPES[self.dtype],
            "COMBINATION": self.combination,
            "MARGINALISATION": self.marginalisation,
        }
