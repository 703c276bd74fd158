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
    """The transpose of a list of sets: starts, and ascending numbers of the sets that contain each of ``count``
    members."""
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
