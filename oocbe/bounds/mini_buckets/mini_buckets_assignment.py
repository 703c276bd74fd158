"""The backward pass of mini-bucket elimination: a greedy assignment guided by the messages.

As in the exact backward pass, variables are assigned against the elimination order, each to the cheapest value of its
bucket (its functions and messages). The messages are bounds only, so the assignment need not be optimal. If
constraints forbid every value of a variable, earlier choices are undone one by one (depth first, the next best value
each time; Kask and Dechter 2001). Backtracking has a step limit, and stops at the deadline: afterwards only a pass
without dead ends gives an assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oocbe.model.parts import LinearConstraint
from oocbe.runtime.deadline import current

STEPS, STEPS_A_VARIABLE = 2000, 20
"""Limit of assignments before the search gives up: many times that of a pass without dead ends."""

Rate = Callable[[int, dict[int, int]], "int | float | None"]
"""Cost of a variable's bucket, given values of the variable and of all later ones; None if they are forbidden."""


def greedy_assignment(
    variables: Sequence[int], rate: Rate, sizes: Sequence[int], relaxed: Sequence[LinearConstraint]
) -> tuple[int, ...] | None:
    """A value index for each variable with a bucket; None if the search gave up.

    Parameters
    ----------
    variables : in elimination order; those without a bucket are left out. rate : see :data:`Rate`.
    sizes : of the domains of all variables. relaxed : linear constraints that no table contains.
    """
    chosen: dict[int, int] = {}
    capacity = _Capacity(relaxed)
    candidates: list[list[int]] = []
    places = list(reversed(variables))
    deadline = current()
    for _ in range(STEPS + STEPS_A_VARIABLE * len(places)):
        depth = len(chosen)
        if depth == len(places):
            return tuple(chosen[v] for v in sorted(chosen))
        if len(candidates) == depth:
            v = places[depth]
            allowed = [value for value in range(sizes[v]) if capacity.allows(v, value)]
            rated = [(cost, value) for value in allowed if (cost := rate(v, chosen | {v: value})) is not None]
            candidates.append([value for _, value in sorted(rated, reverse=True)])
        while not candidates[-1]:
            candidates.pop()
            if not candidates or (deadline is not None and deadline.passed):
                return None
            variable = places[len(candidates) - 1]
            capacity.release(variable, chosen.pop(variable))
        variable = places[len(candidates) - 1]
        chosen[variable] = candidates[-1].pop()
        capacity.use(variable, chosen[variable])
    return None


class _Capacity:
    """Remaining capacity of each linear constraint, with all open variables at their least consumption."""

    def __init__(self, constraints: Sequence[LinearConstraint]) -> None:
        self._left: list[int] = []
        self._extra: dict[int, list[tuple[int, list[int]]]] = {}
        for number, c in enumerate(constraints):
            least = [int(a.min()) for a in c.coefficients]
            self._left.append(c.capacity - sum(least))
            for v, a, low in zip(c.scope, c.coefficients, least, strict=True):
                self._extra.setdefault(v, []).append((number, [x - low for x in a.tolist()]))

    def allows(self, variable: int, value: int) -> bool:
        return all(extra[value] <= self._left[number] for number, extra in self._extra.get(variable, ()))

    def use(self, variable: int, value: int) -> None:
        for number, extra in self._extra.get(variable, ()):
            self._left[number] -= extra[value]

    def release(self, variable: int, value: int) -> None:
        for number, extra in self._extra.get(variable, ()):
            self._left[number] += extra[value]
