"""Exact scaling of product semirings: probabilities of large networks leave the range of float64 otherwise.

Each function, message and partial result is divided by a power of two, which changes exponents only and loses no bit;
the exponents are added up.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.preparation.ranges import split
from oocbe.errors import FloatRangeError
from oocbe.model.semiring import Combination, Semiring
from oocbe.tables.complete import CompleteTable
from oocbe.tables.table import Table

MULTIPLIED = 1000
"""Powers of two up to this are numbers themselves: multiplying by one is many times as fast as changing exponents."""


class Extent:
    """Least and greatest value of a message that is computed in pieces."""

    def __init__(self, least: float = math.inf, greatest: float = -math.inf) -> None:
        self.least, self.greatest = least, greatest

    @property
    def largest(self) -> float:
        """Largest absolute value."""
        return max(abs(self.least), abs(self.greatest))

    def passing(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values, at least one, which are taken into account."""
        self.least = min(self.least, values.min().item())
        self.greatest = max(self.greatest, values.max().item())
        return values


AnyMessage = TypeVar("AnyMessage", bound=Table | CompleteTable)


def exponent_of(semiring: Semiring, dtype: np.dtype[Any], largest: float) -> int:
    """Power of two by which a message with this largest absolute value is divided, so that it comes near 1.

    Only floating-point messages of product semirings are scaled; 0 for all others.
    """
    return split(largest)[1] if semiring.combination is Combination.MULTIPLY and dtype.kind == "f" else 0


def scaled_by(message: AnyMessage, exponent: int) -> AnyMessage:
    """A message, or a piece of one, divided by 2 ** exponent."""
    return replace(message, values=scaled_values(message.values, exponent)) if exponent else message


def scaled_values(values: NDArray[Any], exponent: int) -> NDArray[Any]:
    """Values divided by 2 ** exponent."""
    if not exponent:
        return values
    if abs(exponent) > MULTIPLIED:
        scaled: NDArray[Any] = np.ldexp(values, -exponent)
        return scaled
    multiplied: NDArray[Any] = values * values.dtype.type(2.0**-exponent)
    return multiplied


def rescale(message: AnyMessage, where: str, may_cancel: bool = False) -> tuple[AnyMessage, int]:
    """Divide a message by 2 ** exponent so that its largest value is near 1 (see :func:`exponent_of`); returns both.

    where : the bucket, for the message of an error; may_cancel : whether terms of a sum may have both signs; else as
    for :func:`check_scaled`.
    """
    if exponent_of(message.semiring, message.values.dtype, 2.0) == 0:
        return message, 0
    values: Any = message.values
    least, greatest = float(values.min()), float(values.max())
    exponent = exponent_of(message.semiring, values.dtype, max(abs(greatest), abs(least)))
    check_scaled(where, least, greatest, exponent, may_cancel or isinstance(message, CompleteTable))
    return scaled_by(message, exponent), exponent


def check_scaled(where: str, least: float, greatest: float, exponent: int, has_zeros: bool = False) -> None:
    """Refuse a message of products, to be divided by 2 ** exponent, whose values have left the range of float64.

    A row exists because no factor is 0, so a value of 0 is a product too small for float64; below the smallest normal
    number, digits are lost. If factors have both signs, a sum may be 0 or near 0, and underflow cannot be detected.

    where : the bucket. least, greatest : of the values. has_zeros : whether 0 is a value, or
        stands for what is infeasible.
    Raises FloatRangeError: a value is infinite, NaN or too small.
    """
    within = math.isfinite(least) and math.isfinite(greatest)
    if within and least >= 0 and not (has_zeros and least == 0):
        within = min(least, math.ldexp(least, -exponent)) >= sys.float_info.min
    if not within:
        raise out_of_range(where)


def out_of_range(where: str) -> FloatRangeError:
    """The error to raise where products of floats are too small or too large for float64; ``where`` : of what."""
    return FloatRangeError(
        f"{where}: products of its values leave the range of float64; add their logarithms instead (the task mpe does "
        "so for the greatest product, and logz for the sum), or count without --float-counts"
    )
