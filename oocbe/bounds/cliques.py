"""Cliques of a conflict graph: at most one literal of a clique is true.

The linear relaxation with one row a conflict is weak (half of everything is allowed); with maximal cliques it is much
tighter, and cliques that a fractional point violates are found greedily (Padberg 1973; Marzi, Rossi, Smriglio 2019).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu import cliques as kernels
from oocbe.runtime.deadline import check_deadline

ROOM = 256
"""Maximum number of cliques of a cover that one compiled call finds."""

HEAVY_AT_ONCE = 64
"""Number of start literals of one compiled search call: the deadline is checked between calls."""

LEAST_WEIGHT = 1e-6
"""Vertices of smaller weight are left out of the sums."""


def bit_matrix(matrix: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """A boolean matrix as uint64 (rows, words), element 0 in the lowest bit."""
    packed = np.packbits(matrix, axis=1, bitorder="little")
    padded = np.zeros((len(matrix), -(-matrix.shape[1] // 64) * 8), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


def covering_cliques(adjacent: NDArray[np.uint64], wanted: NDArray[np.uint64] | None = None) -> list[list[int]]:
    """Maximal cliques that contain every edge of a graph; each greedily takes edges that no earlier clique covers.

    adjacent : uint64 (vertices, words), a symmetric bit matrix with an empty diagonal.
    wanted : bit matrix of the edges to cover, of the same form; None: all edges.
    """
    open_edges = (adjacent if wanted is None else wanted).copy()
    cliques = np.empty((ROOM, adjacent.shape[1]), dtype=np.uint64)
    found: set[tuple[int, ...]] = set()
    vertex = 0
    while vertex < len(adjacent):
        check_deadline()
        count, vertex = kernels.covering_cliques(adjacent, open_edges, vertex, cliques)
        found |= _members(cliques[:count])
    return [list(clique) for clique in sorted(found)]


def violated_cliques(
    adjacent: NDArray[np.uint64], point: NDArray[np.float64], least_violation: float
) -> list[list[int]]:
    """Maximal cliques whose literals sum to more than 1 at a point: one or two greedy attempts per fractional literal.

    adjacent : as for :func:`covering_cliques`. point : float64 (vertices,). least_violation : beyond 1.
    """
    order = np.argsort(-point, kind="stable")
    heavy = order[point[order] > LEAST_WEIGHT]
    support = bit_matrix((point > LEAST_WEIGHT)[None, :])[0]
    cliques = np.empty((2 * HEAVY_AT_ONCE + 1, adjacent.shape[1]), dtype=np.uint64)
    scratch = np.empty((2, len(point)), dtype=np.int64)
    found: set[tuple[int, ...]] = set()
    for first in range(0, len(heavy), HEAVY_AT_ONCE):
        check_deadline()
        some = heavy[first : first + HEAVY_AT_ONCE]
        count = kernels.violated_cliques(adjacent, some, point, support, least_violation, cliques, scratch)
        found |= _members(cliques[:count])
    return [list(clique) for clique in sorted(found)]


def _members(sets: NDArray[np.uint64]) -> set[tuple[int, ...]]:
    """Distinct bit sets as tuples of their elements, ascending."""
    bits = np.unpackbits(np.unique(sets, axis=0).view(np.uint8), axis=1, bitorder="little")
    return {tuple(np.flatnonzero(row).tolist()) for row in bits}
