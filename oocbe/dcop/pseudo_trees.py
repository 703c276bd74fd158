"""Pseudo-trees: variables arranged so that those which share a constraint lie on one branch (Freuder and Quinn 1985).

A depth-first search of the primal graph makes one: an edge that is not in the tree leads to an ancestor. Branches are
independent of each other once their common ancestors have values, so agents on different branches work side by side.
A variable's *separator* is what its UTIL message is about: the ancestors that share a constraint with the variable or
with one of its descendants.

Bucket elimination has a pseudo-tree, too, of any order: a variable's parent is the first of its separator to be
eliminated. It is often much narrower, as of grids, and its edges may join agents that share no constraint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oocbe.elimination.orders.order import HEURISTICS as ORDER_HEURISTICS
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.preparation.prepare import scopes_of
from oocbe.errors import UsageError
from oocbe.kernels.cpu.orders.depth_first import list_separators, search_depth_first
from oocbe.model.dcop import Dcop
from oocbe.model.names import unknown_variable
from oocbe.model.problem import Problem
from oocbe.system.deadline import current_flag, look

AUTO = "auto"
"""The heuristic and root whose messages have the fewest cells, of those that are tried."""

SEARCHES = ("max-degree", "min-degree", "max-ancestors")
"""Which neighbour a search visits next: the one with most or fewest neighbours, or most neighbours on the branch; in
the order of the codes of :mod:`oocbe.kernels.cpu.orders.depth_first`."""

ORDERS = ("min-fill", "weighted-min-fill")
"""Elimination orders that have a pseudo-tree."""

HEURISTICS = (*SEARCHES, *ORDERS)
"""Ways to make a pseudo-tree."""

ROOTS = 16
"""Roots that ``auto`` tries with each heuristic in each part of the graph: those with most neighbours."""

SEARCHED_STEPS = 1 << 23
"""Steps of searches after which ``auto`` tries no other tree. Of grids, random and scale-free graphs of up to 10,000
variables each takes 32 to 70 ns, so that this is a quarter to half a second; no more than 2^22 or as many as 2^28 of
them found no other tree, as an elimination order had the best."""


@dataclass(frozen=True)
class PseudoTree:
    """A pseudo-tree, or a forest of them where the primal graph is not connected.

    Attributes
    ----------
    parent : of each variable, by index; None of a root.
    depth : edges from each variable to its root.
    separators : of each variable, the nearest ancestor first; empty for a root.
    heuristic : which made it.
    """

    parent: tuple[int | None, ...]
    depth: tuple[int, ...]
    separators: tuple[tuple[int, ...], ...]
    heuristic: str

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Variables without a parent: one a connected part of the primal graph."""
        return tuple(v for v, parent in enumerate(self.parent) if parent is None)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Of each variable, by index."""
        found: list[list[int]] = [[] for _ in self.parent]
        for v, parent in enumerate(self.parent):
            if parent is not None:
                found[parent].append(v)
        return tuple(map(tuple, found))

    @property
    def width(self) -> int:
        """Variables of the largest separator: the induced width."""
        return max(map(len, self.separators), default=0)

    @property
    def height(self) -> int:
        """Depth of the deepest variable."""
        return max(self.depth, default=0)

    def cells(self, sizes: tuple[int, ...]) -> int:
        """Cells of all complete messages, for variables with domains of these sizes."""
        return sum(math.prod(sizes[v] for v in separator) for separator in self.separators if separator)


def pseudo_tree(dcop: Dcop | Problem, heuristic: str = AUTO, root: int | str | None = None) -> PseudoTree:
    """Arrange variables in a pseudo-tree.

    Parameters
    ----------
    heuristic : one of :data:`SEARCHES` (depth-first search), of :data:`ORDERS` (elimination), or ``auto``: the tree
        whose complete messages have the fewest cells, of all these and several roots. Fioretto et al. and pyDcop search
        by numbers of neighbours.
    root : variable, by index or name, that a search begins with; other parts of the graph, and all where it is None,
        begin with what the heuristic prefers (``max-ancestors``: most neighbours).

    Raises
    ------
    UsageError : an unknown heuristic or variable, or a root of an elimination order.
    """
    problem = dcop.problem if isinstance(dcop, Dcop) else dcop
    if heuristic not in (AUTO, *HEURISTICS):
        raise UsageError(f"unknown heuristic {heuristic!r} for a pseudo-tree; known: {', '.join((AUTO, *HEURISTICS))}")
    first = None if root is None else _index_of(problem, root)
    if heuristic in ORDERS:
        if root is not None:
            raise UsageError(f"root {root}: {heuristic} chooses the root by itself; give one of {', '.join(SEARCHES)}")
        return _of_order(problem, heuristic)
    graph = _Graph(problem)
    parent: list[int | None] = [None] * len(problem.variables)
    separators: list[tuple[int, ...]] = [()] * len(parent)
    depth = [0] * len(parent)
    chosen: set[str] = set()
    for part in graph.parts():
        begin = first if first is not None and first in part else None
        found = _best(graph, sorted(part), heuristic, begin)
        chosen.add(found.heuristic)
        for v, up, level, own in found.placed():
            parent[v], depth[v], separators[v] = up, level, own
    name = chosen.pop() if len(chosen) == 1 else heuristic
    searched = PseudoTree(tuple(parent), tuple(depth), tuple(separators), name)
    if heuristic != AUTO or root is not None:
        return searched
    return min((searched, *(_of_order(problem, name) for name in ORDERS)), key=lambda tree: tree.cells(problem.sizes))


def _of_order(problem: Problem, heuristic: str) -> PseudoTree:
    """The pseudo-tree of an elimination order."""
    graph = PrimalGraph(problem)
    order = ORDER_HEURISTICS[heuristic](graph, 0)
    sequence = order.tolist()
    separators: list[tuple[int, ...]] = [()] * len(sequence)
    parent: list[int | None] = [None] * len(sequence)
    depth = [0] * len(sequence)
    for v, separator in zip(sequence, graph.separators(order).listed(), strict=True):
        separators[v] = separator
        parent[v] = separator[0] if separator else None
    for v in reversed(sequence):
        up = parent[v]
        depth[v] = 0 if up is None else depth[up] + 1
    return PseudoTree(tuple(parent), tuple(depth), tuple(separators), heuristic)


def _index_of(problem: Problem, root: int | str) -> int:
    names = {v.name: index for index, v in enumerate(problem.variables)}
    index = names.get(root) if isinstance(root, str) else root
    if index is None or not 0 <= index < len(problem.variables):
        raise UsageError(f"the root: {unknown_variable(problem, root)}")
    return index


class _Graph:
    """A problem's primal graph as the loops take it.

    Attributes
    ----------
    start, neighbours : int64; see :func:`oocbe.kernels.cpu.orders.depth_first.search_depth_first`.
    sizes : int64, of domains.
    """

    def __init__(self, problem: Problem) -> None:
        graph: list[set[int]] = [set() for _ in problem.variables]
        for scope in scopes_of(problem):
            look()
            for v in scope:
                graph[v].update(scope)
        for v, neighbours in enumerate(graph):
            neighbours.discard(v)
        self._graph = graph
        self.start = np.cumsum([0, *map(len, graph)], dtype=np.int64)
        self.neighbours = np.array([u for neighbours in graph for u in sorted(neighbours)], dtype=np.int64)
        self.sizes = np.array(problem.sizes, dtype=np.int64)

    def degree(self, v: int) -> int:
        """How many neighbours a variable has."""
        return len(self._graph[v])

    def parts(self) -> Iterator[set[int]]:
        """The connected parts."""
        left = set(range(len(self._graph)))
        while left:
            look()
            waiting = [min(left)]
            part = set(waiting)
            while waiting:
                for other in self._graph[waiting.pop()] - part:
                    part.add(other)
                    waiting.append(other)
            left -= part
            yield part


class _Search:
    """A depth-first search of one part, and what becomes of it.

    Attributes
    ----------
    heuristic : which neighbour it visits next. cells : of all messages. steps : what it took.
    """

    def __init__(self, graph: _Graph, root: int, heuristic: str) -> None:
        self.heuristic = heuristic
        self._parent, self._depth = np.empty((2, len(graph.sizes)), dtype=np.int64)
        edges, flag = (graph.start, graph.neighbours), current_flag()
        self._order = search_depth_first(*edges, root, SEARCHES.index(heuristic), self._parent, self._depth, flag)
        look()
        tree = (self._order, self._parent, self._depth, graph.sizes)
        self._below, self._above, self.cells = list_separators(*edges, *tree, flag)
        look()
        self.steps = len(self._below) + len(graph.neighbours) + len(self._order)

    def placed(self) -> Iterator[tuple[int, int | None, int, tuple[int, ...]]]:
        """Each variable, its parent, depth and separator, the nearest ancestor first."""
        separators: dict[int, list[int]] = {v: [] for v in self._order.tolist()}
        for v, u in zip(self._below.tolist(), self._above.tolist(), strict=True):
            separators[v].append(u)
        for v, own in separators.items():
            up = int(self._parent[v])
            yield v, None if up < 0 else up, int(self._depth[v]), tuple(own)


def _best(graph: _Graph, part: list[int], heuristic: str, root: int | None) -> _Search:
    """The search with a heuristic; of ``auto``, the one whose messages have the fewest cells."""
    by_degree = sorted(part, key=lambda v: (-graph.degree(v), v))
    if heuristic != AUTO:
        first = min(part, key=lambda v: (graph.degree(v), v)) if heuristic == "min-degree" else by_degree[0]
        return _Search(graph, first if root is None else root, heuristic)
    best: _Search | None = None
    roots = [root] if root is not None else by_degree[:ROOTS]
    steps = 0
    for first in roots:
        for name in SEARCHES:
            if best is not None and steps > SEARCHED_STEPS:
                return best
            found = _Search(graph, first, name)
            steps += found.steps
            if best is None or found.cells < best.cells:
                best = found
    assert best is not None
    return best
