"""The primal graph of a problem, and its pairwise constraints for random probes.

Probes (:mod:`oocbe.kernels.cpu.orders.estimate`) ignore an incomplete function over many variables with few rows,
although a join never has more rows than the product of its inputs' rows: an upper limit of a message's rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.separators import MOST_ROWS, ScopeGraph, Separators
from oocbe.elimination.preparation.prepare import scopes_of, without_zeros
from oocbe.errors import ResourceError
from oocbe.kernels.cpu.orders.estimate import estimate_rows
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline, current_flag, looked


def supports_of(problem: Problem) -> list[Constraint | Function]:
    """Constraints, and functions that permit their listed rows only."""
    return [*problem.constraints, *(f for f in problem.functions if f.default is None)]


def hidden_supports(problem: Problem, probed_size: int) -> list[Constraint | Function]:
    """Incomplete functions and constraints that probes ignore: not pairwise, or over domains above ``probed_size``."""
    return [
        s
        for s in looked(supports_of(problem))
        if len(s.scope) != 2 or max(problem.sizes[v] for v in s.scope) > probed_size
    ]


def leaves_few(problem: Problem, support: Constraint | Function) -> bool:
    """Whether a support permits less than half of its assignments: estimates without it are then unreliable."""
    listed, complete = len(support.tuples), math.prod(problem.sizes[v] for v in support.scope)
    permitted = complete - listed if isinstance(support, Constraint) and not support.allowed else listed
    return 2 * permitted < complete


def extends_always(problem: Problem) -> bool:
    """Whether each variable has a value that no hard constraint forbids with any values of the other variables.

    Then every assignment of a separator that satisfies the constraints within it is a row of the message. Otherwise
    eliminated variables may permit far fewer: equalities with one variable make all others equal.
    """
    if problem.linear_constraints:
        return False
    free = [np.ones(size, dtype=np.bool_) for size in problem.sizes]
    for support in looked(supports_of(problem)):
        forbids = isinstance(support, Constraint) and not support.allowed
        others = math.prod(problem.sizes[v] for v in support.scope)
        for place, v in enumerate(support.scope):
            listed = np.bincount(support.tuples[:, place], minlength=problem.sizes[v])
            free[v] &= listed == (0 if forbids else others // problem.sizes[v])
    return all(values.any() for values in free)


def predictions_are_exact(problem: Problem) -> bool:
    """Whether every assignment is feasible: then each message has all assignments of its scope, for any order."""
    return (
        not problem.constraints
        and not any(c.can_bind for c in problem.linear_constraints)
        and all(
            f.default is not None or len(f.values) == math.prod(problem.sizes[v] for v in f.scope)
            for f in problem.functions
        )
    )


def row_limits(
    problem: Problem,
    supports: Sequence[Constraint | Function],
    order: Sequence[int],
    separators: Sequence[Sequence[int]],
    predicted: Sequence[float],
) -> list[float]:
    """Predicted rows of each message, limited by the rows of its inputs.

    Inputs are selected greedily, the one with the fewest rows per added variable first, until they cover the separator
    or no input has fewer rows than its added variables have assignments.

    supports : lists of feasible assignments; constraints that list forbidden ones are skipped.
    order : variable indices. separators : of each bucket. predicted : rows of each message; all by position.
    """
    position = {v: place for place, v in enumerate(order)}
    bits = [math.log2(max(1, size)) for size in problem.sizes]
    inputs: list[list[tuple[float, frozenset[int]]]] = [[] for _ in order]
    for support in supports:
        if support.scope and not (isinstance(support, Constraint) and not support.allowed):
            first = min(position[v] for v in support.scope)
            inputs[first].append((math.log2(max(1, len(support.tuples))), frozenset(support.scope)))
    limits = []
    for place in looked(range(len(order))):
        separator = frozenset(separators[place])
        left, rows, candidates = set(separator), 0.0, list(inputs[place])
        while left and candidates:
            price = [(size - sum(bits[u] for u in scope & left), i) for i, (size, scope) in enumerate(candidates)]
            gain, best = min(price)
            if gain >= 0:
                break
            size, scope = candidates.pop(best)
            rows += size
            left -= scope
        rows += sum(bits[u] for u in left)
        if len(separator) == len(left):
            limits.append(predicted[place])
        else:
            limits.append(min(predicted[place], 2.0 ** min(rows, 1000.0)))
        if separator:
            target = min(position[u] for u in separator)
            inputs[target].append((math.log2(max(1.0, limits[-1])), separator))
    return limits


MASKED_SIZE = 64
"""Largest domain whose pairwise constraints are probed: remaining values are the bits of a word."""


class PrimalGraph(ScopeGraph):
    """A problem's variables as vertices, an edge where two share a scope; with the pairwise constraints for probing."""

    def __init__(self, problem: Problem) -> None:
        problem = without_zeros(problem)  # turns zeros into constraints, for the probes
        super().__init__(problem.name, scopes_of(problem), problem.sizes)
        self.problem = problem

    @cached_property
    def _pairs(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        return _pairwise_constraints(self.problem)

    @cached_property
    def _hidden(self) -> list[Constraint | Function]:
        return [s for s in hidden_supports(self.problem, MASKED_SIZE) if leaves_few(self.problem, s)]

    @property
    def is_complete(self) -> bool:
        """Whether predictions use no constraints: they are then the sizes of complete tables."""
        return len(self._pairs[1]) == 0 and not self._hidden

    def work(
        self, order: NDArray[np.int64], probes: int, seed: int, most: float = math.inf, cell_work: float = math.inf
    ) -> float:
        """Cost of all buckets, in predicted rows; the sum stops once it exceeds ``most``.

        cell_work : see :func:`oocbe.elimination.orders.order.search_orders`.
        """
        check_deadline()
        try:
            separators = self.separators(order)
        except ResourceError:
            return math.inf
        complete = None if cell_work == math.inf else cell_work * self.joined_cells(order, separators)
        rows = self.limited(order, separators, self.predict(separators, probes, seed, most, complete))
        return float(np.minimum(rows, math.inf if complete is None else complete).sum())

    def limited(
        self, order: NDArray[np.int64], separators: Separators, rows: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Predicted rows by elimination position, limited by listed rows that probes do not cover."""
        if not self._hidden:
            return rows
        limits = row_limits(self.problem, self._hidden, order.tolist(), separators.listed(), rows.tolist())
        return np.array(limits)

    def predict(
        self,
        separators: Separators,
        probes: int,
        seed: int,
        most: float = math.inf,
        otherwise: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Estimated feasible rows of each bucket's message, in the order of the separators.

        They are incomplete if all buckets together certainly cost more than ``most`` rows. The cost of a bucket is its
        rows, or its entry of ``otherwise`` if that is less.
        """
        if otherwise is None:
            otherwise = np.full(len(separators.starts) - 1, np.inf)
        uses = len(self._pairs[1]) / max(1, len(self.sizes))
        probes = max(1, min(probes, int(tuning().probe_steps / (1 + (1 + uses) * len(separators.members)))))
        limits = (otherwise, most, current_flag())
        rows = estimate_rows(*separators, self.sizes, *self._pairs, probes, seed & 0x7FFFFFFF, *limits)
        check_deadline()
        result: NDArray[np.float64] = np.minimum(rows, MOST_ROWS)
        return result


def _pairwise_constraints(problem: Problem) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """CSR of the values of one variable that a value of another permits; see :func:`estimate_rows`."""
    sizes = problem.sizes
    permitted: dict[tuple[int, int], NDArray[np.bool_]] = {}
    for part in looked(supports_of(problem)):
        scope = part.scope
        if len(scope) == 2 and max(sizes[v] for v in scope) <= MASKED_SIZE:
            forbids = isinstance(part, Constraint) and not part.allowed
            if len(part.tuples) == (0 if forbids else sizes[scope[0]] * sizes[scope[1]]):
                continue  # every pair is permitted
            pair = (scope[0], scope[1])
            array = part.to_array(sizes) if isinstance(part, Constraint) else part.to_array(sizes)[1]
            permitted[pair] = permitted[pair] & array if pair in permitted else array
    uses: list[list[tuple[int, int]]] = [[] for _ in sizes]
    masks: list[NDArray[np.uint64]] = []
    known: dict[tuple[object, ...], int] = {}
    end = 0
    for (u, v), array in looked(permitted.items()):
        for x, y, leaves in ((u, v, array), (v, u, array.T)):
            key = (leaves.shape, leaves.tobytes())
            if key not in known:
                bits = np.uint64(1) << np.arange(leaves.shape[1], dtype=np.uint64)
                masks.append(np.where(leaves, bits, np.uint64(0)).sum(axis=1, dtype=np.uint64))
                known[key] = end
                end += len(leaves)
            uses[x].append((y, known[key]))
    flat = [use for by_variable in uses for use in by_variable]
    return (
        np.concatenate([[0], np.cumsum([len(u) for u in uses])]).astype(np.int64),
        np.array([v for v, _ in flat], dtype=np.int64),
        np.array([o for _, o in flat], dtype=np.int64),
        np.concatenate(masks) if masks else np.zeros(1, dtype=np.uint64),
    )
