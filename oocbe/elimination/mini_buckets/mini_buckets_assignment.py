"""The backward pass of mini-bucket elimination: an assignment, chosen greedily by what the messages promise.

As in the exact backward pass, variables are assigned against the elimination order, each to the value that its bucket
(the functions and messages it held) rates best. The messages are bounds only, so the assignment need not be optimal.
Where constraints forbid every value of a variable, the choices before it are taken back one by one (depth first, the
next best value each time; Kask and Dechter 2001 search in this way). The search for a way out is limited.
"""

from __future__ import annotations

from collections.abc import Sequence

from oocbe.elimination.buckets.assignment import value_of
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.model.parts import LinearConstraint

STEPS, STEPS_A_VARIABLE = 2000, 20
"""Variables assigned before the search gives up: many times what a pass without dead ends takes."""


def greedy_assignment(
    prepared: Prepared, buckets: Sequence[Bucket], relaxed: Sequence[LinearConstraint]
) -> tuple[int, ...] | None:
    """A value index for each variable that has a bucket; None where the search gave up.

    Parameters
    ----------
    prepared : in min-sum.
    buckets : all factors of each variable, in elimination order; variables without one are left out.
    relaxed : linear constraints that no table enforces.
    """
    chosen: dict[int, int] = {}
    capacity = _Capacity(relaxed)
    candidates: list[list[int]] = []
    places = list(reversed(buckets))
    for _ in range(STEPS + STEPS_A_VARIABLE * len(places)):
        depth = len(chosen)
        if depth == len(places):
            return tuple(chosen[v] for v in sorted(chosen))
        if len(candidates) == depth:
            candidates.append(_ranked(prepared, places[depth], chosen, capacity))
        while not candidates[-1]:
            candidates.pop()
            if not candidates:
                return None
            variable = places[len(candidates) - 1].variable
            capacity.release(variable, chosen.pop(variable))
        variable = places[len(candidates) - 1].variable
        chosen[variable] = candidates[-1].pop()
        capacity.use(variable, chosen[variable])
    return None


def _ranked(prepared: Prepared, bucket: Bucket, chosen: dict[int, int], capacity: _Capacity) -> list[int]:
    """Possible values of a bucket's variable, the best one last."""
    rated = []
    trial = dict(chosen)
    for value in range(prepared.problem.sizes[bucket.variable]):
        if not capacity.allows(bucket.variable, value):
            continue
        trial[bucket.variable] = value
        total = value_of(prepared, bucket, trial)
        if total is not None:
            rated.append((total, value))
    return [value for _, value in sorted(rated, reverse=True)]


class _Capacity:
    """What is left of each linear constraint when all variables still open take their least."""

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
