"""Range analysis: the dtype in which a result is exact, decided from the inputs' least and greatest values.

Integers stay int32 where every sum and product fits, widen to int64 where not, and are refused beyond that: they never
wrap around. Floats keep their precision; integers that meet floats, or log-sum-exp, become float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ValueRangeError
from oocbe.kernels.interface import is_device_array
from oocbe.model.semiring import Combination, Marginalisation, Semiring

Range = tuple[int, int]


def reduced_dtype(values: NDArray[Any], semiring: Semiring, terms: int) -> np.dtype[Any]:
    """Dtype that holds any marginalisation of up to ``terms`` of the values; ValueRangeError: beyond int64."""
    dtype = _meeting_dtype(semiring, values.dtype)
    return dtype if dtype.kind == "f" else _holding(dtype, _reduced(_extents(values)[0], semiring, terms), semiring)


def joined_dtype(values1: NDArray[Any], values2: NDArray[Any], semiring: Semiring, terms: int = 1) -> np.dtype[Any]:
    """Dtype of all combinations of the arrays' values, ``terms`` of them marginalised; ValueRangeError: over int64."""
    dtype = _meeting_dtype(semiring, values1.dtype, values2.dtype)
    if dtype.kind == "f":
        return dtype
    (low1, high1), (low2, high2) = _extents(values1, values2)
    if semiring.combination is Combination.ADD:
        joined = (low1 + low2, high1 + high2)
    else:
        corners = [a * b for a in (low1, high1) for b in (low2, high2)]
        joined = (min(corners), max(corners))
    return _holding(dtype, _reduced(joined, semiring, terms), semiring)


def distributes(values1: NDArray[Any], values2: NDArray[Any], semiring: Semiring) -> bool:
    """Whether values of one table may be marginalised before the other one is joined to them.

    Always, but for the maximum of products with a negative factor, which turns the order of its other factors round.
    """
    if semiring.combination is Combination.ADD or semiring.marginalisation is Marginalisation.SUM:
        return True
    return all(len(v) == 0 or v.min() >= 0 for v in (values1, values2))


def _meeting_dtype(semiring: Semiring, *dtypes: np.dtype[Any]) -> np.dtype[Any]:
    dtype = np.result_type(*dtypes)
    return np.dtype(np.float64) if semiring.needs_floats and dtype.kind != "f" else dtype


def _extents(*columns: NDArray[Any]) -> list[Range]:
    """Least and greatest value of each column; of columns on a device in one pass each, and one wait for all."""
    if all(len(values) and is_device_array(values) for values in columns):
        from oocbe.kernels.cuda.pairs.extents import Extents

        columns = tuple(Extents(columns).read())
    return [(int(values.min()), int(values.max())) if len(values) else (0, 0) for values in columns]


def _reduced(extent: Range, semiring: Semiring, terms: int) -> Range:
    if semiring.marginalisation is not Marginalisation.SUM:
        return extent
    low, high = extent
    return min(low, low * terms), max(high, high * terms)


def _holding(dtype: np.dtype[Any], extent: Range, semiring: Semiring) -> np.dtype[Any]:
    for candidate in (np.dtype(np.int32), np.dtype(np.int64)):
        limits = np.iinfo(candidate)
        if candidate.itemsize >= dtype.itemsize and limits.min <= extent[0] and extent[1] <= limits.max:
            return candidate
    raise ValueRangeError(
        f"values between {extent[0]:,} and {extent[1]:,} could arise ({semiring} semiring), which 64-bit integers do "
        "not hold; give the tables float64 values"
    )
