"""The two operations of a semiring on values, by code, for use inside compiled loops.

The codes are :class:`oocbe.model.semiring.Combination` and :class:`oocbe.model.semiring.Marginalisation`. They are
arguments rather than separate compiled versions: the branch is the same in every row, so its prediction is free, and
one compilation serves all semirings. Results are stored into arrays and never returned from a branch: a function that
returns either an integer or the float of log-sum-exp would be typed as float throughout, and lose bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import helper
from oocbe.model.semiring import Combination, Marginalisation

ADD = int(Combination.ADD)
MIN = int(Marginalisation.MIN)
MAX = int(Marginalisation.MAX)
SUM = int(Marginalisation.SUM)


@helper
def combine(a: Any, b: Any, combination: int) -> Any:
    """Sum or product of two values, in their own type (the caller has checked the range)."""
    if combination == ADD:
        return a + b
    return a * b


@helper
def log_sum_exp(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)) in float64, whatever the types of a and b.

    Computed relative to the greater one to avoid overflow. Equal infinities, whose difference is NaN, stay as they are.
    """
    greater, lesser = np.float64(max(a, b)), np.float64(min(a, b))
    if greater == lesser:
        return greater + math.log(2.0)
    return greater + math.log1p(math.exp(lesser - greater))


@helper
def accumulate(target: NDArray[Any], place: int, value: Any, marginalisation: int) -> None:
    """Marginalise a value into ``target[place]``, which holds one already."""
    held = target[place]
    if marginalisation == MAX:
        # An unconditional store of a selected value: a branch would be unpredictable.
        target[place] = max(held, value)
    elif marginalisation == MIN:
        target[place] = min(held, value)
    elif marginalisation == SUM:
        target[place] = held + value
    else:
        target[place] = log_sum_exp(held, value)


def neutral_value(marginalisation: int, dtype: np.dtype[Any]) -> Any:
    """Neutral element of a marginalisation, as a scalar of a dtype."""
    if marginalisation == SUM:
        return dtype.type(0)
    lowest, highest = (-math.inf, math.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return dtype.type(highest if marginalisation == MIN else lowest)
