"""Cliques of a conflict graph: at most one literal of a clique is true.

The linear relaxation with one row a conflict is weak (half of everything is allowed); with maximal cliques it is much
tighter, and cliques that a fractional point violates are found greedily (Padberg 1973; Marzi, Rossi, Smriglio 2019).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def bit_rows(matrix: NDArray[np.bool_]) -> list[int]:
    """Each row of a boolean matrix as a bit set."""
    packed = np.packbits(matrix, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def bits_of(members: int) -> Iterator[int]:
    """The elements of a bit set, in ascending order."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest


def covering_cliques(adjacent: list[int]) -> list[list[int]]:
    """Maximal cliques that contain every edge of a graph; each takes, greedily, edges that none before it has."""
    found: set[tuple[int, ...]] = set()
    open_edges = list(adjacent)
    for vertex in range(len(adjacent)):
        while open_edges[vertex]:
            clique, candidates = [vertex], adjacent[vertex]
            while candidates:
                fresh = candidates & open_edges[vertex]
                best = max(bits_of(fresh or candidates), key=lambda v: (adjacent[v] & candidates).bit_count())
                clique.append(best)
                candidates &= adjacent[best]
            found.add(tuple(sorted(clique)))
            members = sum(1 << v for v in clique)
            for v in clique:
                open_edges[v] &= ~members
    return [list(clique) for clique in sorted(found)]


def violated_cliques(adjacent: list[int], point: NDArray[np.float64], least_violation: float) -> list[list[int]]:
    """Maximal cliques whose literals sum to more than 1 at a point, one greedy attempt or two a fractional literal.

    Parameters
    ----------
    adjacent : bit set of the neighbours of each vertex. point : float64 (vertices,). least_violation : beyond 1.
    """
    weight: list[float] = point.tolist()
    heavy = [v for v in np.argsort(-point, kind="stable").tolist() if weight[v] > 1e-6]
    support = sum(1 << v for v in heavy)
    found: set[tuple[int, ...]] = set()
    for vertex in heavy:
        for by_degree in (False, True):
            clique, total = [vertex], weight[vertex]
            candidates = adjacent[vertex] & support
            while candidates:
                if by_degree:
                    best = max(
                        bits_of(candidates),
                        key=lambda v: weight[v] + sum(weight[u] for u in bits_of(adjacent[v] & candidates)),
                    )
                else:
                    best = max(bits_of(candidates), key=weight.__getitem__)
                clique.append(best)
                total += weight[best]
                candidates &= adjacent[best]
            if total <= 1 + least_violation:
                continue
            candidates = adjacent[clique[0]]
            for v in clique[1:]:
                candidates &= adjacent[v]
            while candidates:
                best = max(bits_of(candidates), key=lambda v: (adjacent[v] & candidates).bit_count())
                clique.append(best)
                candidates &= adjacent[best]
            found.add(tuple(sorted(clique)))
    return [list(clique) for clique in sorted(found)]
