"""Linear elimination orders: a sweep of the graph from one end to the other.

The next vertex is the one of the frontier (the neighbours of eliminated ones) that adds the fewest new vertices. The
result is one large travelling message instead of a tree of messages; on sparse tables either may have fewer rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit

OUTSIDE, FRONTIER, GONE = 0, 1, 2
"""State of a vertex."""


@jit
def linear_order(starts: Any, neighbours: Any, weights: Any, seed: Any, most: Any, hurry: Any, stop: Any) -> Any:
    """One linear order from a random peripheral vertex (see the module).

    starts, neighbours : the graph (:mod:`oocbe.kernels.cpu.orders.graphs`). weights : float64 (vertices,), bits of the
        domains. most : limit of a frontier's bits; beyond it, or if ``stop``, int64 (1,), is nonzero, the remaining
        vertices are in arbitrary order. hurry : int64 (1,); if nonzero, vertices leave the frontier in order of
        arrival.
    Returns int64 (vertices,) : the order. float64, twice : bits of the largest frontier, and total bits.
    """
    np.random.seed(seed)
    count = len(starts) - 1
    order = np.empty(count, dtype=np.int64)
    state = np.zeros(count, dtype=np.uint8)
    outside = np.empty(count, dtype=np.int64)  # number of neighbours in that state
    for v in range(count):
        outside[v] = starts[v + 1] - starts[v]
    frontier = np.empty(count, dtype=np.int64)
    first, last = 0, 0
    ends = np.random.permutation(count)  # start vertices of components
    queue, depth, seen = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64), np.full(count, -1)
    next_end, left = 0, 0
    size, peak, total = 0.0, 0.0, 0.0
    for step in range(count):
        if stop[0] != 0 or peak > most:
            while state[left] == GONE:
                left += 1
            best = left
        elif first == last:
            while state[ends[next_end]] == GONE:
                next_end += 1
            best = _peripheral(starts, neighbours, state, ends[next_end], queue, depth, seen, 3 * step)
        else:
            chosen, best_score = first, np.inf
            for i in range(first, last if hurry[0] == 0 else first):
                score = np.random.random() + outside[frontier[i]]
                if score < best_score:
                    chosen, best_score = i, score
            best = frontier[chosen]
            frontier[chosen] = frontier[first]
            first += 1
        order[step] = best
        if state[best] == FRONTIER:
            size -= weights[best]
        else:
            for i in range(starts[best], starts[best + 1]):
                outside[neighbours[i]] -= 1
        state[best] = GONE
        for i in range(starts[best], starts[best + 1]):
            u = neighbours[i]
            if state[u] == OUTSIDE:
                state[u] = FRONTIER
                size += weights[u]
                frontier[last] = u
                last += 1
                for k in range(starts[u], starts[u + 1]):
                    outside[neighbours[k]] -= 1
        peak = max(peak, size)
        total += size
    return order, peak, total


@helper
def _peripheral(
    starts: Any, neighbours: Any, state: Any, start: Any, queue: Any, depth: Any, seen: Any, stamp: Any
) -> Any:
    """A peripheral vertex that is not eliminated: one of the last in three breadth-first searches from a random one."""
    for sweep in range(3):
        mark = stamp + sweep
        seen[start] = mark
        queue[0] = start
        depth[start] = 0
        head, tail = 0, 1
        while head < tail:
            v = queue[head]
            head += 1
            degree = starts[v + 1] - starts[v]
            first = np.random.randint(degree) if degree > 0 else 0
            for i in range(degree):
                u = neighbours[starts[v] + (first + i) % degree]
                if state[u] != GONE and seen[u] != mark:
                    seen[u] = mark
                    depth[u] = depth[v] + 1
                    queue[tail] = u
                    tail += 1
        # Among the farthest, the one with the fewest neighbours, for a small first message.
        fewest, last = len(state), tail
        while last > 0 and depth[queue[last - 1]] == depth[queue[tail - 1]]:
            last -= 1
            v = queue[last]
            living = 0
            for i in range(starts[v], starts[v + 1]):
                living += state[neighbours[i]] != GONE
            if living < fewest:
                fewest = living
                start = v
    return start
