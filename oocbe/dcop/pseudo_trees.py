"""Pseudo-trees: variables arranged so that those which share a constraint lie on one branch (Freuder and Quinn 1985).

A depth-first search of the primal graph makes one: an edge that is not in the tree leads to an ancestor. Branches are
independent of each other once their common ancestors have values, so agents on different branches work side by side.
A variable's *separator* is what its UTIL message is about: the ancestors that share a constraint with the variable or
with one of its descendants.

Bucket elimination has a pseudo-tree, too, of any order: a variable's parent is the first of its separator to be
eliminated. It is often much narrower, as of grids, and its edges may join agents that share no constraint.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.order import HEURISTICS as ORDER_HEURISTICS
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.orders.separators import least_connected
from oocbe.errors import UsageError
from oocbe.kernels.cpu.orders.graphs import list_separators, search_depth_first
from oocbe.model.dcop import Dcop
from oocbe.model.names import unknown_variable
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import distinct_values
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline, current_flag

AUTO = "auto"
"""Selects the heuristic and root whose messages have the fewest cells."""

SEARCHES = ("max-degree", "min-degree", "max-ancestors")
"""Which neighbour a search visits next: the one with most or fewest neighbours, or most neighbours on the branch; in
the order of the codes of :mod:`oocbe.kernels.cpu.orders.graphs`."""

ORDERS = ("min-fill", "weighted-min-fill")
"""Heuristics that derive the pseudo-tree from an elimination order."""

HEURISTICS = (*SEARCHES, *ORDERS)
"""Ways to make a pseudo-tree."""


@dataclass(frozen=True)
class PseudoTree:
    """A pseudo-tree, or a forest of them where the primal graph is not connected.

    Attributes
    ----------
    parent : of each variable, by index; None of a root.
    depth : edges from each variable to its root.
    separators : of each variable, the nearest ancestor first; empty for a root.
    heuristic : by which it was made.
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
        """By index of the variable."""
        found: list[list[int]] = [[] for _ in self.parent]
        for v, parent in enumerate(self.parent):
            if parent is not None:
                found[parent].append(v)
        return tuple(map(tuple, found))

    @property
    def width(self) -> int:
        """Size of the largest separator: the induced width."""
        return max(map(len, self.separators), default=0)

    @property
    def height(self) -> int:
        """Depth of the deepest variable."""
        return max(self.depth, default=0)

    def cells(self, sizes: tuple[int, ...]) -> int:
        """Cells of all messages as dense tables, for domains of these sizes."""
        return sum(math.prod(sizes[v] for v in separator) for separator in self.separators if separator)


def pseudo_tree(dcop: Dcop | Problem, heuristic: str = AUTO, root: int | str | None = None) -> PseudoTree:
    """Arrange variables in a pseudo-tree.

    Parameters
    ----------
    heuristic : one of :data:`SEARCHES` (depth-first search), of :data:`ORDERS` (elimination), or ``auto``: the tree
        whose dense messages have the fewest cells, over all these and several roots. Fioretto et al. and pyDcop search
        by numbers of neighbours.
    root : first variable of the search, by index or name. In other parts of the graph, and in all where it is None,
        the heuristic chooses the root (``max-ancestors``: most neighbours).

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
        return _of_order(PrimalGraph(problem), heuristic)
    primal = PrimalGraph(problem)
    graph = _Graph.of(primal)
    parent: list[int | None] = [None] * len(problem.variables)
    separators: list[tuple[int, ...]] = [()] * len(parent)
    depth = [0] * len(parent)
    chosen: set[str] = set()
    for part in graph.parts():
        if len(part.sizes) == 1:
            continue  # a root by itself
        found = _best(part, heuristic, None if first is None else part.place(first))
        chosen.add(found.heuristic)
        for v, up, level, own in found.placed():
            parent[v], depth[v], separators[v] = up, level, own
    name = chosen.pop() if len(chosen) == 1 else heuristic
    searched = PseudoTree(tuple(parent), tuple(depth), tuple(separators), name)
    if heuristic != AUTO or root is not None:
        return searched
    trees = (searched, *(_of_order(primal, name) for name in ORDERS))
    return min(trees, key=lambda tree: tree.cells(problem.sizes))


def _of_order(graph: PrimalGraph, heuristic: str) -> PseudoTree:
    """The pseudo-tree of an elimination order."""
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
    index = problem.number_by_name.get(root) if isinstance(root, str) else root
    if index is None or not 0 <= index < len(problem.variables):
        raise UsageError(f"the root: {unknown_variable(problem, root)}")
    return index


@dataclass(frozen=True, eq=False)
class _Graph:
    """A primal graph, or a connected part of one, in the form of the loops: vertices numbered from 0.
    All arrays are int64. ``variables`` has the variable of each vertex, ascending, and ``sizes`` the domain sizes. For
    ``start`` and ``neighbours`` see :func:`oocbe.kernels.cpu.orders.graphs.search_depth_first`."""

    variables: NDArray[np.int64]
    start: NDArray[np.int64]
    neighbours: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, graph: PrimalGraph) -> Self:
        """The whole primal graph of a problem."""
        count = len(graph.sizes)
        owner = np.repeat(np.arange(count), np.diff(graph.starts))
        ascending = np.lexsort((graph.neighbours, owner))
        return cls(np.arange(count), graph.starts, graph.neighbours[ascending].astype(np.int64), graph.sizes)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """Number of neighbours of each vertex."""
        return np.diff(self.start)

    def place(self, variable: int) -> int | None:
        """The vertex of a variable, or None."""
        found = int(np.searchsorted(self.variables, variable))
        return found if found < len(self.variables) and self.variables[found] == variable else None

    def parts(self) -> Iterator[_Graph]:
        """The connected parts, those with lower variables first. All together take time linear in the graph's size."""
        label = self._labels()
        order = np.argsort(label, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        lengths = self.degrees[order]
        start = np.concatenate([[0], np.cumsum(lengths)])
        moved = np.repeat(self.start[order] - start[:-1], lengths) + np.arange(start[-1])
        neighbours = place[self.neighbours[moved]]
        ends = np.cumsum(np.bincount(label)).tolist()
        for first, last in itertools.pairwise([0, *ends]):
            check_deadline()
            begin, end = start[first], start[last]
            edges = (start[first : last + 1] - begin, neighbours[begin:end] - first)
            yield _Graph(self.variables[order[first:last]], *edges, self.sizes[order[first:last]])

    def _labels(self) -> NDArray[np.int64]:
        """The number of the part that each vertex is in, int64."""
        count = len(self.sizes)
        least = least_connected(np.repeat(np.arange(count), self.degrees), self.neighbours, count)
        return np.searchsorted(distinct_values(least), least)


class _Search:
    """A depth-first search of one part, and its pseudo-tree.
    ``heuristic`` chooses the next neighbour; ``cells`` are those of all messages, and ``steps`` those of the search."""

    def __init__(self, graph: _Graph, root: int, heuristic: str) -> None:
        self.heuristic, self._variables = heuristic, graph.variables
        self._parent, self._depth = np.empty((2, len(graph.sizes)), dtype=np.int64)
        edges, flag = (graph.start, graph.neighbours), current_flag()
        self._order = search_depth_first(*edges, root, SEARCHES.index(heuristic), self._parent, self._depth, flag)
        check_deadline()
        tree = (self._order, self._parent, self._depth, graph.sizes)
        self._below, self._above, self.cells = list_separators(*edges, *tree, flag)
        check_deadline()
        self.steps = len(self._below) + len(graph.neighbours) + len(self._order)

    def placed(self) -> Iterator[tuple[int, int | None, int, tuple[int, ...]]]:
        """Each variable, its parent, depth and separator, the nearest ancestor first."""
        variables, parent, depth = self._variables.tolist(), self._parent.tolist(), self._depth.tolist()
        separators: list[list[int]] = [[] for _ in variables]
        for v, u in zip(self._below.tolist(), self._above.tolist(), strict=True):
            separators[v].append(variables[u])
        for v, own in enumerate(separators):
            yield variables[v], None if parent[v] < 0 else variables[parent[v]], depth[v], tuple(own)


def _best(graph: _Graph, heuristic: str, root: int | None) -> _Search:
    """The search of a connected part with a heuristic; of ``auto``, the one whose messages have the fewest cells."""
    by_degree = np.argsort(-graph.degrees, kind="stable")[: tuning().tree_roots].tolist()
    if heuristic != AUTO:
        first = int(np.argmin(graph.degrees)) if heuristic == "min-degree" else by_degree[0]
        return _Search(graph, first if root is None else root, heuristic)
    best: _Search | None = None
    roots = [root] if root is not None else by_degree
    steps = 0
    for first in roots:
        for name in SEARCHES:
            if best is not None and steps > tuning().tree_search_steps:
                return best
            found = _Search(graph, first, name)
            steps += found.steps
            if best is None or found.cells < best.cells:
                best = found
    assert best is not None
    return best
