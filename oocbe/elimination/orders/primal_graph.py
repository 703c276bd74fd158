"""The primal graph of a problem: which variables meet in a scope, and what random probes know of its constraints."""

from __future__ import annotations

import itertools
import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.row_limits import hidden_supports, leaves_few, row_limits
from oocbe.elimination.preparation.prepare import scopes_of
from oocbe.elimination.preparation.zeros import without_zeros
from oocbe.errors import ResourceError, UnsupportedError
from oocbe.kernels.cpu.orders import greedy_order as greedy
from oocbe.kernels.cpu.orders.estimate import estimate_rows
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.settings.machine import available_memory
from oocbe.system.deadline import current_flag, look
from oocbe.tables.table import format_bytes

MOST_ROWS = 2.0**960
"""Predictions end here: sums of them, ratios and bytes are still within float64."""

MASKED_SIZE = 64
"""Largest domain whose pairwise constraints are probed: values left are kept as bits of a word."""

MOST_VARIABLES = 1 << 15
"""Each greedy order takes time that grows with the square of the variables: some minutes from here on."""

NARROW = 6
"""Variables of a scope up to which all scopes of a length are put into the graph at once, pair by pair."""

GRAPH_COPIES = 8
"""Graphs, a bit for each pair of variables, that the search holds at a time: one for each of a few orders."""


def _check_graph(name: str, variables: int, nbytes: int) -> None:
    """Refuse, before anything is allocated, a primal graph that memory or patience does not suffice for."""
    if variables > MOST_VARIABLES:
        raise UnsupportedError(
            f"{name}: an elimination order is searched for {MOST_VARIABLES:,} variables at most, and there are "
            f"{variables:,}; fix variables by evidence, or divide the problem into its independent parts"
        )
    if GRAPH_COPIES * nbytes > available_memory():
        raise ResourceError(
            f"{name}: an elimination order of {variables:,} variables needs {GRAPH_COPIES} bits for each pair of them, "
            f"{format_bytes(GRAPH_COPIES * nbytes)}, more than the {format_bytes(available_memory())} of memory here"
        )


class PrimalGraph:
    """Variables as vertices, an edge where two share a scope; with the pairwise constraints for probing.

    Parameters
    ----------
    problem : the problem whose functions and constraints make the edges.
    """

    def __init__(self, problem: Problem) -> None:
        count = len(problem.variables)
        words = (count + 63) // 64
        _check_graph(problem.name, count, 8 * count * words)
        problem = without_zeros(problem)  # what they forbid, probes see as constraints
        adjacency = np.zeros((count, words), dtype=np.uint64)
        narrow: dict[int, list[tuple[int, ...]]] = {}
        for scope in set(scopes_of(problem)):
            look()
            if len(scope) <= NARROW:
                narrow.setdefault(len(scope), []).append(scope)
                continue
            index = np.array(scope, dtype=np.int64)
            members = np.zeros(words, dtype=np.uint64)
            np.bitwise_or.at(members, index >> 6, np.uint64(1) << (index & 63).astype(np.uint64))
            adjacency[index] |= members
        for arity, scopes in narrow.items():
            look()
            columns = np.array(scopes, dtype=np.int64).T
            for u, v in itertools.permutations(range(arity), 2):
                bits = np.uint64(1) << (columns[v] & 63).astype(np.uint64)
                np.bitwise_or.at(adjacency.reshape(-1), columns[u] * words + (columns[v] >> 6), bits)
        own = np.arange(count)
        adjacency[own, own >> 6] &= ~(np.uint64(1) << (own & 63).astype(np.uint64))
        self.adjacency: NDArray[np.uint64] = adjacency
        self.sizes = np.array(problem.sizes, dtype=np.int64)
        self.weights = np.log2(np.maximum(1, self.sizes))
        self._problem = problem

    @cached_property
    def _pairs(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        return _pairwise_constraints(self._problem)

    @cached_property
    def _hidden(self) -> list[Constraint | Function]:
        return [s for s in hidden_supports(self._problem, MASKED_SIZE) if leaves_few(self._problem, s)]

    @property
    def is_complete(self) -> bool:
        """Whether no constraint is known that predictions take into account: they are of complete tables then."""
        return len(self._pairs[1]) == 0 and not self._hidden

    def work(
        self, order: NDArray[np.int64], probes: int, seed: int, most: float = math.inf, cell_work: float = math.inf
    ) -> float:
        """What all buckets cost, in predicted rows; that of a part of them where it passes ``most``.

        cell_work : see :func:`oocbe.elimination.orders.order.search_orders`.
        """
        look()
        separators = self.separators(order)
        complete = None if cell_work == math.inf else cell_work * self.joined_cells(separators)
        rows = self.limited(order, separators, self.predict(separators, probes, seed, most, complete))
        return float(np.minimum(rows, math.inf if complete is None else complete).sum())

    def limited(
        self, order: NDArray[np.int64], separators: NDArray[np.uint64], rows: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Predicted rows by variable, lowered to what listed rows that probes do not see permit."""
        if not self._hidden:
            return rows
        sequence = order.tolist()
        limits = row_limits(
            self._problem,
            self._hidden,
            sequence,
            listed_separators(separators, order),
            [float(rows[v]) for v in sequence],
        )
        result = np.empty_like(rows)
        result[order] = limits
        return result

    def separators(self, order: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Bit set of each bucket's separator, by variable."""
        rows = self.adjacency.copy()
        greedy.separators_of(rows, order, current_flag())
        look()
        return rows

    def joined_cells(self, separators: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Assignments of each bucket's variables, the eliminated one among them, by variable."""
        bits = greedy.joined_bits(separators, np.log2(self.sizes))
        cells: NDArray[np.float64] = np.exp2(np.minimum(bits, np.log2(MOST_ROWS)))
        return cells

    def predict(
        self,
        separators: NDArray[np.uint64],
        probes: int,
        seed: int,
        most: float = math.inf,
        otherwise: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Estimated feasible rows of each bucket's message, by variable.

        They are incomplete where all buckets together certainly cost more than ``most`` rows. A bucket costs its rows,
        or what ``otherwise`` says where that is less.
        """
        if otherwise is None:
            otherwise = np.full(len(self.sizes), np.inf)
        limits = (otherwise, most, current_flag())
        rows = estimate_rows(separators, self.sizes, *self._pairs, probes, seed & 0x7FFFFFFF, *limits)
        look()
        result: NDArray[np.float64] = np.minimum(rows, MOST_ROWS)
        return result


def _pairwise_constraints(problem: Problem) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """CSR of what a value of one variable leaves of another; see :func:`estimate_rows`."""
    sizes = problem.sizes
    permitted: dict[tuple[int, int], NDArray[np.bool_]] = {}
    supports: list[Constraint | Function] = list(problem.constraints)
    supports += [f for f in problem.functions if f.default is None]
    for part in supports:
        scope = part.scope
        if len(scope) == 2 and max(sizes[v] for v in scope) <= MASKED_SIZE:
            pair = (scope[0], scope[1])
            array = part.to_array(sizes) if isinstance(part, Constraint) else part.to_array(sizes)[1]
            if array.all():
                continue
            permitted[pair] = permitted[pair] & array if pair in permitted else array
    uses: list[list[tuple[int, int]]] = [[] for _ in sizes]
    masks: list[NDArray[np.uint64]] = []
    known: dict[tuple[object, ...], int] = {}
    end = 0
    for (u, v), array in permitted.items():
        look()
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


def listed_separators(sets: NDArray[np.uint64], order: NDArray[np.int64]) -> list[list[int]]:
    """Variables of each bucket's separator, the one eliminated next at the front, by elimination position."""
    listed, ends = greedy.list_members(sets, order)
    members = listed.tolist()
    return [members[first:last] for first, last in itertools.pairwise(ends.tolist())]
