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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from oocbe.elimination.orders.order import search_orders
from oocbe.elimination.preparation.prepare import scopes_of
from oocbe.errors import UsageError
from oocbe.model.dcop import Dcop
from oocbe.model.problem import Problem
from oocbe.system.deadline import look

AUTO = "auto"
"""The heuristic and root whose messages have the fewest cells, of those that are tried."""

SEARCHES = ("max-degree", "min-degree", "max-ancestors")
"""Which neighbour a search visits next: the one with most or fewest neighbours, or most neighbours on the branch."""

ORDERS = ("min-fill", "weighted-min-fill")
"""Elimination orders that have a pseudo-tree."""

HEURISTICS = (*SEARCHES, *ORDERS)
"""Ways to make a pseudo-tree."""

ROOTS = 16
"""Roots that ``auto`` tries with each heuristic in each part of the graph: those with most neighbours."""

SEARCHED_STEPS = 1 << 18
"""Steps of searches after which ``auto`` tries no other tree: about a second."""


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
    graph = _neighbours(problem)
    parent: list[int | None] = [None] * len(graph)
    separators: list[tuple[int, ...]] = [()] * len(graph)
    depth = [0] * len(graph)
    chosen: set[str] = set()
    for part in _parts(graph):
        begin = first if first is not None and first in part else None
        found = _best(graph, sorted(part), problem.sizes, heuristic, begin)
        chosen.add(found.heuristic)
        for v in found.order:
            parent[v], depth[v], separators[v] = found.parent[v], found.depth[v], found.separators[v]
    name = chosen.pop() if len(chosen) == 1 else heuristic
    searched = PseudoTree(tuple(parent), tuple(depth), tuple(separators), name)
    if heuristic != AUTO or root is not None:
        return searched
    return min((searched, *(_of_order(problem, name) for name in ORDERS)), key=lambda tree: tree.cells(problem.sizes))


def _of_order(problem: Problem, heuristic: str) -> PseudoTree:
    """The pseudo-tree of an elimination order."""
    order = search_orders(problem, heuristic, 0.0, 0)[0]
    place = {v: position for position, v in enumerate(order.order)}
    separators: list[tuple[int, ...]] = [()] * len(place)
    parent: list[int | None] = [None] * len(place)
    depth = [0] * len(place)
    for v, separator in zip(order.order, order.separators, strict=True):
        separators[v] = tuple(sorted(separator, key=place.__getitem__))
        parent[v] = separators[v][0] if separator else None
    for v in reversed(order.order):
        up = parent[v]
        depth[v] = 0 if up is None else depth[up] + 1
    return PseudoTree(tuple(parent), tuple(depth), tuple(separators), heuristic)


def _index_of(problem: Problem, root: int | str) -> int:
    names = {v.name: index for index, v in enumerate(problem.variables)}
    index = names.get(root) if isinstance(root, str) else root
    if index is None or not 0 <= index < len(problem.variables):
        raise UsageError(f"{problem.name}: the root {root!r} is none of its variables")
    return index


def _neighbours(problem: Problem) -> list[set[int]]:
    graph: list[set[int]] = [set() for _ in problem.variables]
    for scope in scopes_of(problem):
        look()
        for v in scope:
            graph[v].update(scope)
    for v, neighbours in enumerate(graph):
        neighbours.discard(v)
    return graph


def _parts(graph: list[set[int]]) -> Iterator[set[int]]:
    """The connected parts of a graph."""
    left = set(range(len(graph)))
    while left:
        look()
        waiting = [min(left)]
        part = set(waiting)
        while waiting:
            for other in graph[waiting.pop()] - part:
                part.add(other)
                waiting.append(other)
        left -= part
        yield part


@dataclass(frozen=True)
class _Search:
    """A depth-first search of one part: variables in the order of their visits, and what became of each."""

    heuristic: str
    order: list[int]
    parent: dict[int, int | None]
    depth: dict[int, int]
    separators: dict[int, tuple[int, ...]]


def _best(graph: list[set[int]], part: list[int], sizes: tuple[int, ...], heuristic: str, root: int | None) -> _Search:
    """The search with a heuristic; of ``auto``, the one whose messages have the fewest cells."""
    by_degree = sorted(part, key=lambda v: (-len(graph[v]), v))
    if heuristic != AUTO:
        first = min(part, key=lambda v: (len(graph[v]), v)) if heuristic == "min-degree" else by_degree[0]
        return _search(graph, first if root is None else root, heuristic)
    best: tuple[float, _Search] | None = None
    roots = [root] if root is not None else by_degree[:ROOTS]
    steps = 0
    for first in roots:
        for name in SEARCHES:
            if best is not None and steps > SEARCHED_STEPS:
                return best[1]
            found = _search(graph, first, name)
            steps += sum(len(s) + len(graph[v]) for v, s in found.separators.items()) + len(part)
            cells = float(sum(math.prod(sizes[v] for v in s) for s in found.separators.values()))
            if best is None or cells < best[0]:
                best = (cells, found)
    assert best is not None
    return best[1]


def _search(graph: list[set[int]], root: int, heuristic: str) -> _Search:
    """Search depth first from a root; of neighbours that are alike the one with the lowest index is visited first."""
    parent: dict[int, int | None] = {root: None}
    depth = {root: 0}
    on_branch = {root}
    ratings: dict[str, Callable[[int], tuple[int, ...]]] = {
        "max-degree": lambda v: (-len(graph[v]), v),
        "min-degree": lambda v: (len(graph[v]), v),
        "max-ancestors": lambda v: (-len(graph[v] & on_branch), -len(graph[v]), v),
    }
    rating = ratings[heuristic]
    order, branch = [root], [root]
    while branch:
        look()
        v = branch[-1]
        unvisited = [other for other in graph[v] if other not in parent]
        if not unvisited:
            on_branch.discard(branch.pop())
            continue
        visited = min(unvisited, key=rating)
        parent[visited], depth[visited] = v, len(branch)
        order.append(visited)
        branch.append(visited)
        on_branch.add(visited)
    above: dict[int, set[int]] = {v: {u for u in graph[v] if depth[u] < depth[v]} for v in order}
    for v in reversed(order):
        up = parent[v]
        if up is not None:
            above[up] |= above[v] - {up}
    separators = {v: tuple(sorted(above[v], key=lambda u: -depth[u])) for v in order}
    return _Search(heuristic, order, parent, depth, separators)
