"""Linear constraints under reduction: values and variables are removed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.model.parts import LinearConstraint


class LinearParts:
    """Linear constraints over variables that lose values.

    Parameters
    ----------
    constraints : of the whole problem.
    """

    def __init__(self, constraints: Sequence[LinearConstraint]) -> None:
        self._constraints = constraints
        self._coefficients: list[dict[int, NDArray[np.int64]]] = [
            dict(zip(c.scope, c.coefficients, strict=True)) for c in constraints
        ]
        self._capacities = [c.capacity for c in constraints]
        self._over: dict[int, list[int]] = {}
        for place, c in enumerate(constraints):
            for v in c.scope:
                self._over.setdefault(v, []).append(place)

    def has(self, v: int) -> bool:
        """Whether a constraint contains the variable."""
        return v in self._over

    def keep(self, v: int, kept: NDArray[np.int64]) -> None:
        """Keep only some values of a variable."""
        for place in self._over.get(v, ()):
            self._coefficients[place][v] = self._coefficients[place][v][kept]

    def fix(self, v: int) -> None:
        """Remove a variable with one value from the constraints."""
        for place in self._over.pop(v, ()):
            self._capacities[place] -= int(self._coefficients[place].pop(v)[0])

    def orders(self, v: int, dtype: Any) -> list[tuple[NDArray[Any], NDArray[np.bool_]]]:
        """Linear constraints as functions over a variable's values, for dominance tests between values.

        Each has shape (values, thresholds): costs of 0, and permitted cells. A value with smaller consumption permits a
        superset of thresholds, so it blocks its replacement by a value of larger consumption. dtype : of costs.
        """
        found = []
        for place in self._over.get(v, ()):
            own = self._coefficients[place][v]
            permitted = own[:, None] <= np.unique(own)[None]
            found.append((np.zeros(permitted.shape, dtype=dtype), permitted))
        return found

    def left(self, number: Mapping[int, int]) -> tuple[LinearConstraint, ...]:
        """The constraints that can bind, over the remaining variables. number : new number of each variable."""
        found = []
        for c, coefficients, capacity in zip(self._constraints, self._coefficients, self._capacities, strict=True):
            lows = {v: int(own.min()) for v, own in coefficients.items()}
            own = replace(
                c,
                scope=tuple(number[v] for v in coefficients),
                coefficients=tuple(own - lows[v] for v, own in coefficients.items()),
                capacity=capacity - sum(lows.values()),
            )
            if own.can_bind:
                found.append(own)
        return tuple(found)
