"""Costs as ``cfn`` files print them: decimals with a precision, and a limit on their sum.

The limit's decimals are the precision of all costs: further decimals are truncated toward zero, as in toulbar2. All
sums are then multiples of the last place. A limit that is half a place lower separates the sums below the limit from
the sums at it, although additions of floats are rounded.

The limit bounds the *sum*. A single cost forbids its tuple only if it reaches the limit together with the minima of all
other costs, which are negative in energy problems.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.formats.cost_tables import parts_of
from oocbe.model.parts import Constraint, Function

Cost = int | float

LARGEST_INTEGER = 2**62
"""Integers from here on are read as floats."""

FORBIDDEN = "inf"
"""In the place of a cost: the tuple is forbidden, whether sums are minimised or maximised."""

MOST_DIGITS = 400
"""Digits before the point of a double at most, and some more."""


class Precision:
    """The precision that a limit gives to costs.

    Parameters
    ----------
    limit : a finite number as it is printed. With an exponent, which the format does not know, costs stay as they are.
    """

    def __init__(self, limit: str) -> None:
        self._limit = limit
        self._decimals = None if "e" in limit.lower() else len(limit.partition(".")[2])
        self._context = Context(prec=MOST_DIGITS + len(limit), rounding=ROUND_DOWN)

    @property
    def is_whole(self) -> bool:
        """Whether all costs are integers, but for those that 64 bits do not hold."""
        return self._decimals == 0

    @property
    def scale(self) -> int:
        """How many units of the last place are a cost of 1; 0 where costs have no last place."""
        return 0 if self._decimals is None else 10**self._decimals

    def units(self, text: str) -> int:
        """A finite cost in units of the last place, without the decimals that are too many."""
        return int(Decimal(text).scaleb(self._decimals or 0, self._context))

    def bound(self, minimises: bool) -> Cost:
        """What sums must be strictly below (above, where they are maximised): the limit, half a place nearer."""
        if not self._decimals:
            return self.cost(self._limit)
        half = Decimal(5).scaleb(-self._decimals - 1)
        return float(self._context.subtract(Decimal(self._limit), half if minimises else -half))

    def cost(self, text: str) -> Cost:
        """A cost without the decimals that are too many: an integer where it is one, else float64; infinity of inf."""
        if text == FORBIDDEN:
            return math.inf
        if "e" in text.lower():
            if self._decimals is None:
                return float(text)
            last = Decimal(1).scaleb(-self._decimals)
            text = format(Decimal(text).quantize(last, context=self._context), "f")
        whole, point, decimals = text.partition(".")
        if self.is_whole or not point:
            return _integer(whole)
        return float(f"{whole}.{decimals[: self._decimals] or 0}") + 0.0  # not -0.0


def _integer(text: str) -> Cost:
    """Digits with a sign or none, of any number (Python converts so many only), as an integer if 62 bits do."""
    significant = text.lstrip("+-").lstrip("0") or "0"
    if len(significant) > 19 or int(significant) >= LARGEST_INTEGER:
        return float(text)
    return -int(significant) if text.startswith("-") else int(significant)


@dataclass(frozen=True)
class CostTable:
    """Costs over some variables.

    Attributes
    ----------
    scope : indices of variables. size : how many assignments they have. tuples : int64 (rows, arity), different ones.
    costs : (rows,), infinite where a tuple is forbidden. default : of tuples that are not listed.
    """

    scope: tuple[int, ...]
    size: int
    tuples: NDArray[np.int64]
    costs: Sequence[Cost]
    default: Cost

    @property
    def rest(self) -> Cost:
        """The default, or infinity where all tuples are listed."""
        return self.default if len(self.costs) < self.size else math.inf


def room(bound: Cost, constant: Cost, tables: Sequence[CostTable]) -> Cost:
    """What one function may cost above its least cost, at most: from here on, nothing below the bound is left.

    All in terms of costs to minimise. Negative infinity where a function forbids everything.
    """
    numbers = [bound, -constant, *(-_least(t) for t in tables)]
    return sum(numbers) if all(isinstance(n, int) for n in numbers) else math.fsum(numbers)


def split(
    tables: Sequence[CostTable], bound: Cost, constant: Cost, sign: int, dtype: type[Any]
) -> tuple[list[Function], list[Constraint]]:
    """What tables cost, and what they forbid; a part that says nothing is left out.

    Parameters
    ----------
    tables, bound, constant : in terms of costs to minimise. sign : by which these are turned into the file's.
    dtype : of values.
    """
    most = room(bound, constant, tables)
    functions: list[Function] = []
    constraints: list[Constraint] = []
    for t in tables:
        least = _least(t)
        keep = np.array(t.costs, np.float64) < math.inf
        costs = np.array(t.costs if keep.all() else [c if c < math.inf else 0 for c in t.costs], dtype)
        keep &= costs - (least if least < math.inf else 0) < most
        default = sign * t.default if t.rest - least < most else None
        for part in parts_of(t.scope, t.tuples, sign * costs, keep, default, t.size):
            (functions if isinstance(part, Function) else constraints).append(part)  # type: ignore[arg-type]
    return functions, constraints


def _least(table: CostTable) -> Cost:
    """What it costs at least; infinity where it forbids everything."""
    return min(min(table.costs, default=math.inf), table.rest)
