"""Decomposition of functions into sums of functions over fewer variables.

A variable without influence on a function leaves its scope. If the joint cost of two variables is the sum of their
separate costs, whatever the values of the others, the function is the sum of one without the first and one without
the second (*pairwise decomposition*: Favier, de Givry, Legarra and Schiex 2011, *Pairwise decomposition for
combinatorial optimization in graphical models*). The primal graph loses edges, so separators are smaller and more
variables have few neighbours. Only exact decompositions are made: integers are split, floats are not, as their sums
would round differently.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_SPLIT = 1 << 32
"""Maximum magnitude of a function that is split: magnitudes of the pieces grow, and sums must stay within 64 bits."""

Costs = tuple[NDArray[Any], NDArray[np.bool_]]
"""Costs (0 if forbidden) and a mask of permitted cells; one axis a variable."""

Piece = tuple[tuple[int, ...], Costs]
"""A scope and a function over it."""


def pieces_of(scope: tuple[int, ...], costs: Costs) -> list[Piece]:
    """Functions that add up to a given one, over as few variables as possible."""
    scope, costs = _without_idle(scope, costs)
    values, permitted = costs
    can_split = values.dtype.kind == "i" and len(scope) >= 2 and permitted.all()
    if can_split and int(np.abs(values).max()) <= LARGEST_SPLIT:
        for i, j in combinations(range(len(scope)), 2):
            rest = values - values.take([0], axis=j)
            if (rest == rest.take([0], axis=i)).all():
                without_j = _first(values, j), _first(permitted, j)
                without_i = _first(rest, i), _first(permitted, i)
                return pieces_of(_less(scope, j), without_j) + pieces_of(_less(scope, i), without_i)
    return [(scope, costs)]


def _without_idle(scope: tuple[int, ...], costs: Costs) -> Piece:
    """The function without the variables that it does not depend on."""
    values, permitted = costs
    for axis in reversed(range(len(scope))):
        is_idle = values.shape[axis] == 1 or (
            (values == values.take([0], axis=axis)).all() and (permitted == permitted.take([0], axis=axis)).all()
        )
        if is_idle:
            scope, values, permitted = _less(scope, axis), _first(values, axis), _first(permitted, axis)
    return scope, (values, permitted)


def _first(array: NDArray[Any], axis: int) -> NDArray[Any]:
    """The slice at index 0 along an axis, without the axis."""
    return array.take([0], axis=axis).squeeze(axis)


def _less(scope: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return scope[:axis] + scope[axis + 1 :]
