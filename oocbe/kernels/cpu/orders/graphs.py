"""Primal graphs and separators of orders, as lists: memory and time grow with the edges, not with all pairs.

A list of sets is two arrays, *starts* and *members*: set ``i`` is ``members[starts[i] : starts[i + 1]]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit


@helper
def doubled(members: Any) -> Any:
    """The same members in an array of twice the length."""
    larger = np.empty(2 * len(members), dtype=members.dtype)
    larger[: len(members)] = members
    return larger


@helper
def turned(starts: Any, members: Any, count: Any) -> Any:
    """The transpose of a list of sets: starts, and the sets, ascending, that contain each of ``count`` members."""
    begins = np.zeros(count + 1, dtype=np.int64)
    for v in members:
        begins[v + 1] += 1
    for v in range(count):
        begins[v + 1] += begins[v]
    place, sets = begins[:count].copy(), np.empty(len(members), dtype=np.int32)
    for number in range(len(starts) - 1):
        for i in range(starts[number], starts[number + 1]):
            sets[place[members[i]]] = number
            place[members[i]] += 1
    return begins, sets


@jit
def graph_of_scopes(starts: Any, members: Any, count: Any, most: Any, stop: Any) -> Any:
    """The vertices in a common scope with each of ``count`` vertices.

    starts, members : int64 (scopes + 1,) and int32, the scopes. most : limit of the total number of neighbours; beyond
        it the result is incomplete.
    stop : int64 (1,); a nonzero value has the same effect.
    Returns int64 (count + 1,) and int32, the neighbours; whether the result is complete.
    """
    use_start, uses = turned(starts, members, count)
    ends = np.zeros(count + 1, dtype=np.int64)
    neighbours = np.empty(2 * len(members) + 16, dtype=np.int32)
    stamp = np.full(count, -1, dtype=np.int64)
    end = 0
    for v in range(count):
        if stop[0] != 0 or end > most:
            return ends, neighbours[:end], False
        stamp[v] = v
        for use in range(use_start[v], use_start[v + 1]):
            for i in range(starts[uses[use]], starts[uses[use] + 1]):
                u = members[i]
                if stamp[u] != v:
                    stamp[u] = v
                    if end == len(neighbours):
                        neighbours = doubled(neighbours)
                    neighbours[end] = u
                    end += 1
        ends[v + 1] = end
    return ends, neighbours[:end], True


@jit
def separators_of(starts: Any, neighbours: Any, order: Any, most: Any, stop: Any) -> Any:
    """The separators of an order: the neighbours of each vertex at its elimination.

    A separator consists of the later neighbours of the vertex and the members of the separators that begin with it: the
    time is linear in the total number of members.

    starts, neighbours : the graph. order : int64 (vertices,). most : limit of the total number of members; beyond it
        the result is incomplete.
    stop : int64 (1,); a nonzero value has the same effect.
    Returns int64 (vertices + 1,) and int32, the separators by elimination position, their members in elimination order;
    whether the result is complete.
    """
    count = len(order)
    position = np.empty(count, dtype=np.int64)
    for place in range(count):
        position[order[place]] = place
    ends = np.zeros(count + 1, dtype=np.int64)
    members = np.empty(len(neighbours) + count + 16, dtype=np.int32)
    child, sibling = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    stamp = np.full(count, -1, dtype=np.int64)
    end = 0
    for place in range(count):
        if stop[0] != 0 or end > most:
            return ends, members[:end], False
        v, begin, first = order[place], end, count
        stamp[v] = place
        for i in range(starts[v], starts[v + 1]):
            u = neighbours[i]
            if position[u] > place and stamp[u] != place:
                stamp[u] = place
                if end == len(members):
                    members = doubled(members)
                members[end] = u
                end += 1
        below = child[place]
        while below >= 0:
            for i in range(ends[below], ends[below + 1]):
                u = members[i]
                if stamp[u] != place:
                    stamp[u] = place
                    if end == len(members):
                        members = doubled(members)
                    members[end] = u
                    end += 1
            below = sibling[below]
        ends[place + 1] = end
        for i in range(begin, end):
            first = min(first, position[members[i]])
        if first < count:
            sibling[place] = child[first]
            child[first] = place
    begins, having = turned(ends, members[:end], count)
    at = ends[:count].copy()
    for v in order:
        for i in range(begins[v], begins[v + 1]):
            place = having[i]
            members[at[place]] = v
            at[place] += 1
    return ends, members[:end], True


@jit
def summed(starts: Any, members: Any, weights: Any) -> Any:
    """Sums of the weights, float64 (vertices,), of the members of each set."""
    sums = np.zeros(len(starts) - 1)
    for number in range(len(sums)):
        for i in range(starts[number], starts[number + 1]):
            sums[number] += weights[members[i]]
    return sums


@jit
def added_up(starts: Any, members: Any, order: Any, weights: Any) -> Any:
    """Total weight of the subtree of each message of an order, float64 (variables,), by elimination position: the
    weights, float64 (variables,), of its own variable and of those eliminated below it."""
    count = len(order)
    position = np.empty(count, dtype=np.int64)
    sums = np.empty(count)
    for place in range(count):
        position[order[place]] = place
        sums[place] = weights[order[place]]
    for place in range(count):
        if starts[place + 1] > starts[place]:
            sums[position[members[starts[place]]]] += sums[place]
    return sums


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
