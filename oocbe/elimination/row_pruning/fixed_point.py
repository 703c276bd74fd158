"""Fixed-point costs, rounded down: bounds are computed exactly in integers.

Multipliers of a relaxation are found in floating point. They are rounded first, to multiples of ``1 / scale``. All
further computations are in integers, so that no rounding error can make a bound too high.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ValueRangeError
from oocbe.model.problem import Problem, relative_rounding
from oocbe.runtime.deadline import check_deadline

MOST_SCALE_BITS = 20
"""Maximum number of fraction bits for integer costs: multipliers are small fractions, such as thirds of costs."""

FLOAT_BITS = 44
"""Bits for floating-point costs: they are rounded down to multiples of 2**-44 of the sum of their magnitudes."""

LARGEST_EXPONENT = sys.float_info.max_exp - 1
"""Largest exponent of the scale in float64: if all costs together are below 1e-295, the resolution is coarser."""

COST_BITS = 52
"""Limit of scaled sums of costs, in bits: leaves room for multipliers in 64 bits."""

LARGEST = 2**61
"""Limit of any sum of scaled constants and entries."""

LARGEST_FLOAT_TOTAL = 2.0**1000
"""Limit of sums of floating-point costs: sums of terms, up to 2**17 times as large, stay finite."""

LARGEST_TOTAL = 2**62
"""Limit of sums of integer costs: no dtype of values holds larger sums, either."""


@dataclass(frozen=True)
class FixedPoint:
    """Conversion of the costs of one problem to integers.

    Attributes
    ----------
    scale : a power of two; a cost c is stored as c * scale, rounded down. An int for problems of integers.
    is_integral : whether all costs are integers; rounding then loses nothing.
    magnitude : sum of the largest absolute values of all functions, and of the constant.
    rounding : relative error of sums of floats.
    """

    scale: int | float
    is_integral: bool
    magnitude: int | float
    rounding: float = 0.0

    @classmethod
    def of(cls, problem: Problem) -> FixedPoint:
        """The finest fixed point with sums of the problem's costs below 2 ** :data:`COST_BITS`.

        Raises
        ------
        ValueRangeError : the sum of floating-point costs may reach :data:`LARGEST_FLOAT_TOTAL`, or that of integers
            :data:`LARGEST_TOTAL`.
        """
        check_deadline()
        if problem.is_integral:
            total = int(problem.magnitude)
            if total >= LARGEST_TOTAL:
                raise ValueRangeError(
                    f"{problem.name}: sums of values may leave 64-bit integers, or come to what stands for infeasible "
                    "in them; scale the costs down"
                )
            bits = COST_BITS - total.bit_length()
            return cls(1 << min(MOST_SCALE_BITS, max(0, bits)), True, total)
        largest = float(problem.magnitude)
        if largest >= LARGEST_FLOAT_TOTAL:
            raise ValueRangeError(
                f"{problem.name}: sums of values may leave the range of float64; scale the costs down"
            )
        exponent = math.frexp(largest)[1] if largest else 0
        scale = math.ldexp(1.0, min(FLOAT_BITS - exponent, LARGEST_EXPONENT))
        return cls(scale, False, largest, relative_rounding(problem))

    def down(self, values: Any) -> NDArray[np.int64]:
        """Costs (an array or a number) as integers, rounded down."""
        if self.is_integral:
            return np.asarray(values, dtype=np.int64) * np.int64(self.scale)
        return np.floor(np.asarray(values, dtype=np.float64) * self.scale).astype(np.int64)

    def nearest(self, values: Any) -> NDArray[np.int64]:
        """Multipliers (an array or a number), rounded to nearest: valid for quantities of any value."""
        return np.rint(np.asarray(values, dtype=np.float64) * float(self.scale)).astype(np.int64)
