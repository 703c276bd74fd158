"""Cliques of a graph given as a bit matrix: an edge cover, and cliques that a fractional point violates."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.orders.greedy_order import count_bits, members_of

U64 = np.uint64


@helper
def _common(one: Any, other: Any) -> Any:
    """Size of the intersection of two bit sets."""
    count = 0
    for w in range(len(one)):
        count += count_bits(one[w] & other[w])
    return count


@helper
def _take(v: Any, adjacency: Any, clique: Any, candidates: Any) -> Any:
    """Add a vertex to a clique (bit set) and keep the candidates adjacent to it."""
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
    """Maximal cliques that contain every open edge; each greedily takes edges that no earlier clique covers.

    adjacency : uint64 (vertices, words), symmetric bit matrix, zero diagonal.
    open_edges : uint64 (vertices, words), symmetric subset of ``adjacency``; covered edges are removed.
    begin : the first vertex with possibly open edges.
    cliques : uint64 (room, words), overwritten with bit sets of vertices.
    Returns (count, vertex) : cliques written; the vertex to continue at, or the number of vertices if all are covered.
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
    """Maximal cliques with a total weight above 1: one or two greedy attempts from each heavy vertex.

    adjacency : uint64 (vertices, words), symmetric bit matrix, zero diagonal.
    heavy : int64, start vertices. weight : float64 (vertices,). support : uint64 (words,), eligible vertices.
    least_violation : minimum excess over 1.
    cliques : uint64 (2 * len(heavy), words), overwritten with bit sets, possibly with repetitions.
    members : int64 (2, vertices), scratch.
    Returns int : cliques written.
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
