"""Which dtype holds every value that a solve can meet; sums and products never wrap around.

Sums are bounded before anything is computed: no partial sum exceeds the constant plus the largest absolute value of
each function. Products have no such useful bound, so theirs is checked bucket by bucket from the values that are
really there (:func:`check_product`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from oocbe.errors import ValueRangeError
from oocbe.problem import Problem
from oocbe.semiring import Combination, Semiring

INT32_LIMIT = 2**31 - 1
INT64_LIMIT = 2**63 - 1


def value_dtype(problem: Problem, semiring: Semiring) -> np.dtype[Any]:
    """Dtype of message values: int32 or int64 where everything is an integer, float64 otherwise.

    Raises
    ------
    ValueRangeError : a sum of integer values may leave the range of int64.
    """
    if semiring.counts:
        return np.dtype(np.int64)
    if semiring.needs_floats or not problem.is_integral:
        return np.dtype(np.float64)
    if semiring.combination is Combination.MULTIPLY:
        return np.dtype(np.int64)
    # Dominance adds penalties, differences of two values of one function: twice the bound leaves room for them.
    bound = 2 * (abs(int(problem.constant)) + sum(_largest(f.values, f.default) for f in problem.functions))
    if bound <= INT32_LIMIT:
        return np.dtype(np.int32)
    if bound <= INT64_LIMIT:
        return np.dtype(np.int64)
    raise ValueRangeError(
        f"{problem.name}: sums of values can reach {bound // 2:.3g}, beyond 64-bit integers; "
        "scale the costs down, or give them as floating-point numbers"
    )


def _largest(values: np.ndarray[Any, Any], default: float | None) -> int:
    listed = max(abs(int(values.max())), abs(int(values.min()))) if len(values) else 0
    return max(listed, abs(int(default or 0)))


def check_product(where: str, dtype: np.dtype[Any], factors: Iterable[float], size: int) -> None:
    """Refuse a bucket whose products, summed over ``size`` values, may leave int64; floats always pass.

    Parameters
    ----------
    where : the bucket, for the message. factors : largest absolute value of each table and lookup joined.
    """
    if dtype.kind != "i":
        return
    bound = math.prod(int(f) for f in factors) * size
    if bound > INT64_LIMIT:
        raise ValueRangeError(
            f"{where}: products can reach {bound:.3g}, beyond 64-bit integers; use the log-sum-exp semiring, "
            "or floating-point values"
        )
