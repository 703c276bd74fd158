"""Cliques of a graph whose adjacency is a bit matrix: a cover of all edges, and those that a point violates."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.orders.greedy_order import count_bits, members_of

U64 = np.uint64


@helper
def _common(one: Any, other: Any) -> Any:
    """Number of elements that two bit sets have in common."""
    count = 0
    for w in range(len(one)):
        count += count_bits(one[w] & other[w])
    return count


@helper
def _take(v: Any, adjacency: Any, clique: Any, candidates: Any) -> Any:
    """Add a vertex to a clique (bit set) and keep those candidates that are adjacent to it."""
    clique[v >> 6] |= U64(1) << U64(v & 63)
    for w in range(len(clique)):
        candidates[w] &= adjacency[v, w]


@helper
def _best_connected(pool: Any, adjacency: Any, candidates: Any, members: Any) -> Any:
    """The first vertex of a pool with the most neighbours among the candidates; -1 for an empty pool."""
    best, most = -1, -1
    count = members_of(pool, members)
    for i in range(count):
        degree = _common(adjacency[members[i]], candidates)
        if degree > most:
            best, most = members[i], degree
    return best


@jit
def covering_cliques(adjacency: Any, open_edges: Any, begin: Any, cliques: Any) -> Any:
    """Maximal cliques that contain every open edge; each takes, greedily, edges that none before it has.

    Parameters
    ----------
    adjacency : uint64 (vertices, words), symmetric bit matrix, zero diagonal.
    open_edges : uint64 (vertices, words), symmetric, a subset of it; edges are removed as cliques cover them.
    begin : the first vertex that may still have open edges.
    cliques : uint64 (room, words), overwritten with bit sets of vertices.

    Returns
    -------
    (count, vertex) : cliques written; the vertex to go on from, or the number of vertices where no open edge is left.
    """
    n, words = adjacency.shape
    candidates = np.empty(words, dtype=np.uint64)
    fresh = np.empty(words, dtype=np.uint64)
    members = np.empty(n, dtype=np.int64)
    count = 0
    for vertex in range(begin, n):
        while True:
            is_open = False
            for w in range(words):
                is_open |= open_edges[vertex, w] != U64(0)
            if not is_open:
                break
            if count == len(cliques):
                return count, vertex
            clique = cliques[count]
            count += 1
            clique[:] = U64(0)
            candidates[:] = ~U64(0)
            _take(vertex, adjacency, clique, candidates)
            while True:
                for w in range(words):
                    fresh[w] = candidates[w] & open_edges[vertex, w]
                best = _best_connected(fresh, adjacency, candidates, members)
                if best < 0:
                    best = _best_connected(candidates, adjacency, candidates, members)
                if best < 0:
                    break
                _take(best, adjacency, clique, candidates)
            size = members_of(clique, members)
            for i in range(size):
                for w in range(words):
                    open_edges[members[i], w] &= ~clique[w]
    return count, n


@jit
def violated_cliques(
    adjacency: Any, heavy: Any, weight: Any, support: Any, least_violation: Any, cliques: Any, members: Any
) -> Any:
    """Maximal cliques whose weights sum to more than 1, one greedy attempt or two from each heavy vertex.

    Parameters
    ----------
    adjacency : uint64 (vertices, words), symmetric bit matrix, zero diagonal.
    heavy : int64, vertices to begin with. weight : float64 (vertices,). support : uint64 (words,), vertices to take.
    least_violation : beyond 1.
    cliques : uint64 (2 * len(heavy), words), overwritten with bit sets, repeated ones among them.
    members : int64 (2, vertices), scratch.

    Returns
    -------
    int : cliques written.
    """
    words = adjacency.shape[1]
    candidates = np.empty(words, dtype=np.uint64)
    count = 0
    for start in range(len(heavy)):
        for attempt in range(2):
            clique = cliques[count]
            clique[:] = U64(0)
            for word in range(words):
                candidates[word] = support[word]
            total = weight[heavy[start]]
            _take(heavy[start], adjacency, clique, candidates)
            while True:
                best, most = -1, -1.0
                left = members_of(candidates, members[0])
                for i in range(left):
                    v = members[0, i]
                    score = weight[v]
                    if attempt == 1:
                        reached = 0.0
                        for w in range(words):
                            common = adjacency[v, w] & candidates[w]
                            while common != U64(0):
                                low = common & (~common + U64(1))
                                reached += weight[w * 64 + count_bits(low - U64(1))]
                                common ^= low
                        score += reached
                    if score > most:
                        best, most = v, score
                if best < 0:
                    break
                total += weight[best]
                _take(best, adjacency, clique, candidates)
            if total <= 1 + least_violation:
                continue
            candidates[:] = ~U64(0)
            size = members_of(clique, members[0])
            for i in range(size):
                for w in range(words):
                    candidates[w] &= adjacency[members[0, i], w]
            while True:
                best = _best_connected(candidates, adjacency, candidates, members[1])
                if best < 0:
                    break
                _take(best, adjacency, clique, candidates)
            count += 1
    return count
