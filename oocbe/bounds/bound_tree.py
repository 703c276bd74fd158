"""A tree of bounds: depth-first search with dual ascent, whose nodes keep what their bounds are sums of.

The ascent is that of :mod:`oocbe.bounds.local_polytope`; forbidden tuples and values cost a little more than a limit,
so that every conclusion is a bound. Branching is *strong*: each value of some variables is tried. The trees are small,
as those who check a proof pay for each node.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu.dual_ascent import least_of_functions, sweep
from oocbe.bounds.row_tables import network_of
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.runtime.deadline import check_deadline, current_flag

SCALE = 1 << 8
"""Shares are multiples of ``1 / SCALE``."""

NEVER = np.iinfo(np.int64).max
"""Cost of a forbidden tuple."""

MOST_NUMBERS = 20_000_000
"""Shares of all nodes of a search at most, 8 bytes each."""

PASSES = 30
"""Passes of the ascent of a node at most."""

LITTLE = 0.01
"""Gain of a pass, relative to what is missing, below which the ascent of a node ends."""

CANDIDATES = 12
"""Variables whose values are tried before one is chosen."""

DEEPEST = 200
"""Decisions of a node at most."""


class Node(NamedTuple):
    """A node of the search: int64 arrays in units of ``1 / SCALE``.

    Attributes
    ----------
    shares : of each use and value, what a function passes to the value. least : cost left in each function.
    low : least cost of each variable's values. reduced : of each value, above ``low``. bound : the sum of ``least`` and
    ``low``.
    """

    shares: NDArray[np.int64]
    least: NDArray[np.int64]
    low: NDArray[np.int64]
    reduced: NDArray[np.int64]
    bound: int


class Tree(NamedTuple):
    """A node, the variable whose values are its children (None: a leaf), and a child for each value not excluded."""

    node: Node
    variable: int | None
    children: dict[int, Tree]


class BoundSearch:
    """A search for a tree whose leaves have bounds above a limit.

    Parameters
    ----------
    sizes : of the variables. costs : int64, of all values. tables : scopes and int64 costs of functions over several
    variables, at least 0. barred : values that are excluded. limit : of the sum of costs. end : of the search, as of
    :func:`time.perf_counter`.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        costs: NDArray[np.int64],
        tables: Sequence[tuple[tuple[int, ...], NDArray[np.int64]]],
        barred: Sequence[int],
        limit: int,
        end: float,
    ) -> None:
        self._first, self._limit, self._high = starts_of(sizes), SCALE * limit, SCALE * (limit + 1)
        self._end, self._numbers = end, 0
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *(table.ravel() for _, table in tables)])
        self._exact = np.where(flat == NEVER, NEVER, flat * SCALE)
        scopes, lengths = [scope for scope, _ in tables], [table.size for _, table in tables]
        starts = np.repeat(starts_of(lengths)[:-1], [len(scope) for scope in scopes])
        self._network = network_of(scopes, sizes, starts, np.minimum(self._exact, self._high).astype(np.float64))
        values = [np.arange(*self._first[v : v + 2]) for v in self._network.variable]
        self._value = np.concatenate([np.zeros(0, dtype=np.int64), *values])
        self._degree = np.bincount(self._network.variable, minlength=len(sizes))
        self._costs = SCALE * costs
        self._costs[list(barred)] += self._high
        self._removed = np.zeros(len(costs), dtype=np.uint8)

    def tree(self) -> tuple[Node, Tree | None]:
        """The root, and its tree; None where the search reached a limit."""
        root = self._ascend(np.zeros(len(self._value)), self._costs, PASSES)
        return root, self._below(root, self._costs, frozenset())

    def _below(self, node: Node, costs: NDArray[np.int64], decided: frozenset[int]) -> Tree | None:
        check_deadline()
        if node.bound > self._limit:
            return Tree(node, None, {})
        self._numbers += len(node.shares)
        if self._numbers > MOST_NUMBERS or len(decided) >= DEEPEST or time.perf_counter() > self._end:
            return None
        v, children = self._variable(node, costs, decided), dict[int, Tree]()
        if v is None:
            return None
        for a, own in self._values(node, costs, v):
            child = self._below(self._ascend(node.shares, own, PASSES), own, decided | {v})
            if child is None:
                return None
            children[a] = child
        return Tree(node, v, children)

    def _values(self, node: Node, costs: NDArray[np.int64], v: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The values of a variable that reduced costs leave, each with the costs if the variable has it."""
        begin, end = self._first[v : v + 2]
        high = costs.copy()
        high[begin:end] += self._high
        for a in np.flatnonzero(node.bound + node.reduced[begin:end] <= self._limit).tolist():
            own = high.copy()
            own[begin + a] -= self._high
            yield a, own

    def _variable(self, node: Node, costs: NDArray[np.int64], decided: frozenset[int]) -> int | None:
        """The variable with the least estimate of its children's trees; None if all are decided."""
        missing, first = self._limit + 1 - node.bound, self._first[:-1]
        left = np.add.reduceat(node.reduced < missing, first)
        rise = np.add.reduceat(np.minimum(node.reduced, missing), first) / missing
        best, least = None, math.inf
        candidates = [v for v in np.argsort(-(rise + self._degree) / left, kind="stable").tolist() if v not in decided]
        for v in candidates[:CANDIDATES]:
            check_deadline()
            if best is not None and time.perf_counter() > self._end:
                break
            bounds = [self._ascend(node.shares, own, 1).bound for _, own in self._values(node, costs, v)]
            estimate = sum(math.expm1(5 * max(0.0, min(1.0, (self._limit + 1 - b) / missing))) for b in bounds)
            if estimate < least:
                best, least = v, estimate
        return best

    def _ascend(self, given: NDArray[np.generic], costs: NDArray[np.int64], passes: int) -> Node:
        """Continue the dual ascent from given shares."""
        shares, network, stop = given.astype(np.float64), self._network, current_flag()
        left, best = costs + np.bincount(self._value, shares, len(costs)), self._node(np.rint(shares), costs)
        for _ in range(passes):
            sweep(network, True, shares, self._removed, left, True, stop)
            sweep(network, False, shares, self._removed, left, True, stop)
            ended, rest = shares.copy(), left.copy()
            sweep(network, True, ended, self._removed, rest, False, stop)
            before, found = best.bound, self._node(np.rint(ended), costs)
            best = max(best, found, key=lambda node: node.bound)
            if best.bound > self._limit or found.bound - before < LITTLE * (self._limit + 1 - before):
                break
        return best

    def _node(self, given: NDArray[np.float64], costs: NDArray[np.int64]) -> Node:
        shares, least = given.astype(np.int64), np.empty(len(self._network.function_start) - 1, dtype=np.int64)
        least_of_functions(self._network, self._exact, shares, self._removed, NEVER, least)
        least[least == NEVER] = self._high
        totals = costs.copy()
        np.add.at(totals, self._value, shares)
        low = np.minimum.reduceat(totals, self._first[:-1])
        return Node(shares, least, low, totals - np.repeat(low, np.diff(self._first)), int(least.sum() + low.sum()))
