"""Exact scaling of product semirings: probabilities of large networks leave the range of float64 otherwise.

Each function, message and partial result is divided by a power of two, which changes exponents only and loses no bit;
the exponents are added up.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np

from oocbe.semiring import Combination
from oocbe.tables.complete import CompleteTable
from oocbe.tables.table import Table


def split(value: float) -> tuple[float, int]:
    """Mantissa and exponent, value = mantissa * 2 ** exponent, the mantissa's size in [sqrt(0.5), sqrt(2)).

    So the mantissas of many factors do not all pull their product to the same side. Integers stay as they are.
    """
    if isinstance(value, int):
        return value, 0
    mantissa, exponent = math.frexp(value)
    return (2 * mantissa, exponent - 1) if abs(mantissa) < math.sqrt(0.5) else (mantissa, exponent)


AnyMessage = TypeVar("AnyMessage", bound=Table | CompleteTable)


def rescale(message: AnyMessage) -> tuple[AnyMessage, int]:
    """Divide a message by 2 ** exponent so that its largest value is near 1 (see :func:`split`); returns both.

    Only floating-point messages of product semirings are touched; exponent is 0 for all others.
    """
    if message.semiring.combination is not Combination.MULTIPLY or message.values.dtype.kind != "f":
        return message, 0
    exponent = split(float(np.abs(message.values).max()))[1]
    if exponent == 0:
        return message, 0
    return replace(message, values=np.ldexp(message.values, -exponent)), exponent
