"""Stable set search, for problems with unary costs and forbidden pairs of values.

If each variable has a value without conflicts, the other chosen values form a *stable set* of the graph whose vertices
are these values and whose edges are forbidden pairs; a vertex's weight is the cost it saves. Maximum cliques are such
problems, as are auctions, and photographs without penalties or triples. With many forbidden pairs few vertices are
chosen, and a node is a few bit sets: a branch and bound with bounds from cliques that share the vertices' weights
(Babel 1994, *A fast algorithm for the maximum weight clique problem*; San Segundo, Furini and Artieda 2019, *A new
branch-and-bound algorithm for the maximum weighted clique problem*) processes a million nodes a second. All costs and
bounds are integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.cliques import bit_matrix
from oocbe.bounds.row_tables import ScopeTables
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.elimination.preparation.packing import is_packing
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.option_values import Gap
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.kernels.cpu.stable_sets import (
    DEPTH,
    EXHAUSTED,
    NODES,
    StableSetNode,
    begin_stable_sets,
    search_stable_sets,
)
from oocbe.search.subsolver import SharedBounds, SubSolver

WHY = "branch and bound over stable sets"
"""Name of the method in reports."""

MOST_VERTICES = 1 << 11
"""Maximum number of vertices of a searched graph."""

FIRST_NODES, CALL_SECONDS = 256, 0.02
"""Number of nodes of the first compiled call; later calls have this duration in seconds, by the pace."""


@dataclass(frozen=True)
class ValueGraph:
    """Values with savings, and the forbidden pairs among them.

    variable, value : int64 (vertices,), of each vertex. weight : int64 (vertices,), its saving; positive.
    adjacent : uint64 (vertices, words), symmetric bit matrix. free : int64 (variables,), values without conflicts.
    cost : of the assignment ``free``.
    """

    variable: NDArray[np.int64]
    value: NDArray[np.int64]
    weight: NDArray[np.int64]
    adjacent: NDArray[np.uint64]
    free: NDArray[np.int64]
    cost: int

    @classmethod
    def of(cls, tables: ScopeTables) -> Self | None:
        """The graph of a problem; None if the problem has no such form, or too many values."""
        if not tables.is_integral or tables.is_impossible:
            return None
        sizes = tables.problem.sizes
        start = starts_of(sizes)
        if start[-1] - len(sizes) > MOST_VERTICES:
            return None
        costs, excluded = np.zeros(start[-1], dtype=np.int64), np.zeros(start[-1], dtype=bool)
        constant = tables.constant
        pairs: list[NDArray[np.int64]] = []
        for part in tables.parts:
            if len(part.scope) == 1:
                own = slice(start[part.scope[0]], start[part.scope[0] + 1])
                costs[own], excluded[own] = part.values, ~part.permitted
                continue
            if (part.values[part.permitted] != part.least).any():
                return None
            constant += part.least
            forbidden = np.argwhere(~part.permitted)
            if len(part.scope) == 2:
                pairs.append(start[list(part.scope)] + forbidden)
            elif len(forbidden):
                return None
        edges = np.concatenate([np.zeros((0, 2), dtype=np.int64), *pairs])
        edges = edges[~excluded[edges].any(axis=1)]
        has_edge = np.zeros(start[-1], dtype=bool)
        has_edge[edges.ravel()] = True
        # The cheapest value of each variable without conflicts.
        judged = np.where(has_edge | excluded, np.iinfo(np.int64).max, costs)
        free = np.array([low + int(np.argmin(judged[low:high])) for low, high in pairwise(start)], dtype=np.int64)
        if (has_edge | excluded)[free].any():
            return None
        owner = np.repeat(np.arange(len(sizes)), sizes)
        saved = costs[free][owner] - costs
        vertices = np.flatnonzero(~excluded & (saved > 0))
        place = np.full(start[-1], -1, dtype=np.int64)
        place[vertices] = np.arange(len(vertices))
        adjacent = owner[vertices][:, None] == owner[vertices][None]
        np.fill_diagonal(adjacent, False)
        edges = place[edges]
        edges = edges[(edges >= 0).all(axis=1)]
        adjacent[edges[:, 0], edges[:, 1]] = adjacent[edges[:, 1], edges[:, 0]] = True
        order = _order(adjacent, saved[vertices])
        vertices, adjacent = vertices[order], adjacent[np.ix_(order, order)]
        return cls(
            owner[vertices],
            vertices - start[owner[vertices]],
            saved[vertices],
            bit_matrix(adjacent),
            free - start[:-1],
            int(constant) + int(costs[free].sum()),
        )


def graph_of(problem: Problem, tables: Callable[[], ScopeTables | None]) -> ValueGraph | None:
    """A min-sum problem as a graph of values; None if it has no such form, mostly detected without its ``tables``."""
    if not problem.is_integral or problem.linear_constraints or any(len(c.scope) > 2 for c in problem.constraints):
        return None
    found = tables() if is_packing(problem) else None
    return None if found is None else ValueGraph.of(found)


def _order(adjacent: NDArray[np.bool_], weight: NDArray[np.int64]) -> NDArray[np.int64]:
    """Vertex order for cliques, branched on from its end: the vertex with most remaining neighbours goes to the end,
    the lightest on ties."""
    degree = adjacent.sum(axis=1).astype(np.int64)
    is_left = np.ones(len(degree), dtype=bool)
    order = np.empty(len(degree), dtype=np.int64)
    for place in range(len(degree) - 1, -1, -1):
        left = np.flatnonzero(is_left)
        most = left[degree[left] == degree[left].max()]
        v = most[np.argmin(weight[most])]
        order[place], is_left[v] = v, False
        degree -= adjacent[v]
    return order


class StableSetSearch(SubSolver):
    """Stable set search of a min-sum problem by the graph of the whole; ``known`` is updated."""

    def __init__(self, graph: ValueGraph, known: SharedBounds) -> None:
        super().__init__(known)
        self._graph = graph
        self._pace = CALL_SECONDS / FIRST_NODES
        self._node: StableSetNode | None = None

    @property
    def expected(self) -> float:
        """Estimated total seconds, if sibling branches take equal times; infinite at first."""
        node = self._node
        if node is None or self.is_over:
            return math.inf
        behind, share = 0.0, 1.0
        for depth in range(int(node.counts[DEPTH]) + 1):
            number = int(node.number[depth])
            left = int(np.bitwise_count(node.branches[depth]).sum())
            is_within = depth < node.counts[DEPTH]
            behind += share * (number - left - is_within) / number if number else share
            share /= max(number, 1)
        return self.seconds / behind if behind > 0.0 else math.inf

    @property
    def summary(self) -> str:
        """Summary for the result."""
        return (
            f"{WHY}: {self.nodes:,} nodes in {self.seconds:.3g} s, over {len(self._graph.weight):,} values of variables"
        )

    def _step(self, seconds: float, deadline: Deadline) -> None:
        """Run one compiled call."""
        graph, known = self._graph, self._known
        if known.is_closed:
            self.is_over = True
            return
        if self._node is None:
            if graph.cost < known.upper_bound:  # the empty set: later sets must save more
                known.offer(graph.cost, tuple(graph.free.tolist()), WHY)
            self._node = _node_of(graph)
            self._take_threshold()
            begin_stable_sets(graph.adjacent, graph.weight, self._node)
        self._take_threshold()
        node, begin, best = self._node, working_time(), int(self._node.best[0])
        nodes = max(1, int(CALL_SECONDS / self._pace))
        before = int(node.counts[NODES])
        status = search_stable_sets(graph.adjacent, graph.weight, node, nodes)
        made = int(node.counts[NODES]) - before
        self.nodes += made
        if made:
            self._pace = max((working_time() - begin) / made, 1e-9)
        if node.best[0] > best:
            self._offer()
        if status == EXHAUSTED:
            self.is_over = True
            self._prove(known.upper_bound, WHY)

    def _take_threshold(self) -> None:
        """Set the cutoff to the current upper bound."""
        node, upper = self._node, self._known.upper_bound
        assert node is not None
        # Sets worth more than this cost less than the upper bound; none is worth more than all vertices.
        threshold = min(self._graph.cost - math.ceil(upper), int(self._graph.weight.sum()))
        node.best[0] = max(int(node.best[0]), threshold, -1)

    def _offer(self) -> None:
        """Report the best set as an assignment."""
        graph, node = self._graph, self._node
        assert node is not None
        chosen = node.best[1:]
        chosen = chosen[chosen >= 0]
        values = graph.free.copy()
        values[graph.variable[chosen]] = graph.value[chosen]
        value = graph.cost - int(graph.weight[chosen].sum())
        self._known.offer(value, tuple(values.tolist()), WHY)


def _node_of(graph: ValueGraph) -> StableSetNode:
    """A node with capacity for any path: a set has at most one vertex of each variable."""
    count, words = graph.adjacent.shape
    depths = len(graph.free) + 2
    return StableSetNode(
        candidates=np.zeros((depths, words), dtype=np.uint64),
        branches=np.zeros((depths, words), dtype=np.uint64),
        weight=np.zeros(depths, dtype=np.int64),
        chosen=np.zeros(depths, dtype=np.int64),
        number=np.zeros(depths, dtype=np.int64),
        residual=np.zeros(count, dtype=np.int64),
        clique=np.zeros(count, dtype=np.int64),
        open=np.zeros(words, dtype=np.uint64),
        common=np.zeros(words, dtype=np.uint64),
        best=np.full(count + 2, -1, dtype=np.int64),
        counts=np.zeros(2, dtype=np.int64),
    )


def load_loops() -> None:
    """Load the compiled loops, or compile them."""
    functions = tuple(Function.from_array((v,), [1, 0]) for v in range(2))
    problem = Problem((Variable("a", 2), Variable("b", 2)), functions, (Constraint((0, 1), np.array([[1, 1]])),))
    tables = ScopeTables.of(problem)
    graph = None if tables is None else ValueGraph.of(tables)
    assert graph is not None
    StableSetSearch(graph, SharedBounds(problem, Gap(), lambda *_: None)).work(math.inf, Deadline())
