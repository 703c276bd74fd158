"""Sums of XCSP3 as linear constraints and functions: what each value of each variable adds, in exact integers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.io.xcsp_variables import Domain
from oocbe.model.model_checks import INT64
from oocbe.model.parts import Function, LinearConstraint

MOST_COEFFICIENTS = 2**26
"""Coefficients of all sums together at most, one a value of each variable."""


class Term(NamedTuple):
    """A variable times an integer."""

    coefficient: int
    variable: int


@dataclass(eq=False)
class Sums:
    """Linear constraints and the objective's functions over variables with some domains."""

    domains: list[Domain]
    linear: list[LinearConstraint] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    maximises: bool = False
    _known: dict[tuple[int, int], NDArray[np.int64]] = field(default_factory=dict)
    _coefficients: int = 0

    def add_at_most(self, terms: list[Term], capacity: int, name: str) -> None:
        """Terms add up to at most ``capacity``; UnsupportedError where numbers leave 64 bits or are too many."""
        merged = _merged(terms)
        self._coefficients += sum(len(self.domains[v].values) for v in merged)
        if self._coefficients > MOST_COEFFICIENTS:
            raise UnsupportedError(f"more than {MOST_COEFFICIENTS:,} values of variables in sums")
        if not INT64.min < capacity < INT64.max:
            raise UnsupportedError("a right-hand side of more than 64 bits")
        columns = tuple(self._products(coefficient, v) for v, coefficient in merged.items())
        self.linear.append(LinearConstraint(tuple(merged), columns, capacity, name))

    def set_objective(self, terms: list[Term], maximises: bool) -> None:
        """Optimise the sum of some terms."""
        self.maximises = maximises
        for v, coefficient in _merged(terms).items():
            size = len(self.domains[v].values)
            self.functions.append(Function((v,), np.arange(size)[:, None], self._products(coefficient, v)))

    def _products(self, coefficient: int, v: int) -> NDArray[np.int64]:
        """What each value of a variable adds."""
        domain = self.domains[v]
        key = (coefficient, id(domain))
        if key not in self._known:
            if abs(coefficient) * max(abs(int(domain.values[0])), abs(int(domain.values[-1]))) > INT64.max:
                raise UnsupportedError("a coefficient times a value of more than 64 bits")
            self._known[key] = coefficient * domain.values
        return self._known[key]


def _merged(terms: list[Term]) -> dict[int, int]:
    """The coefficient of each variable."""
    found: dict[int, int] = {}
    for coefficient, v in terms:
        found[v] = found.get(v, 0) + coefficient
    return {v: coefficient for v, coefficient in found.items() if coefficient}
