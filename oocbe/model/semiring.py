"""Commutative semirings as values, so that one implementation of elimination serves all of them.

A semiring has a *combination* (⊗, joins values of functions) and a *marginalisation* (⊕, reduces the values of an
eliminated variable). Its *zero* is the neutral element of marginalisation and absorbs under combination: it is the
value of an infeasible assignment, and therefore never stored (Aji and McEliece, 2000; Kohlas and Wilson, 2008). Kernels
receive the two operations as small integer codes, so that one compiled loop serves all semirings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError


class Combination(IntEnum):
    """Code of the operation that joins values."""

    ADD = 0
    MULTIPLY = 1


class Marginalisation(IntEnum):
    """Code of the operation that reduces values of the eliminated variable."""

    MIN = 0
    MAX = 1
    SUM = 2
    LOG_SUM_EXP = 3


@dataclass(frozen=True)
class Semiring:
    """A commutative semiring.

    Attributes
    ----------
    name : name for options (``min-sum``).
    combination, marginalisation : operation codes passed to the kernels.
    counts : each feasible row has the value one (the counting semiring).
    """

    name: str
    combination: Combination
    marginalisation: Marginalisation
    counts: bool = False

    @property
    def one(self) -> int:
        """Neutral element of combination: 0 for sums, 1 for products."""
        return 0 if self.combination is Combination.ADD else 1

    @property
    def zero(self) -> float:
        """Value of an infeasible assignment; rows with it are not stored."""
        if self.combination is Combination.MULTIPLY:
            return 0.0
        return math.inf if self.marginalisation is Marginalisation.MIN else -math.inf

    @property
    def selects(self) -> bool:
        """Whether marginalisation selects one of its arguments, so that an optimal assignment exists."""
        return self.marginalisation in (Marginalisation.MIN, Marginalisation.MAX)

    @property
    def optimises_sums(self) -> bool:
        """Whether it is min-sum or max-sum."""
        return self.selects and self.combination is Combination.ADD

    @property
    def zeros_forbid(self) -> bool:
        """Whether an assignment worth 0 is infeasible: where values are multiplied, and not only counted."""
        return self.combination is Combination.MULTIPLY and not self.counts

    @property
    def needs_floats(self) -> bool:
        """Whether marginalising integers may give a non-integer."""
        return self.marginalisation is Marginalisation.LOG_SUM_EXP

    def combine(self, a: NDArray[np.generic], b: NDArray[np.generic]) -> NDArray[np.generic]:
        """Combine two arrays of values element by element (NumPy broadcasting)."""
        result: NDArray[np.generic]
        result = np.add(a, b) if self.combination is Combination.ADD else np.multiply(a, b)
        return result

    @property
    def marginalise(self) -> np.ufunc:
        """The marginalisation of two arrays, element by element."""
        return (np.minimum, np.maximum, np.add, np.logaddexp)[self.marginalisation]

    def reduce(self, values: NDArray[np.generic], axis: int | None = None) -> NDArray[np.generic]:
        """Marginalise an array of values along an axis (None: all of it)."""
        result: NDArray[np.generic] = self.marginalise.reduce(values, axis=axis)
        return result

    def is_better(self, a: float, b: float) -> bool:
        """Whether value a is strictly preferred to b; only for semirings that select."""
        if self.marginalisation is Marginalisation.MIN:
            return a < b
        if self.marginalisation is Marginalisation.MAX:
            return a > b
        raise UsageError(f"the {self.name} semiring has no preference between values; use one with min or max")

    def __str__(self) -> str:
        return self.name


MIN_SUM = Semiring("min-sum", Combination.ADD, Marginalisation.MIN)
"""Costs are added and minimised."""

MAX_SUM = Semiring("max-sum", Combination.ADD, Marginalisation.MAX)
"""Values are added and maximised."""

MAX_PRODUCT = Semiring("max-product", Combination.MULTIPLY, Marginalisation.MAX)
"""Values, such as probabilities, are multiplied and maximised."""

SUM_PRODUCT = Semiring("sum-product", Combination.MULTIPLY, Marginalisation.SUM)
"""Values are multiplied and added up: the partition function."""

LOG_SUM_EXP = Semiring("log-sum-exp", Combination.ADD, Marginalisation.LOG_SUM_EXP)
"""The partition function in logarithms."""

COUNTING = Semiring("counting", Combination.MULTIPLY, Marginalisation.SUM, counts=True)
"""Every feasible assignment counts as one."""

SEMIRINGS = {s.name: s for s in (MIN_SUM, MAX_SUM, MAX_PRODUCT, SUM_PRODUCT, LOG_SUM_EXP, COUNTING)}
"""All semirings by name."""


def semiring_of(given: str | Semiring) -> Semiring:
    """A semiring as it is, or by its name; :class:`UsageError` lists the known ones."""
    found = given if isinstance(given, Semiring) else SEMIRINGS.get(given) if isinstance(given, str) else None
    if found is None:
        raise UsageError(f"unknown semiring {given!r:.100}; known: {', '.join(SEMIRINGS)}")
    return found
