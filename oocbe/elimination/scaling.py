"""Exact scaling of product semirings: probabilities of large networks leave the range of float64 otherwise.

Each message is divided by a power of two, which changes exponents only and loses no bit; the exponents are added up.
"""

from __future__ import annotations

import math

import numpy as np

from oocbe.semiring import Combination
from oocbe.tables.table import Table


def rescale(message: Table) -> tuple[Table, int]:
    """Divide a message by 2 ** exponent so that its largest value is in [0.5, 1); returns both.

    Only floating-point messages of product semirings are touched; exponent is 0 for all others.
    """
    if message.semiring.combination is not Combination.MULTIPLY or message.values.dtype.kind != "f":
        return message, 0
    largest = float(np.abs(message.values).max())
    exponent = math.frexp(largest)[1]
    if exponent == 0:
        return message, 0
    values = np.ldexp(message.values, -exponent)
    return Table(message.layout, message.keys, values, message.semiring, message.is_sorted), exponent
