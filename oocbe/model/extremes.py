"""The least and greatest values of up to a million functions of a problem, in batched computations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.model.parts import Constraint, Function


class Extremes(NamedTuple):
    """Extremes of functions, one number each: int64 if every value is an integer, otherwise float64.

    lows, highs : least and greatest listed value; 0 for empty lists. rows : int64, number of listed values.
    defaults : 0 for functions without one. has_default : bool.
    """

    lows: NDArray[Any]
    highs: NDArray[Any]
    rows: NDArray[np.int64]
    defaults: NDArray[Any]
    has_default: NDArray[np.bool_]

    @property
    def greatest(self) -> NDArray[Any]:
        """The greatest value of each function, including its default even if no assignment has it."""
        return self._with_defaults(np.maximum, self.highs)

    @property
    def least(self) -> NDArray[Any]:
        """The least value of each function, including its default even if no assignment has it."""
        return self._with_defaults(np.minimum, self.lows)

    def _with_defaults(self, choose: Any, listed: NDArray[Any]) -> NDArray[Any]:
        chosen = np.where(self.has_default, choose(listed, self.defaults), listed)
        return np.where(self.rows == 0, self.defaults, chosen)

    def magnitudes(self) -> list[int | float]:
        """The largest absolute value of each function, defaults included."""
        pairs = zip(self.least.tolist(), self.greatest.tolist(), strict=True)
        return [max(-low, high) for low, high in pairs]  # as Python numbers: -2^63 has no positive counterpart in int64


def extremes_of(functions: Sequence[Function], is_integral: bool) -> Extremes:
    """The extremes of functions; is_integral : whether all their values are integers, see :class:`Extremes`."""
    dtype = np.dtype(np.int64 if is_integral else np.float64)
    rows = np.fromiter((len(f.values) for f in functions), dtype=np.int64, count=len(functions))
    has_default = np.fromiter((f.default is not None for f in functions), dtype=np.bool_, count=len(functions))
    defaults = np.fromiter((f.default or 0 for f in functions), dtype=dtype, count=len(functions))
    lows, highs = np.zeros((2, len(functions)), dtype=dtype)
    lists = rows > 0
    values = _listed(functions, dtype)
    if len(values):
        starts = np.concatenate([[0], np.cumsum(rows[lists])])[:-1]
        lows[lists] = np.minimum.reduceat(values, starts)
        highs[lists] = np.maximum.reduceat(values, starts)
    return Extremes(lows, highs, rows, defaults, has_default)


def _listed(functions: Sequence[Function], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The listed values of functions, concatenated."""
    return np.concatenate([np.zeros(0, dtype=dtype), *(f.values for f in functions)]).astype(dtype, copy=False)


def step_of(functions: Sequence[Function], known: Extremes) -> int:
    """Greatest common divisor of differences within functions of integers, defaults included; 0: none differs."""
    both = (known.rows > 0) & known.has_default
    lows, defaults = known.lows[both], known.defaults[both]
    pairs = [
        (_listed(functions, np.dtype(np.int64)), np.repeat(known.lows, known.rows)),
        (np.maximum(lows, defaults), np.minimum(lows, defaults)),
    ]
    # The difference of any two int64 fits into uint64.
    return int(np.gcd.reduce(np.concatenate([high.view(np.uint64) - low.view(np.uint64) for high, low in pairs])))


def lists_all(parts: Sequence[Function | Constraint], sizes: Sequence[int]) -> NDArray[np.bool_]:
    """Mask of the parts that list every assignment of their variables; sizes : of the domains of all variables."""
    rows = np.fromiter((len(part.tuples) for part in parts), dtype=np.int64, count=len(parts))
    scopes = [part.scope for part in parts]
    arity = np.fromiter(map(len, scopes), dtype=np.int64, count=len(scopes))
    members = np.fromiter(itertools.chain.from_iterable(scopes), dtype=np.int64, count=int(arity.sum()))
    cells = np.ones(len(parts))  # as floats: inexact beyond 2^53, which exceeds any list
    np.multiply.at(cells, np.repeat(np.arange(len(parts)), arity), np.array(sizes, dtype=np.float64)[members])
    found: NDArray[np.bool_] = rows == cells
    return found
