"""Local improvement of an elimination order: parts of its tree of messages are ordered anew.

A *window* is a connected part of the tree. Its variables are eliminated in another order, after everything below the
window and before everything above: the messages into and out of the window are the same, so the cost of all others is,
too. In the window's graph, each message from below makes a clique, and the variables of the message to above stay. As
this graph is small, many greedy orders of it take the time of one of the whole graph (compare the local improvement of
tree decompositions by Tamaki 2017 and Strasser 2017, *PACE challenge*).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.orders.greedy_order import greedy_order

U64 = np.uint64

CHANGED, SPREAD, FIRST_SPREAD = 0.15, 0.7, 0.3
"""Share of the variables whose factors change between two orders of a window; standard deviations of a change, and of
the first factors, in the logarithm."""


@helper
def _window(centre: Any, size: Any, heat: Any, parent: Any, child: Any, sibling: Any, owner: Any, frontier: Any) -> Any:
    """Ascending positions, int64, of a connected part of the tree without an owner: the hottest around a centre."""
    places = np.empty(size, dtype=np.int64)
    frontier[0] = centre
    count, waiting = 0, 1
    owner[centre] = centre
    while waiting > 0 and count < size:
        best = 0
        for i in range(1, waiting):
            if heat[frontier[i]] > heat[frontier[best]]:
                best = i
        place = frontier[best]
        waiting -= 1
        frontier[best] = frontier[waiting]
        places[count] = place
        count += 1
        if parent[place] >= 0 and owner[parent[place]] < 0 and waiting < len(frontier):
            owner[parent[place]] = centre
            frontier[waiting] = parent[place]
            waiting += 1
        below = child[place]
        while below >= 0:
            if owner[below] < 0 and waiting < len(frontier):
                owner[below] = centre
                frontier[waiting] = below
                waiting += 1
            below = sibling[below]
    for i in range(waiting):
        owner[frontier[i]] = -1
    return np.sort(places[:count])


@helper
def _window_graph(
    places: Any, starts: Any, neighbours: Any, order: Any, ends: Any, members: Any, child: Any, sibling: Any, tree: Any
) -> Any:
    """Edges of a window's graph as bit sets, and its variables: those of the window, then those of its message.

    tree : owner and number of each variable in the window: int64 (2, variables), for use here.
    """
    owner, local = tree
    count, root = len(places), places[-1]
    above = members[ends[root] : ends[root + 1]]
    total = count + len(above)
    variables = np.empty(total, dtype=np.int64)
    for i in range(count):
        variables[i] = order[places[i]]
    variables[count:] = above
    words = (total + 63) // 64
    edges = np.zeros((total, words), dtype=np.uint64)
    clique = np.empty(words, dtype=np.uint64)
    for i in range(total):
        local[variables[i]] = i
    for i in range(count):
        v = variables[i]
        for k in range(starts[v], starts[v + 1]):
            j = local[neighbours[k]]
            if j >= 0:
                edges[i, j >> 6] |= U64(1) << U64(j & 63)
                edges[j, i >> 6] |= U64(1) << U64(i & 63)
        below = child[places[i]]
        while below >= 0:
            if owner[below] != owner[root]:
                clique[:] = U64(0)
                for k in range(ends[below], ends[below + 1]):
                    j = local[members[k]]
                    clique[j >> 6] |= U64(1) << U64(j & 63)
                for k in range(ends[below], ends[below + 1]):
                    edges[local[members[k]]] |= clique
            below = sibling[below]
    for i in range(total):
        edges[i, i >> 6] &= ~(U64(1) << U64(i & 63))
        local[variables[i]] = -1
    return edges, variables


@jit
def improve_windows(graph: Any, plan: Any, heat: Any, limits: Any, seed: Any, hurry: Any, stop: Any) -> Any:
    """An order with disjoint windows ordered anew; none of them has more assignments than before.

    graph : starts, neighbours and weights, as for :func:`oocbe.kernels.cpu.orders.sparse_order.sparse_order`.
    plan : an order, and the two arrays of its separators (:func:`oocbe.kernels.cpu.orders.graphs.separators_of`).
    heat : float64 (variables,), cost of each message; windows are about those that cost most.
    limits : most variables of a window, number of windows, greedy orders of each.
    hurry, stop : int64 (1,); if one is nonzero, the remaining windows stay as they are.
    Returns int64 (variables,) : the order. float64 : assignments of all separators by which it has fewer.
    """
    (starts, neighbours, weights), (order, ends, members), (size, windows, trials) = graph, plan, limits
    np.random.seed(seed)
    count = len(order)
    position, parent = np.empty(count, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    child, sibling = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    tree = np.full((2, count), -1, dtype=np.int64)
    owner = tree[0]
    for place in range(count):
        position[order[place]] = place
    keys = np.empty(count)
    for place in range(count):
        keys[place] = -np.log(heat[place] + 1.0) - 2.0 * np.random.random()
        if ends[place + 1] > ends[place]:
            above = position[members[ends[place]]]
            parent[place] = above
            sibling[place] = child[above]
            child[above] = place
    result, frontier = order.copy(), np.empty(4 * size + 64, dtype=np.int64)
    roots, gained, made = np.arange(count), 0.0, 0
    for centre in np.argsort(keys):
        if made == windows or hurry[0] != 0 or stop[0] != 0:
            break
        if owner[centre] >= 0:
            continue
        made += 1
        places = _window(centre, size, heat, parent, child, sibling, owner, frontier)
        edges, variables = _window_graph(places, starts, neighbours, order, ends, members, child, sibling, tree)
        many, roots[places] = len(places), places[-1]
        before = 0.0
        for place in places:
            bits = 0.0
            for k in range(ends[place], ends[place + 1]):
                bits += weights[members[k]]
            before += 2.0**bits
        own, least = weights[variables], before
        logarithms = FIRST_SPREAD * np.random.standard_normal(many)
        for trial in range(trials):
            tried = logarithms.copy()
            if trial > 0:
                tried[np.random.randint(many)] += SPREAD * np.random.standard_normal()
                for i in range(many):
                    if np.random.random() < CHANGED:
                        tried[i] += SPREAD * np.random.standard_normal()
            criterion, ties = np.random.randint(3), np.random.randint(1 << 30)
            found, cost = greedy_order(edges.copy(), own, criterion, ties, np.exp(tried), least, hurry, stop)
            np.random.seed(ties + 1)
            if cost > least or hurry[0] != 0 or stop[0] != 0:
                continue
            least, logarithms = cost, tried
            for i in range(many):
                result[places[i]] = variables[found[i]]
        gained += before - least
    # Windows in the order of their roots, each in one piece
    return result[np.argsort(roots, kind="mergesort")], gained
