"""Depth-first search of a primal graph, and the messages of the resulting pseudo-tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit

MAX_DEGREE, MIN_DEGREE, MAX_ANCESTORS = 0, 1, 2
"""Selection of the next unvisited neighbour: most or fewest neighbours, or most neighbours on the branch."""


@jit
def search_depth_first(start: Any, neighbours: Any, root: Any, rule: Any, parent: Any, depth: Any, stop: Any) -> Any:
    """Visit the connected component of a root; ties go to the lowest index.

    start : int64 (vertices + 1,), start of each vertex's neighbours in ``neighbours``, int64, ascending.
    rule : :data:`MAX_DEGREE`, :data:`MIN_DEGREE`, or :data:`MAX_ANCESTORS`, with ties as MAX_DEGREE.
    parent, depth : int64 (vertices,), written for visited vertices; the root's parent is -1.
    stop : int64 (1,); a nonzero value ends the search.
    Returns int64, the vertices in the order of the visit.
    """
    count = len(start) - 1
    is_visited = np.zeros(count, dtype=np.bool_)
    ancestors = np.zeros(count, dtype=np.int64)  # neighbours on the branch
    branch = np.empty(count, dtype=np.int64)
    order = np.empty(count, dtype=np.int64)
    length, visited = 0, 0
    following, above = root, np.int64(-1)
    while following >= 0 or length > 0:
        if stop[0] != 0:
            break
        if following >= 0:
            parent[following], depth[following] = above, length
            is_visited[following] = True
            order[visited] = following
            visited += 1
            branch[length] = following
            length += 1
            for i in range(start[following], start[following + 1]):
                ancestors[neighbours[i]] += 1
        v = branch[length - 1]
        following, above = np.int64(-1), v
        best_first, best_second = np.int64(0), np.int64(0)
        for i in range(start[v], start[v + 1]):
            u = neighbours[i]
            if is_visited[u]:
                continue
            degree = start[u + 1] - start[u]
            first = ancestors[u] if rule == MAX_ANCESTORS else -degree if rule == MIN_DEGREE else degree
            second = degree if rule == MAX_ANCESTORS else np.int64(0)
            if following < 0 or first > best_first or (first == best_first and second > best_second):
                following, best_first, best_second = u, first, second
        if following < 0:
            length -= 1
            for i in range(start[v], start[v + 1]):
                ancestors[neighbours[i]] -= 1
    return order[:visited]


@jit
def list_separators(start: Any, neighbours: Any, order: Any, parent: Any, depth: Any, sizes: Any, stop: Any) -> Any:
    """The separators of a search's pseudo-tree, and the total cells of its messages as complete tables.

    start, neighbours, order, parent, depth, stop : of the search. sizes : int64 (vertices,), of domains.
    Returns pairs, two int64 arrays of equal length: a vertex of the order, and a vertex of its separator, an ancestor;
    pairs of ancestors visited last come first. And float64, the cells.
    """
    latest = np.full(len(start) - 1, -1, dtype=np.int64)
    cells = np.ones(len(start) - 1)
    room = 4 * len(order) + 16
    below = np.empty(room, dtype=np.int64)
    separators = np.empty(room, dtype=np.int64)
    end = 0
    for place in range(len(order) - 1, -1, -1):
        if stop[0] != 0:
            break
        u = order[place]
        for i in range(start[u], start[u + 1]):
            w = neighbours[i]
            if depth[w] <= depth[u]:
                continue
            while w != u and latest[w] != u:  # all vertices between have the ancestor in their separator
                if end == room:
                    room *= 2
                    below = np.concatenate((below, np.empty(end, dtype=np.int64)))
                    separators = np.concatenate((separators, np.empty(end, dtype=np.int64)))
                latest[w] = u
                cells[w] *= sizes[u]
                below[end], separators[end] = w, u
                end += 1
                w = parent[w]
    total = 0.0
    for v in order:
        if latest[v] >= 0:
            total += cells[v]
    return below[:end], separators[:end], total
