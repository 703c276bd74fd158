"""Costs as integers in fixed point, rounded down, so that bounds are computed exactly.

Multipliers of a relaxation are found in floating point. They are rounded first, to multiples of ``1 / scale``; all that
follows from them is computed again in integers, so that no rounding error can make a bound too high.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ValueRangeError
from oocbe.model.problem import Problem
from oocbe.model.rounding import relative_rounding
from oocbe.runtime.deadline import check_deadline

MOST_SCALE_BITS = 20
"""Integers are counted in up to 2**-20: multipliers are small fractions, such as thirds of costs."""

FLOAT_BITS = 44
"""Floating-point costs are rounded down to multiples of 2**-44 of the sum of their magnitudes."""

LARGEST_EXPONENT = sys.float_info.max_exp - 1
"""Of a power of two in float64: costs below 1e-295 in all are counted less finely."""

COST_BITS = 52
"""Scaled sums of costs stay below 2**52, which leaves room for multipliers."""

LARGEST = 2**61
"""No sum of scaled constants and entries exceeds this, whatever is chosen."""

LARGEST_FLOAT_TOTAL = 2.0**1000
"""Sums of floating-point costs stay below this, so that those of terms, up to 2**17 times as large, are finite."""

LARGEST_TOTAL = 2**62
"""Sums of integer costs stay below this: a problem of larger ones has no dtype of values, either."""


@dataclass(frozen=True)
class FixedPoint:
    """How the costs of one problem become integers.

    Attributes
    ----------
    scale : a power of two; a cost c is counted as c * scale, rounded down. An integer for problems of integers.
    is_integral : whether all costs are integers: nothing is then lost by rounding.
    magnitude : sum of the largest absolute values of all functions, and of the constant.
    rounding : relative error of sums of floats.
    """

    scale: int | float
    is_integral: bool
    magnitude: int | float
    rounding: float = 0.0

    @classmethod
    def of(cls, problem: Problem) -> FixedPoint:
        """The finest fixed point in which sums of the problem's costs keep within :data:`COST_BITS`.

        Raises
        ------
        ValueRangeError : the sum of floating-point costs may come to :data:`LARGEST_FLOAT_TOTAL`, or that of integers
            to :data:`LARGEST_TOTAL`.
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
        """Multipliers (an array or a number), rounded to nearest: for what is valid whatever its value."""
        return np.rint(np.asarray(values, dtype=np.float64) * float(self.scale)).astype(np.int64)
