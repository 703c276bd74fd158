"""Choice of a dtype for every value of a solve, so that sums and products never overflow.

Sums are bounded before any computation: no partial sum exceeds the constant plus the largest absolute value of each
function. Products have no such useful bound, so they are checked bucket by bucket from the actual values
(:func:`check_product`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from oocbe.errors import ValueRangeError
from oocbe.model.infeasible import largest_feasible
from oocbe.model.problem import Problem, relative_rounding
from oocbe.model.results.numerals import digits
from oocbe.model.semiring import Combination, Semiring

INT64_LIMIT = 2**63 - 1
"""Largest number that int64 holds."""

FRACTION = 2.0**-20
"""Multiples of this add up exactly in float64 while their sum is below :data:`EXACT_SUM`."""

EXACT_SUM = 2.0**31
"""Two such sums and their difference need 20 + 32 bits, within the 53 of a float64."""


def value_dtype(problem: Problem, semiring: Semiring) -> np.dtype[Any]:
    """Dtype of message values: int32 or int64 where everything is an integer, float64 otherwise.

    Sums in int32 leave room for what stands for the infeasible in complete tables (:mod:`oocbe.model.infeasible`).

    Raises ValueRangeError: a sum of integers may leave int64, or sums of floats leave float64 in both directions.
    """
    if semiring.counts:
        return np.dtype(np.int64)
    if semiring.needs_floats or not problem.is_integral:
        if semiring.combination is Combination.ADD and all(map(math.isinf, float_sum_bounds(problem))):
            raise ValueRangeError(
                f"{problem.name}: sums of values may leave the range of float64 in both directions, and infinities of "
                "both signs add up to nothing; scale the values down"
            )
        return np.dtype(np.float64)
    if semiring.combination is Combination.MULTIPLY:
        return np.dtype(np.int64)
    # Dominance adds penalties, differences of two values of one function: twice the bound leaves room for them.
    bound = 2 * int(problem.magnitude)
    if bound <= 2 * largest_feasible(np.int32):
        return np.dtype(np.int32)
    if bound <= INT64_LIMIT:
        return np.dtype(np.int64)
    raise ValueRangeError(
        f"{problem.name}: sums of values can reach {digits(bound // 2)}, beyond 64-bit integers; "
        "scale the costs down, or give them as floating-point numbers"
    )


def extremes(problem: Problem) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Each function's least value or 0, and greatest or 0, with defaults; int64 if all are integers, else float64."""
    return np.minimum(problem.extremes.least, 0), np.maximum(problem.extremes.greatest, 0)


def float_sum_bounds(problem: Problem) -> tuple[float, float]:
    """Lower and upper bound of all sums of values; infinite beyond float64."""
    lows, highs = extremes(problem)
    with np.errstate(over="ignore"):
        low, high = float(lows.sum(dtype=np.float64)), float(highs.sum(dtype=np.float64))
    return low + min(0.0, float(problem.constant)), high + max(0.0, float(problem.constant))


def rounding_margin(problem: Problem) -> float:
    """A difference between two sums of the problem's values that exceeds all rounding errors; 0 if sums are exact.

    Sums are exact for integers, for :func:`are_fractions`, and for numbers near the smallest float.
    """
    if problem.is_integral:
        return 0
    magnitude = float_magnitude(problem)
    return 0 if _are_fractions(problem, magnitude) else magnitude * relative_rounding(problem)


def are_fractions(problem: Problem) -> bool:
    """Whether values are floats that are multiples of :data:`FRACTION`, and stay so small that sums are exact."""
    return not problem.is_integral and _are_fractions(problem, float_magnitude(problem))


def _are_fractions(problem: Problem, magnitude: float) -> bool:
    if magnitude >= EXACT_SUM or not _is_exact(problem.constant):
        return False
    defaults = np.array([f.default or 0 for f in problem.functions], dtype=np.float64)
    return _is_exact(np.concatenate([defaults, *(f.values for f in problem.functions)]))


def float_magnitude(problem: Problem) -> float:
    """The sum of the largest sizes of values, of the constant and of each function; infinite beyond float64."""
    lows, highs = extremes(problem)
    with np.errstate(over="ignore"):
        return float(abs(problem.constant) + np.maximum(-lows.astype(np.float64), highs).sum())


def _is_exact(values: object) -> bool:
    with np.errstate(over="ignore"):  # far beyond what is exact
        scaled = np.asarray(values, dtype=np.float64) / FRACTION
    return bool((scaled == np.rint(scaled)).all())


def largest_magnitude(values: np.ndarray[Any, Any]) -> int:
    """Largest absolute value of integers, exactly (the lowest integer of a dtype has no positive twin); 0 of none.

    values : (rows,), or counts of several limbs (:mod:`oocbe.tables.numbers`).
    """
    if values.ndim == 2:
        from oocbe.tables.numbers import greatest

        return greatest(values)
    return max(abs(int(values.max())), abs(int(values.min()))) if len(values) else 0


def check_product(where: str, factors: Iterable[int], size: int) -> None:
    """Refuse a bucket whose products of integers, of which ``size`` are added, may leave int64.

    where : the bucket, for the message. factors : largest absolute value of each table and lookup joined.
    """
    bound = math.prod(map(int, factors)) * size
    if bound > INT64_LIMIT:
        raise ValueRangeError(
            f"{where}: products can reach {digits(bound)}, beyond 64-bit integers; give the values as "
            "floating-point numbers (to count, use the task count: its integers may have any size)"
        )


def split(value: float) -> tuple[float, int]:
    """Mantissa and exponent, value = mantissa * 2 ** exponent, the mantissa's size in [sqrt(0.5), sqrt(2)).

    So the mantissas of many factors do not all pull their product to the same side. Integers stay as they are.
    """
    if isinstance(value, int):
        return value, 0
    mantissa, exponent = math.frexp(value)
    return (2 * mantissa, exponent - 1) if abs(mantissa) < math.sqrt(0.5) else (mantissa, exponent)
