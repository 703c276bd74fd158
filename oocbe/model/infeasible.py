"""The value of an infeasible assignment in a dense table, where every assignment has a value.

It is the semiring's zero: 0 for products, and for sums of floats the infinity that marginalisation never prefers.
Integers have no infinity. Theirs is :func:`infeasible_value`, a quarter of the dtype's range, with its sign such that
marginalisation never prefers it. Feasible values, and every possible sum of feasible values, stay within
:func:`largest_feasible`, half of that (operators ensure it by range analysis, and widen or refuse). Therefore

* a sum with an infeasible term lies beyond all feasible sums, whatever the other terms;
* :data:`SUMMANDS` values can be added without wrap-around;
* a result beyond :func:`largest_feasible` on that side is infeasible, and kernels replace it by the one value.

========  =====================  ===================
dtype     infeasible (min-sum)   largest feasible
========  =====================  ===================
int16     8,191                  4,095
int32     536,870,911            268,435,455
int64     2^61 - 1               2^60 - 1
float     inf                    (all finite values)
========  =====================  ===================
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.model.semiring import Combination, Marginalisation

SUMMANDS = 4
"""Number of integers, feasible or not, whose sum cannot wrap around."""


def infeasible_value(dtype: DTypeLike, combination: int, marginalisation: int) -> Any:
    """The value of an infeasible assignment, a scalar of the dtype.

    dtype : int16, int32, int64, float32 or float64.
    combination, marginalisation : codes of :mod:`oocbe.model.semiring`.
    """
    kind: np.dtype[Any] = np.dtype(dtype)
    if combination == Combination.MULTIPLY:
        return kind.type(0)
    magnitude = math.inf if kind.kind == "f" else np.iinfo(kind).max // SUMMANDS
    return kind.type(magnitude if marginalisation == Marginalisation.MIN else -magnitude)


def largest_feasible(dtype: DTypeLike) -> int:
    """Largest absolute value of a sum of feasible integers that is distinguishable from all infeasible values."""
    return int((np.iinfo(np.dtype(dtype)).max // SUMMANDS - 1) // 2)


def feasible_mask(values: NDArray[Any], combination: int, marginalisation: int) -> NDArray[np.bool_]:
    """Mask of the values of feasible assignments; sums not yet replaced by the one infeasible value are recognised.

    values : of any shape, in main or device memory; the mask has the same shape and memory.
    """
    mask: NDArray[np.bool_]
    if combination == Combination.MULTIPLY:
        mask = values != 0
    elif values.dtype.kind == "f":
        mask = values != infeasible_value(values.dtype, combination, marginalisation)
    elif marginalisation == Marginalisation.MIN:
        mask = values <= largest_feasible(values.dtype)
    else:
        mask = values >= -largest_feasible(values.dtype)
    return mask
