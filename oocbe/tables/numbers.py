"""Floating-point numbers allowed in tables: those for which the results of operators are defined.

NaN is refused: comparisons with it are false, so that minima would depend on the order of rows. An infinity is allowed
only as the semiring's zero: inf for minimised sums, -inf for maximised sums and for sums of exponentials. It denotes an
infeasible assignment, in a row as in a cell of a complete table, and sums with it remain infeasible. Added to the other
infinity it would give NaN, as would any infinity times the zero of products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from oocbe.errors import ModelError
from oocbe.model.semiring import Semiring

VALUE_DTYPES = tuple(np.dtype(t) for t in (np.int32, np.int64, np.float32, np.float64))
"""Dtypes of tables' values."""


def check_numbers(what: str, values: Any, semiring: Semiring) -> None:
    """Refuse values that a table of a semiring cannot represent.

    Parameters
    ----------
    what : names the table in the message. values : of any shape and dtype, in main or device memory.

    Raises
    ------
    ModelError : NaN, or an infinity that is not the semiring's zero.
    """
    found = strange_number(values, semiring)
    if found is None:
        return
    if math.isnan(found):
        raise ModelError(f"{what}: a value is NaN, which no operator can compare or add up; leave such rows out")
    instead = "leave the row out" if math.isinf(semiring.zero) else "give a finite number, or leave the row out"
    raise ModelError(
        f"{what}: a value is {found}, which {semiring} tables cannot hold (an infeasible assignment is worth "
        f"{semiring.zero} there); {instead}"
    )


def strange_number(values: Any, semiring: Semiring) -> float | None:
    """NaN, or an infinity that a table of the semiring cannot represent, if among the values; otherwise None."""
    if values.dtype.kind != "f" or not values.size:
        return None
    for extreme in (float(values.min()), float(values.max())):  # both are NaN if any value is
        if math.isnan(extreme) or (math.isinf(extreme) and extreme != semiring.zero):
            return extreme
    return None
