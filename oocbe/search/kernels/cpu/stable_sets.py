"""Branch and bound for stable sets of the largest weight; see :mod:`oocbe.search.stable_set_search`.

A node has *candidates*, vertices without a neighbour in the chosen set. Cliques that share the candidates' weights
bound the gain: at most one vertex of each clique is chosen. Cliques are formed until their total reaches the gain
required for an improvement; the vertices with weight left then are *branches*, and every improvement contains one of
them.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.orders.greedy_order import count_bits

U64 = np.uint64

EXHAUSTED, PAUSED = 0, 1
"""Results of :func:`search_stable_sets`: the tree is closed; the node limit was reached."""

DEPTH, NODES = 0, 1
"""Indices of ``counts``: the node's depth, -1 at the end; nodes created."""

StableSetNode = namedtuple(
    "StableSetNode",
    "candidates branches weight chosen number residual clique open common best counts",
)
"""The path to the current node, with the remaining work at each depth.

candidates, branches : uint64 (depths, words), bit sets. weight : int64 (depths,), total of the chosen vertices.
chosen : int64 (depths,), the vertex chosen at each depth. number : int64 (depths,), initial number of branches.
residual : int64 (vertices,), clique : int64 (vertices,), open, common : uint64 (words,): overwritten.
best : int64 (vertices + 1,), weight of the best set, then its vertices, -1 beyond them. counts : int64 (2,).
"""


@helper
def _lowest(bits: Any) -> Any:
    """The first element of a bit set; -1 if it is empty."""
    for w in range(len(bits)):
        if bits[w] != U64(0):
            return w * 64 + count_bits((bits[w] & (~bits[w] + U64(1))) - U64(1))
    return -1


@helper
def _highest(bits: Any) -> Any:
    """The last element of a bit set; -1 if it is empty."""
    for w in range(len(bits) - 1, -1, -1):
        word = bits[w]
        if word != U64(0):
            for shift in (1, 2, 4, 8, 16, 32):
                word |= word >> U64(shift)
            return w * 64 + count_bits(word) - 1
    return -1


@helper
def _share_out(adjacent: Any, weights: Any, node: Any, depth: Any) -> Any:
    """Compute the branches of a depth: candidates with weight left after cliques up to the required gain."""
    words = adjacent.shape[1]
    budget = node.best[0] - node.weight[depth]
    candidates, branches = node.candidates[depth], node.branches[depth]
    residual, clique, waiting, common = node.residual, node.clique, node.open, node.common
    for w in range(words):
        waiting[w] = candidates[w]
        rest = candidates[w]
        while rest != U64(0):
            low = rest & (~rest + U64(1))
            v = w * 64 + count_bits(low - U64(1))
            residual[v] = weights[v]
            rest ^= low
    while budget > 0:
        v = _lowest(waiting)
        if v < 0:
            break
        for w in range(words):
            common[w] = waiting[w]
        count, least = 0, residual[v]
        while v >= 0:
            clique[count] = v
            count += 1
            least = min(least, residual[v])
            for w in range(words):
                common[w] &= adjacent[v, w]
            v = _lowest(common)
        least = min(least, budget)
        budget -= least
        for i in range(count):
            v = clique[i]
            residual[v] -= least
            if residual[v] == 0:
                waiting[v >> 6] &= ~(U64(1) << U64(v & 63))
    number = 0
    for w in range(words):
        branches[w] = waiting[w]
        number += count_bits(waiting[w])
    node.number[depth] = number


@jit
def begin_stable_sets(adjacent: Any, weights: Any, node: Any) -> Any:
    """Start at the root, where all vertices are candidates; ``node.best`` is the incumbent."""
    node.candidates[0] = U64(0)
    for v in range(len(weights)):
        node.candidates[0, v >> 6] |= U64(1) << U64(v & 63)
    node.weight[0] = 0
    node.counts[DEPTH] = 0
    _share_out(adjacent, weights, node, 0)


@jit
def search_stable_sets(adjacent: Any, weights: Any, node: Any, most_nodes: Any) -> Any:
    """Continue from the current node; returns the reason of the end, see :data:`EXHAUSTED`.

    adjacent : uint64 (vertices, words), symmetric bit matrix, zero diagonal. weights : int64 (vertices,), positive.
    node : updated. most_nodes : limit in this call.
    """
    words, nodes = adjacent.shape[1], 0
    depth = node.counts[DEPTH]
    while depth >= 0 and nodes < most_nodes:
        v = _highest(node.branches[depth])
        if v < 0:
            depth -= 1
            continue
        # Later sets at this depth exclude the vertex.
        mask = ~(U64(1) << U64(v & 63))
        node.branches[depth, v >> 6] &= mask
        node.candidates[depth, v >> 6] &= mask
        nodes += 1
        node.chosen[depth] = v
        weight = node.weight[depth] + weights[v]
        if weight > node.best[0]:
            node.best[0] = weight
            for i in range(depth + 1):
                node.best[1 + i] = node.chosen[i]
            node.best[depth + 2 :] = -1
        for w in range(words):
            node.candidates[depth + 1, w] = node.candidates[depth, w] & ~adjacent[v, w]
        node.weight[depth + 1] = weight
        _share_out(adjacent, weights, node, depth + 1)
        if node.number[depth + 1] > 0:
            depth += 1
    node.counts[DEPTH] = depth
    node.counts[NODES] += nodes
    return EXHAUSTED if depth < 0 else PAUSED
