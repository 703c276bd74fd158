"""Greedy elimination orders on primal graphs of up to some thousand variables, with neighbourhoods as bit sets.

Elimination of a vertex connects its neighbours pairwise (the *fill*) and removes it; its neighbours at that moment are
the separator of its bucket. The three classic criteria select the vertex with the fewest neighbours (min-degree), the
fewest fill edges (min-fill) or the least fill weighted by domain sizes (weighted min-fill); see Kjaerulff 1990 and
Koller and Friedman 2009, section 9.4.3.2. For larger graphs see :mod:`oocbe.kernels.cpu.orders.sparse_order`.

Linear elimination orders sweep the graph from one end to the other. The next vertex is the one of the frontier (the
neighbours of eliminated ones) that adds the fewest new vertices. The result is one large travelling message instead of
a tree of messages; on sparse tables either may have fewer rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.interpreter import stands_in
from oocbe.kernels.cpu.jit import helper, jit

U64 = np.uint64

MIN_DEGREE, MIN_FILL, WEIGHTED_MIN_FILL = 0, 1, 2
"""Codes of the greedy criteria."""


@jit
def count_bits(word: Any) -> Any:
    """Number of ones in a uint64."""
    word = word - ((word >> U64(1)) & U64(0x5555555555555555))
    word = (word & U64(0x3333333333333333)) + ((word >> U64(2)) & U64(0x3333333333333333))
    word = (word + (word >> U64(4))) & U64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * U64(0x0101010101010101)) >> U64(56))


@stands_in(count_bits)
def _count_bits(word: Any) -> int:
    return int(word).bit_count()


@jit
def members_of(row: Any, out: Any) -> Any:
    """Write the members of a bit set (uint64 words) into out, ascending; returns their number."""
    count = 0
    for w in range(len(row)):
        word = row[w]
        while word != U64(0):
            low = word & (~word + U64(1))
            out[count] = w * 64 + count_bits(low - U64(1))
            count += 1
            word ^= low
    return count


@helper
def _score(adjacency: Any, v: Any, weights: Any, criterion: Any, neighbours: Any) -> Any:
    """Score of the elimination of v; ``neighbours`` is scratch for its neighbours."""
    score = 0.0
    if criterion == MIN_DEGREE:
        for w in range(adjacency.shape[1]):
            score += count_bits(adjacency[v, w])
        return score
    degree = members_of(adjacency[v], neighbours)
    for i in range(degree):
        u = neighbours[i]
        for w in range(adjacency.shape[1]):
            missing = adjacency[v, w] & ~adjacency[u, w]
            if w == u >> 6:
                missing &= ~(U64(1) << U64(u & 63))
            if criterion == MIN_FILL:
                score += count_bits(missing)
            else:
                while missing != U64(0):
                    low = missing & (~missing + U64(1))
                    score += weights[u] * weights[w * 64 + count_bits(low - U64(1))]
                    missing ^= low
    return score * 0.5


@jit
def greedy_order(
    adjacency: Any, weights: Any, criterion: Any, seed: Any, factors: Any, most: Any, hurry: Any, stop: Any
) -> Any:
    """One greedy order and the number of assignments of its separators without hard constraints; random tie-breaking.

    adjacency : uint64 (vertices, words), symmetric, zero diagonal; destroyed: row v ends as v's separator.
    weights : float64 (vertices,), for weighted min-fill, such as bits of the domain.
    criterion : one of the three codes above.
    seed : of the tie-breaking. factors : float64, factor of each vertex's score; vertices beyond its length stay.
    most : float64; limit of the total number of assignments; beyond it the remaining vertices are in arbitrary order.
    hurry : int64 (1,); if nonzero, the fast criterion min-degree selects the remaining vertices.
    stop : int64 (1,); a nonzero value ends the search, with the remaining vertices in arbitrary order.
    Returns int64 (factors,) : the order, the vertex eliminated first at the front. float64 : sum over separators of 2
    to the power of their total weight.
    """
    np.random.seed(seed)
    n, words = len(factors), adjacency.shape[1]
    order = np.empty(n, dtype=np.int64)
    alive = np.ones(n, dtype=np.uint8)
    stale = np.ones(len(adjacency), dtype=np.uint8)
    scores = np.zeros(n, dtype=np.float64)
    neighbours = np.empty(len(adjacency), dtype=np.int64)
    together = 0.0
    first = np.int64(np.random.random() * n)
    step = 0
    while step < n:
        if stop[0] != 0:
            break
        if hurry[0] != 0 and criterion != MIN_DEGREE:
            criterion = MIN_DEGREE
            stale[:] = 1
        best: Any = -1
        best_score = np.inf
        ties = 0
        for i in range(n):
            v = first + i if first + i < n else first + i - n
            if alive[v] == 0:
                continue
            if stale[v]:
                scores[v] = _score(adjacency, v, weights, criterion, neighbours)
                stale[v] = 0
            if scores[v] == 0.0:
                best = v  # optimal: no fill, or no neighbour
                break
            score = scores[v] * factors[v]
            if score < best_score:
                best, best_score, ties = v, score, 1
            elif score == best_score:
                ties += 1
                if np.random.randint(ties) == 0:
                    best = v
        order[step] = best
        step += 1
        alive[best] = 0
        degree = members_of(adjacency[best], neighbours)
        bits = 0.0
        for i in range(degree):
            bits += weights[neighbours[i]]
        together += 2.0**bits
        if together > most:
            break
        for i in range(degree):
            u = neighbours[i]
            stale[u] = 1
            for w in range(words):
                added = adjacency[best, w] & ~adjacency[u, w]
                if w == u >> 6:
                    added &= ~(U64(1) << U64(u & 63))
                adjacency[u, w] |= added
                if criterion == MIN_DEGREE:
                    continue
                # A fill edge changes the score of the common neighbours of its ends.
                while added != U64(0):
                    low = added & (~added + U64(1))
                    added ^= low
                    x = w * 64 + count_bits(low - U64(1))
                    if x < u:
                        continue
                    for k in range(words):
                        common = adjacency[u, k] & adjacency[x, k]
                        while common != U64(0):
                            one = common & (~common + U64(1))
                            common ^= one
                            stale[k * 64 + count_bits(one - U64(1))] = 1
            adjacency[u, best >> 6] &= ~(U64(1) << U64(best & 63))
    for left in range(n):
        if alive[left] != 0:
            order[step] = left
            step += 1
    return order, together


OUTSIDE, FRONTIER, GONE = 0, 1, 2
"""State of a vertex."""


@jit
def linear_order(starts: Any, neighbours: Any, weights: Any, seed: Any, most: Any, hurry: Any, stop: Any) -> Any:
    """One linear order from a random peripheral vertex (see the module).

    starts, neighbours : the graph (:mod:`oocbe.kernels.cpu.orders.graphs`). weights : float64 (vertices,), bits of the
        domains. most : limit of a frontier's bits; beyond it, or if ``stop``, int64 (1,), is nonzero, the remaining
        vertices are in arbitrary order. hurry : int64 (1,); nonzero: vertices leave in order of arrival.
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
