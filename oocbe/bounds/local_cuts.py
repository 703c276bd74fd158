"""Valid inequalities over small sets of literals, found by exact optimisation: rank cuts and their weighted relatives.

A *ball* of conflicting literals is grown around a fractional literal. The inequality over the ball that the point
violates most is found in floating point (:func:`oocbe.bounds.kernels.cpu.local_cuts.separate`). Its weights are rounded
to integers, and its right-hand side is their exact maximum over the ball's feasible sets, so it is valid for any
weights. Other literals are lifted into it, one by one, each with its largest valid weight (Padberg 1973).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.forbidden import Forbidden
from oocbe.bounds.kernels.cpu.local_cuts import grow_neighbourhood, lift, pack_subproblem, separate
from oocbe.bounds.rows import Row
from oocbe.model.problem import Problem
from oocbe.runtime.compilation import working_time
from oocbe.runtime.interruption import is_requested

WORD = 64
"""Maximum number of literals of an inequality: a set of them is one machine word."""

ITERATIONS = 400
"""Iteration limit of the simplex method for one ball."""

NODE_LIMIT = 20_000
"""Node limit of one exact maximisation. A ball that needs more is given up."""

LARGEST_DENOMINATOR = 60
"""Largest denominator tried for exact weights; other weights are rounded to :data:`FALLBACK_DENOMINATOR`."""

FALLBACK_DENOMINATOR = 720
"""Denominator of weights without a simpler exact fraction: 720 has many divisors."""

LIFTED = 40
"""Maximum number of literals lifted into an inequality; those with most conflicts come first."""

LARGEST_ROOM = 2**40
"""Largest number of a linear constraint in local cuts; larger constraints enter the program as rows only."""

LEAST_VIOLATION = 1e-3
"""Minimum violation relative to the right-hand side."""

NEAR = 1e-6
"""Distance from 0 or 1 up to which a literal counts as integral."""


_Sets = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Sets of literals, and the sets with each literal, both as CSR."""


@dataclass(frozen=True)
class _Ball:
    """Literals and the forbidden sets over them, as :func:`oocbe.bounds.kernels.cpu.local_cuts.heaviest` takes them."""

    literals: NDArray[np.int64]
    adjacent: NDArray[np.uint64]
    start: NDArray[np.int64]
    hyper: NDArray[np.uint64]
    use: NDArray[np.int64]

    @property
    def sets(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Restrictions on sets of the literals, in the order of the compiled code's arguments."""
        return self.adjacent, self.start, self.hyper, self.use


class LocalCuts:
    """Separation of violated inequalities over balls of literals.

    problem, forbidden : linear constraints, and forbidden sets.
    seed : of tie-breaking between literals.
    """

    def __init__(self, problem: Problem, forbidden: Forbidden, seed: int) -> None:
        self._pairs = forbidden.pairs
        self._sets = forbidden.larger
        self._use, self._room = _resources(problem, forbidden)
        self._random = np.random.default_rng(seed)
        self._is_bound: NDArray[np.bool_] = np.asarray(forbidden.between.any(axis=1))
        for sets in self._sets:
            self._is_bound[np.unique(sets)] = True
        self._is_bound |= (self._use > 0).any(axis=0)
        self._place = np.full(len(forbidden.owner), -1, dtype=np.int64)
        self._flat = _flat(self._sets, len(forbidden.owner))

    def find(self, point: NDArray[np.float64], size: int, deadline: float) -> list[Row]:
        """Violated inequalities at a point.

        point : float64 (literals,). size : maximum literals of a ball, at most 64. deadline : on the performance
            counter.
        """
        support = np.flatnonzero((point > NEAR) & self._is_bound)
        weight = point[support]
        seeds = np.flatnonzero(weight < 1 - NEAR)
        if len(seeds) == 0:
            return []
        place = np.full(len(point), -1, dtype=np.int64)
        place[support] = np.arange(len(support))
        placed = (place[sets] for sets in self._sets)
        links = self._links(support, [p[(p >= 0).all(axis=1)] for p in placed])
        found: dict[tuple[bytes, bytes, int], Row] = {}
        uses = np.zeros(len(support), dtype=np.int64)
        for start in self._random.permutation(seeds).tolist():
            if working_time() > deadline or is_requested():
                break
            if uses[start] >= 2:
                continue
            ball, noise = np.empty(size, dtype=np.int64), 1 + 0.3 * self._random.random(len(weight))
            ball = ball[: grow_neighbourhood(start, links, np.sqrt(weight), noise, ball)]
            row = self._cut(support[ball], point)
            if row is not None:
                found[row.key()] = row
                uses[np.isin(support, row.literals)] += 1
        return list(found.values())

    def _links(self, support: NDArray[np.int64], sets: list[NDArray[np.int64]]) -> NDArray[np.float64]:
        """Strength of links between literals of the support, float64 (support, support); sets : within it, by place."""
        links = self._pairs[np.ix_(support, support)].astype(np.float64)
        for group in sets:
            for one in range(group.shape[1]):
                for other in range(group.shape[1]):
                    if one != other:
                        np.add.at(links, (group[:, one], group[:, other]), 0.5)
        return np.minimum(links, 1.0)

    def _cut(self, ball: NDArray[np.int64], point: NDArray[np.float64]) -> Row | None:
        """The most violated inequality over a ball, lifted; None if there is none."""
        if len(ball) < 3:
            return None
        packed = self._packed(ball)
        weights = np.empty(len(ball))
        if separate(point[ball], *packed.sets, self._room, ITERATIONS, NODE_LIMIT, weights) < LEAST_VIOLATION:
            return None
        integers = integral(weights)
        keep = integers > 0
        ball, integers = ball[keep], integers[keep]
        packed = self._with_candidates(ball, integers)
        ball = packed.literals
        full = np.zeros(len(ball), dtype=np.int64)
        full[: len(integers)] = integers
        limit = int(lift(full, len(integers), *packed.sets, self._room, NODE_LIMIT))
        if limit <= 0 or float(full @ point[ball]) <= limit * (1 + LEAST_VIOLATION):
            return None
        divisor = math.gcd(*full.tolist())
        keep = full > 0
        order = np.argsort(ball[keep])
        return Row(ball[keep][order], full[keep][order] // divisor, limit // divisor, "local")

    def _with_candidates(self, ball: NDArray[np.int64], integers: NDArray[np.int64]) -> _Ball:
        """The ball, followed by candidates for lifting."""
        conflict = self._pairs[ball].T.astype(np.int64) @ integers
        conflict[ball] = 0
        room = min(WORD - len(ball), LIFTED)
        others = np.argsort(-conflict, kind="stable")[:room]
        return self._packed(np.concatenate([ball, others[conflict[others] > 0]]))

    def _packed(self, members: NDArray[np.int64]) -> _Ball:
        """Literals and the forbidden sets over them."""
        start = np.empty(len(members) + 1, dtype=np.int64)
        adjacent, hyper = pack_subproblem(members, self._pairs, *self._flat, self._place, start)
        return _Ball(members, adjacent, start, hyper, np.ascontiguousarray(self._use[:, members]))


def _flat(sets: Sequence[NDArray[np.int64]], literals: int) -> _Sets:
    """Sets of several sizes as CSR, and the sets with each literal as CSR."""
    none = np.zeros(0, dtype=np.int64)
    lengths = np.concatenate([none, *(np.full(len(group), group.shape[1]) for group in sets)])
    members = np.concatenate([none, *(group.ravel() for group in sets)])
    owner = np.repeat(np.arange(len(lengths)), lengths)
    uses = np.bincount(members, minlength=literals)
    begin, of_begin = (np.concatenate([[0], np.cumsum(counts)]).astype(np.int64) for counts in (lengths, uses))
    return begin, members, of_begin, owner[np.argsort(members, kind="stable")]


def _resources(problem: Problem, forbidden: Forbidden) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Linear constraints as resources: int64 (constraints, literals) and (constraints,), all at least 0.

    The least coefficients of all variables are subtracted from the capacity. A constraint that these already violate is
    left out of local cuts and stays a row.
    """
    count = int(forbidden.first[-1])
    use: list[NDArray[np.int64]] = []
    room: list[int] = []
    for c in problem.linear_constraints:
        if not c.can_bind:
            continue
        left = c.capacity - c.least
        widest = max((high - low for low, high in zip(*c.ends, strict=True)), default=0)
        if not 0 <= left < LARGEST_ROOM or widest > LARGEST_ROOM:
            continue
        taken = np.zeros(count, dtype=np.int64)
        for v, own in zip(c.scope, c.coefficients, strict=True):
            taken[forbidden.first[v] : forbidden.first[v + 1]] = own - own.min()
        use.append(taken)
        room.append(left)
    return np.array(use, dtype=np.int64).reshape(len(use), count), np.array(room, dtype=np.int64)


def integral(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Weights as integers: multiplied by the least exact denominator, or rounded to a fine one."""
    for factor in range(1, LARGEST_DENOMINATOR + 1):
        scaled = weights * factor
        nearest = np.rint(scaled)
        if np.abs(scaled - nearest).max() < 1e-5 * factor:
            return np.maximum(0, nearest).astype(np.int64)
    return np.maximum(0, np.rint(weights * FALLBACK_DENOMINATOR)).astype(np.int64)


def sets_as_rows(sets: Sequence[NDArray[np.int64]], owner: NDArray[np.int64]) -> list[Row]:
    """Rows that exclude the larger forbidden sets; sets that differ in one variable's value share a row."""
    rows = []
    for group in sets:
        merged: list[tuple[tuple[int, ...], ...]]
        merged = [tuple((literal,) for literal in members) for members in group.tolist()]
        for axis in range(group.shape[1]):
            together: dict[tuple[int, tuple[tuple[int, ...], ...]], set[int]] = {}
            for axes in merged:
                rest = (int(owner[axes[axis][0]]), axes[:axis] + axes[axis + 1 :])
                together.setdefault(rest, set()).update(axes[axis])
            merged = [(*rest[:axis], tuple(sorted(own)), *rest[axis:]) for (_, rest), own in together.items()]
        rows += [Row.of([v for axes in product for v in axes], group.shape[1] - 1, "set") for product in merged]
    return rows
