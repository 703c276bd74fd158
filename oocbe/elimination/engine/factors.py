"""Packed factors: small functions and constraints as dense arrays, indexed by the bit fields of their scope.

Low-arity functions and constraints are looked up, not joined row by row. A packed factor's array has ``2 ** bits``
entries; its index concatenates the value indices of its scope in bit fields, the first variable of the scope lowest.
Entries whose index encodes no value (if a domain size is not a power of two) are forbidden, or one. All factors of a
problem are concatenated in one pool, so that compiled loops address them by an offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.tables.layout import bits_for


def members_of(scope: Iterable[int]) -> int:
    """Variables as a bit set."""
    members = 0
    for v in scope:
        members |= 1 << v
    return members


def elements_of(members: int) -> list[int]:
    """Variables of a bit set, ascending."""
    found = []
    while members:
        low = members & -members
        found.append(low.bit_length() - 1)
        members ^= low
    return found


@dataclass(frozen=True)
class PackedFactor:
    """A function or constraint in a pool.

    scope : variable indices, the variable eliminated first at the front (the lowest bits).
    members : the scope as a bit set (a Python integer, bit v for variable v). bits : of the index.
    offset : where its array begins in the pool.
    """

    scope: tuple[int, ...]
    members: int
    bits: int
    offset: int


@dataclass(frozen=True)
class FactorPool:
    """Packed factors of a kind, and their concatenated ``entries``: uint8 (1: permitted), or the values."""

    factors: tuple[PackedFactor, ...]
    entries: NDArray[Any]

    def selected(self, factors: Sequence[PackedFactor]) -> FactorPool:
        """A pool of some factors alone, in their order."""
        chosen, arrays, end = [], [self.entries[f.offset : f.offset + (1 << f.bits)] for f in factors], 0
        for factor, array in zip(factors, arrays, strict=True):
            chosen.append(replace(factor, offset=end))
            end += len(array)
        return FactorPool(tuple(chosen), np.concatenate(arrays) if arrays else self.entries[:1].copy())


class PoolBuilder:
    """Collects dense arrays and packs them; see :class:`FactorPool`.

    sizes : domain size of each variable. position : elimination position of each variable.
    dtype : of the entries. filler : entry at indices that encode no value.
    """

    def __init__(self, sizes: Sequence[int], position: Sequence[int], dtype: Any, filler: float) -> None:
        self._bits = [bits_for(size) for size in sizes]
        self._position = position
        self._dtype = np.dtype(dtype)
        self._filler = filler
        self._factors: list[PackedFactor] = []
        self._arrays: list[NDArray[Any]] = []
        self._end = 0

    def add(self, scope: tuple[int, ...], dense: NDArray[Any]) -> None:
        """Pack a dense array with one axis a variable, in scope order; at most ``LOOKUP_BITS`` bits in all."""
        # Row-major order makes the last axis the lowest bits: axes go from last to first eliminated.
        axes = sorted(range(len(scope)), key=lambda axis: -self._position[scope[axis]])
        ordered = dense.transpose(axes)
        bits = [self._bits[scope[axis]] for axis in axes]
        padded_shape = tuple(1 << b for b in bits)
        if padded_shape == ordered.shape:
            packed = ordered.astype(self._dtype).ravel()
        else:
            padded = np.full(padded_shape, self._filler, dtype=self._dtype)
            padded[tuple(slice(0, n) for n in ordered.shape)] = ordered
            packed = padded.ravel()
        ordered_scope = tuple(scope[axis] for axis in reversed(axes))
        self._factors.append(PackedFactor(ordered_scope, members_of(scope), sum(bits), self._end))
        self._arrays.append(packed)
        self._end += len(packed)

    def build(self) -> FactorPool:
        """The pool; its entries are never empty, so that compiled loops can always take an element's type."""
        arrays = self._arrays or [np.full(1, self._filler, dtype=self._dtype)]
        return FactorPool(tuple(self._factors), np.concatenate(arrays))
