"""Cost functions as lists of tuples, before their layout in arrays: slots, starts, harmful slots.

A *slot* is a variable-value pair; variable v has the slots ``start[v] .. start[v + 1] - 1``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.runtime.deadline import looked

LARGE = 1 << 16
"""Tuples of a part that is not joined with others, and whose variables have a check of the deadline each."""


@dataclass
class ListedFactor:
    """A factor over at least two variables before its layout: the values of its listed tuples and of the others.

    ``has_default`` is False if a hard part forbids the others anyway.
    """

    scope: tuple[int, ...]
    tuples: NDArray[np.int64]
    values: NDArray[np.float64]
    default: float
    has_default: bool = True


def starts_of(lengths: Any) -> NDArray[np.int64]:
    """Starts of concatenated pieces of given lengths, and the end of the last one: int64 (pieces + 1,)."""
    found = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, dtype=np.int64, out=found[1:])
    return found


def slots_of(
    tables: Sequence[tuple[tuple[int, ...], NDArray[np.int64]]], start: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Slots, int64 (rows, arity), of rows of tables of one arity, from each variable's first; at least one table."""
    slots = np.repeat(start[np.array([scope for scope, _ in tables])], [len(rows) for _, rows in tables], axis=0)
    slots += np.concatenate([rows for _, rows in tables])
    return slots


def harmful_slots(parts: Sequence[ListedFactor], start: NDArray[np.int64], sizes: tuple[int, ...]) -> NDArray[np.bool_]:
    """The slots that occur in a nonzero entry of any part."""
    harmful = np.zeros(int(start[-1]), dtype=np.bool_)
    by_arity: dict[int, list[ListedFactor]] = {}
    for part in parts:
        if part.default == 0 and len(part.values) < LARGE:
            by_arity.setdefault(len(part.scope), []).append(part)
            continue
        for place, v in looked(enumerate(part.scope)):
            if part.default == 0:
                harmful[start[v] + part.tuples[part.values != 0, place]] = True
                continue
            zeros = np.bincount(part.tuples[part.values == 0, place], minlength=sizes[v])
            others = math.prod([sizes[u] for u in part.scope]) // sizes[v]
            harmful[start[v] : start[v + 1]] |= zeros != others
    for group in by_arity.values():
        slots = slots_of([(part.scope, part.tuples) for part in group], start)
        harmful[slots[np.concatenate([part.values for part in group]) != 0].ravel()] = True
    return harmful
