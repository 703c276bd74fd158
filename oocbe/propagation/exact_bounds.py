"""Bound propagation with Python integers, for numbers that doubles cannot represent; slow, and exact at any size.

It is algorithm 1 of Sofranac, Gleixner and Pokutta (2021), as in :mod:`oocbe.propagation.kernels.cpu.linear_rows`: a
row's activities with infinite terms counted apart, the residual activity of each variable, a floor or ceiling division.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocbe.model.linear_system import LinearSystem
from oocbe.runtime.deadline import current

Bound: TypeAlias = int | float
"""An integer, or a float that is ``inf`` or ``-inf``."""

Objects: TypeAlias = NDArray[np.object_]


def exact_round(
    system: LinearSystem, lower: Objects, upper: Objects, marked: NDArray[np.uint8]
) -> tuple[int, int | None, int | None]:
    """Propagate all marked rows once, in their order; bounds and marks are changed.

    All variables and numbers are integers. Returns the number of improvements, and the row and the variable that show
    infeasibility, or None. It ends early at the deadline of the enclosing block; marks of rows not reached stay.
    """
    starts, rows_of = system.rows_of_variables
    better = 0
    deadline = current()
    for row in np.flatnonzero(marked).tolist():
        if deadline is not None and deadline.passed:
            break
        marked[row] = 0
        entries = slice(system.starts[row], system.starts[row + 1])
        columns = system.columns[entries].tolist()
        coefficients = [int(a) for a in system.coefficients[entries].tolist()]
        side_low = _whole(system.row_lower[row], math.ceil)
        side_high = _whole(system.row_upper[row], math.floor)
        changed, is_violated, variable = _propagate(columns, coefficients, side_low, side_high, lower, upper)
        better += len(changed)
        if is_violated:
            return better, row, variable
        for v in set(changed):
            marked[rows_of[starts[v] : starts[v + 1]]] = 1
    return better, None, None


def _whole(side: Bound, rounded: Callable[[float], int]) -> Bound:
    if isinstance(side, int):
        return side
    return float(side) if math.isinf(side) else rounded(side)  # NumPy's infinity is not compared with large integers


def _propagate(
    columns: list[int], coefficients: list[int], side_low: Bound, side_high: Bound, lower: Objects, upper: Objects
) -> tuple[list[int], bool, int | None]:
    """Tighten the bounds of a row's variables; returns the changed ones, infeasibility, and its variable."""
    terms = []
    for v, a in zip(columns, coefficients, strict=True):
        least, most = (lower[v], upper[v]) if a > 0 else (upper[v], lower[v])
        terms.append((a * least, a * most))
    low, low_infinite = _total([least for least, _ in terms])
    high, high_infinite = _total([most for _, most in terms])
    is_violated = (low_infinite == 0 and low > side_high) or (high_infinite == 0 and high < side_low)
    changed = []
    for v, a, (least, most) in zip(columns, coefficients, terms, strict=True):
        new_low, new_high = -math.inf, math.inf
        rest = _residual(low, least, low_infinite)
        if rest is not None and not math.isinf(side_high):
            room = side_high - rest
            if a > 0:
                new_high = room // a
            else:
                new_low = -(room // -a)
        rest = _residual(high, most, high_infinite)
        if rest is not None and not math.isinf(side_low):
            room = side_low - rest
            if a > 0:
                new_low = -(-room // a)
            else:
                new_high = -room // -a
        if new_low > lower[v]:
            lower[v] = new_low
            changed.append(v)
        if new_high < upper[v]:
            upper[v] = new_high
            changed.append(v)
        if lower[v] > upper[v]:
            return changed, True, v
    return changed, is_violated, None


def _total(terms: list[Bound]) -> tuple[Bound, int]:
    """The sum of the finite terms, and how many are infinite."""
    finite = [term for term in terms if not isinstance(term, float)]
    return sum(finite), len(terms) - len(finite)


def _residual(total: Bound, own: Bound, infinite: int) -> Bound | None:
    """The activity without one term; None where another one is infinite."""
    if isinstance(own, float):
        return total if infinite == 1 else None
    return total - own if infinite == 0 else None
