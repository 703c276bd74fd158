"""Complete tables of costs in fixed point, to which others are added in place: what mini-buckets are made of.

All costs are between 0 and a *cap* that stands for "never": an assignment that a cell at the cap belongs to is
infeasible, or not below the threshold. What is at the cap stays there, so nothing overflows and nothing is undone.
The first variable of a scope changes slowest. Scopes are in one order for all tables that meet, such that variables
eliminated first come first: eliminating them reduces whole runs of neighbouring cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.complete.capped_costs import add_capped, least_capped


@dataclass(frozen=True)
class CompleteCosts:
    """Costs of all assignments of ``scope``, the slowest first: ``values`` int32 or int64 (cells,), 0 to the cap."""

    scope: tuple[int, ...]
    values: NDArray[Any]

    def at(self, assignment: Mapping[int, int], sizes: Sequence[int]) -> int:
        """The cost of an assignment of the scope."""
        place = 0
        for v in self.scope:
            place = place * sizes[v] + assignment[v]
        return int(self.values[place])


def zeros(scope: Sequence[int], sizes: Sequence[int], dtype: np.dtype[Any]) -> CompleteCosts:
    """A table that costs nothing."""
    return CompleteCosts(tuple(scope), np.zeros(math.prod(sizes[v] for v in scope), dtype=dtype))


def add(target: CompleteCosts, part: CompleteCosts, sizes: Sequence[int], cap: int, limit: int | None = None) -> None:
    """Add a table to another one whose scope contains its own, in place.

    part : in -``cap`` to ``cap``, such that no sum is negative.
    limit : cells from there on are at the cap afterwards; None: the cap.
    Raises TimeLimitError: the deadline of the block that this runs in came; some cells have their sums by then.
    """
    axes = _axes(target.scope, part.scope, sizes)
    add_capped(target.values, part.values, axes, cap, cap if limit is None else limit)


def least(table: CompleteCosts, scope: Sequence[int], sizes: Sequence[int], cap: int) -> CompleteCosts:
    """The least cost of each assignment of ``scope``, in the table's own order; errors as for :func:`add`."""
    cells = math.prod(sizes[v] for v in scope)
    return CompleteCosts(tuple(scope), least_capped(table.values, _axes(table.scope, scope, sizes), cells, cap))


def _axes(large: Sequence[int], small: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Size of each of a table's axes, the fastest first, and how far apart another one's cells are along it."""
    steps = dict.fromkeys(large, 0)
    step = 1
    for v in reversed(small):
        steps[v] = step
        step *= sizes[v]
    return [(sizes[v], steps[v]) for v in reversed(large)]
