"""Variables that are eliminated before rows are made, because that costs nothing.

The functions over a variable are added up, and what its best value comes to is a function of its neighbours. Where this
is no larger than those it replaces, fewer variables and fewer cells are left, and the bound of dual ascent rises: all
that meets in the variable is counted exactly. So go variables that depend on their neighbours (*functional* ones: the
output of a gate, an inherited gene) and those with few neighbours. Search does so before it begins and on its way
(Larrosa and Dechter 2003, *Boosting search with variable elimination in constraint optimization and constraint
satisfaction problems*).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.model.problem import Problem
from oocbe.pruning.row_tables import Table, Tables
from oocbe.system.deadline import look

MOST_JOINED = 1 << 12
"""Cells of all functions over a variable, added up: they are looked at one by one in each pass of the ascent."""

SMALL_RESULT = 16
"""Cells of a function that never count as too many."""

_Costs = tuple[NDArray[Any], NDArray[np.bool_]]
"""Costs, 0 where they are forbidden, and where they are permitted."""


@dataclass(frozen=True)
class Step:
    """One variable eliminated. choice : its best value for each assignment of ``scope``, an axis a variable."""

    variable: int
    scope: tuple[int, ...]
    choice: NDArray[np.int64]


@dataclass(frozen=True)
class Reduction:
    """What is left of a problem.

    Attributes
    ----------
    tables : over the variables left, numbered anew. variables : their numbers before.
    steps : variables eliminated, the first one at the front. count : variables before.
    """

    tables: Tables
    variables: tuple[int, ...]
    steps: tuple[Step, ...]
    count: int

    def complete(self, assignment: Sequence[int]) -> tuple[int, ...]:
        """The assignment of all variables that costs what one of those left does."""
        values = [0] * self.count
        for v, value in zip(self.variables, assignment, strict=True):
            values[v] = value
        for step in reversed(self.steps):
            values[step.variable] = int(step.choice[tuple(values[u] for u in step.scope)])
        return tuple(values)


def reduced(tables: Tables) -> Reduction:
    """Eliminate variables, the one with the smallest result first, for as long as nothing grows; one is left at least.

    Raises
    ------
    TimeLimitError : the deadline of the block that this runs in came.
    """
    return _Elimination(tables).run()


class _Elimination:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._sizes = tables.problem.sizes
        self._parts: dict[tuple[int, ...], _Costs] = {
            part.scope: (part.values, part.permitted) for part in tables.parts
        }
        self._scopes: list[set[tuple[int, ...]]] = [set() for _ in self._sizes]
        self._near: list[set[int]] = [set() for _ in self._sizes]
        for scope in self._parts:
            for v in scope:
                self._scopes[v].add(scope)
                self._near[v].update(scope)
        for v, near in enumerate(self._near):
            near.discard(v)
        self._constant = tables.constant
        self._is_impossible = tables.is_impossible

    def run(self) -> Reduction:
        count = len(self._sizes)
        left, steps = set(range(count)), []
        cells = [self._cells(v) for v in range(count)]
        heap = [(n, v) for v, n in enumerate(cells)]
        heapq.heapify(heap)
        while heap and len(left) > 1:
            found, v = heapq.heappop(heap)
            if v not in left or found != cells[v] or not self._pays(v, found):
                continue  # a variable whose neighbours have changed is in the heap again
            look()
            steps.append(self._eliminate(v))
            left.remove(v)
            for u in steps[-1].scope:
                cells[u] = self._cells(u)
                heapq.heappush(heap, (cells[u], u))
        return self._result(sorted(left), tuple(steps))

    def _cells(self, v: int) -> int:
        """Cells of the function that eliminating a variable makes, or a number that is too many."""
        cells = 1
        for u in self._near[v]:
            cells *= self._sizes[u]
            if cells > MOST_JOINED:
                break
        return min(cells, MOST_JOINED + 1)

    def _pays(self, v: int, cells: int) -> bool:
        before = sum(self._parts[scope][0].size for scope in self._scopes[v])
        return cells * self._sizes[v] <= MOST_JOINED and cells <= max(before, SMALL_RESULT)

    def _shaped(self, scope: tuple[int, ...], within: tuple[int, ...], costs: _Costs) -> _Costs:
        """Costs over a scope as axes of a larger one, both ascending."""
        shape = [self._sizes[u] if u in scope else 1 for u in within]
        return costs[0].reshape(shape), costs[1].reshape(shape)

    def _eliminate(self, v: int) -> Step:
        scope = tuple(sorted(self._near[v]))
        whole = tuple(sorted((v, *scope)))
        shape = [self._sizes[u] for u in whole]
        costs: NDArray[Any] = np.zeros(shape, dtype=np.int64 if self._tables.is_integral else np.float64)
        permitted = np.ones(shape, dtype=bool)
        for part in sorted(self._scopes[v]):
            own, allowed = self._shaped(part, whole, self._parts.pop(part))
            costs += own
            permitted &= allowed
            for u in part:
                self._scopes[u].discard(part)
        for u in scope:
            self._near[u].update(scope)
            self._near[u] -= {u, v}
        axis = whole.index(v)
        highest = np.iinfo(np.int64).max if self._tables.is_integral else np.inf
        choice = np.where(permitted, costs, highest).argmin(axis=axis)
        is_left: NDArray[np.bool_] = np.asarray(permitted.any(axis=axis))
        best = np.take_along_axis(costs, np.expand_dims(choice, axis), axis=axis).squeeze(axis)
        self._add(scope, (np.where(is_left, best, 0), is_left))
        return Step(v, scope, choice)

    def _add(self, scope: tuple[int, ...], costs: _Costs) -> None:
        values, permitted = costs
        self._is_impossible |= not permitted.any()
        if not scope:
            self._constant += values.item()
            return
        if scope in self._parts:
            permitted = permitted & self._parts[scope][1]
            values = np.where(permitted, values + self._parts[scope][0], 0)
            self._is_impossible |= not permitted.any()
        self._parts[scope] = values, permitted
        for u in scope:
            self._scopes[u].add(scope)

    def _result(self, left: list[int], steps: tuple[Step, ...]) -> Reduction:
        tables = self._tables
        number = {v: place for place, v in enumerate(left)}
        parts = []
        known = {part.scope: part for part in tables.parts}
        for scope in sorted(self._parts):
            values, permitted = self._parts[scope]
            if scope in known and known[scope].values is values:
                least = known[scope].least
            else:
                least = values[permitted].min().item() if permitted.any() else 0
            parts.append(Table(tuple(number[v] for v in scope), values, permitted, least))
        small = replace(
            tables,
            problem=Problem(tuple(tables.problem.variables[v] for v in left), (), name=tables.problem.name),
            parts=tuple(parts),
            constant=self._constant,
            is_impossible=self._is_impossible,
        )
        return Reduction(small, tuple(left), steps, len(self._sizes))
