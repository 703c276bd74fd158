"""Assignments from fractional points: literals are taken greedily, the largest first, unless they are forbidden.

Near the optimum of a tight relaxation nearly all literals are 0 or 1, and greedy choices often settle the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.forbidden import Forbidden
from oocbe.model.problem import Problem


class PointRounding:
    """Rounding of points of one problem's relaxation.

    Parameters
    ----------
    problem : evaluates the result. forbidden : sets that an assignment must not contain.
    costs : float64 (literals,), break ties.
    """

    def __init__(self, problem: Problem, forbidden: Forbidden, costs: NDArray[np.float64]) -> None:
        self._problem = problem
        self._owner = forbidden.owner.tolist()
        self._first = forbidden.first.tolist()
        self._costs = costs
        self._pairs = forbidden.pairs
        self._sets_of: dict[int, list[tuple[int, ...]]] = {}
        for sets in forbidden.larger:
            for members in map(tuple, sets.tolist()):
                for literal in members:
                    self._sets_of.setdefault(literal, []).append(members)
        self._linear = [c for c in problem.linear_constraints if c.can_bind]
        self._takes: dict[int, list[tuple[int, int]]] = {}
        self._room = []
        for number, c in enumerate(self._linear):
            self._room.append(c.capacity - sum(int(own.min()) for own in c.coefficients))
            for v, own in zip(c.scope, c.coefficients, strict=True):
                least = int(own.min())  # a difference of two coefficients may need 65 bits
                for value, amount in enumerate(own.tolist()):
                    if amount > least:
                        self._takes.setdefault(self._first[v] + value, []).append((number, amount - least))
        self.assignment: tuple[int, ...] | None = None
        self.value: int | float | None = None

    def round(self, point: NDArray[np.float64], removed: NDArray[np.uint8]) -> bool:
        """Round a point; returns whether the result is feasible and better than all earlier ones.

        Parameters
        ----------
        point : float64 (literals,). removed : uint8 (literals,), 1 for excluded literals.
        """
        order = np.lexsort((self._costs, -np.round(point, 6))).tolist()
        blocked = removed > 0
        chosen = [-1] * len(self._problem.sizes)
        taken: set[int] = set()
        room = list(self._room)
        for literal in order:
            v = self._owner[literal]
            if chosen[v] >= 0 or blocked[literal]:
                continue
            if any(amount > room[number] for number, amount in self._takes.get(literal, ())):
                continue
            chosen[v] = literal - self._first[v]
            taken.add(literal)
            blocked |= self._pairs[literal]
            for number, amount in self._takes.get(literal, ()):
                room[number] -= amount
            for members in self._sets_of.get(literal, ()):
                missing = [other for other in members if other not in taken]
                if len(missing) == 1:
                    blocked[missing[0]] = True
        if min(chosen, default=0) < 0:
            return False
        value = self._problem.evaluate(chosen)
        if value is None or (self.value is not None and value >= self.value):
            return False
        self.assignment, self.value = tuple(chosen), value
        return True
