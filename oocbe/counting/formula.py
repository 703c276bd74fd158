"""Clauses over variables with two values, some of which count, with an integer weight for each literal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Clause = tuple[int, ...]
"""Sorted literals of different variables: ``2 * variable``, plus 1 for a negative literal."""


@dataclass(frozen=True)
class Formula:
    """Clauses to count models of.

    The count is ``multiplier`` times the sum, over the assignments of shown variables that extend to a model, of the
    product of their literals' weights.

    Attributes
    ----------
    variables : number of variables; those in no clause count, too.
    clauses : without duplicates and tautologies; an empty one has no model.
    shown : bool (variables,), whether each variable counts. Others have weight 1.
    weights : weights of the positive and of the negative literal of each variable, integers of any size; None: 1.
    multiplier : an integer.
    """

    variables: int
    clauses: tuple[Clause, ...]
    shown: NDArray[np.bool_]
    weights: tuple[tuple[int, int], ...] | None = None
    multiplier: int = 1

    @classmethod
    def of(
        cls,
        variables: int,
        clauses: Iterable[Iterable[int]],
        shown: Iterable[int] | None = None,
        weights: Sequence[tuple[int, int]] | None = None,
    ) -> Formula:
        """A formula of any clauses; ``shown`` : variables that count, None: all."""
        counts = np.full(variables, shown is None)
        if shown is not None:
            counts[list(shown)] = True
        own = None if weights is None else tuple(weights)
        return cls(variables, normalised(clauses), counts, own)

    def weight(self, literal: int) -> int:
        """The weight of a literal."""
        return 1 if self.weights is None else self.weights[literal >> 1][literal & 1]

    def total(self, v: int) -> int:
        """The sum of the weights of a variable's literals; 1 if it does not count."""
        return self.weight(2 * v) + self.weight(2 * v + 1) if self.shown[v] else 1


def normalised(clauses: Iterable[Iterable[int]]) -> tuple[Clause, ...]:
    """The clauses with sorted literals, in their first order, without duplicates and tautologies."""
    found: dict[Clause, None] = {}
    for clause in clauses:
        literals = tuple(sorted(set(clause)))
        if not any(a ^ 1 == b for a, b in pairwise(literals)):
            found[literals] = None
    return tuple(found)


class Flat(NamedTuple):
    """Lists of numbers as arrays: list ``i`` is ``content[start[i] : start[i + 1]]``.

    Attributes
    ----------
    start : int64 (lists + 1,). content : int32.
    """

    start: NDArray[np.int64]
    content: NDArray[np.int32]


def flat(lists: Sequence[Sequence[int]]) -> Flat:
    """Lists as arrays."""
    start = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(one) for one in lists], out=start[1:])
    content = np.fromiter((x for one in lists for x in one), dtype=np.int32, count=int(start[-1]))
    return Flat(start, content)


def grouped(keys: NDArray[np.int32], content: NDArray[np.int32], groups: int) -> Flat:
    """The content by its keys, numbers below ``groups``, in its first order."""
    start = np.zeros(groups + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=groups), out=start[1:])
    return Flat(start, content[np.argsort(keys, kind="stable")])
