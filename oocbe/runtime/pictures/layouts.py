"""Positions of the nodes of graphs and trees in pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ROUNDS = 120
"""Steps of the spring layout."""


def spring(count: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Positions (count, 2) of a graph's nodes: neighbours attract, all others repel (Fruchterman and Reingold 1991).

    Deterministic: starts from eigenvectors of the graph's Laplacian (Hall 1970), plus a small circle that separates
    nodes with equal entries.
    """
    angle = 2 * np.pi * np.arange(count) / max(1, count)
    places: NDArray[np.float64] = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if count < 4:
        return places
    laplacian = np.zeros((count, count))
    np.add.at(laplacian, (edges[:, 0], edges[:, 1]), -1.0)
    np.add.at(laplacian, (edges[:, 1], edges[:, 0]), -1.0)
    np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
    _, vectors = np.linalg.eigh(laplacian)
    places = 0.1 * places + vectors[:, 1:3] / np.abs(vectors[:, 1:3]).max(axis=0)
    ideal = 1.5 / np.sqrt(count)
    for step in range(ROUNDS):
        apart = places[:, None] - places[None]
        distance = np.maximum(np.hypot(apart[..., 0], apart[..., 1]), 1e-6)
        moves = (apart * (ideal**2 / distance**2)[..., None]).sum(axis=1) - 0.4 * ideal * places
        if len(edges):
            along = places[edges[:, 0]] - places[edges[:, 1]]
            pull = along * (np.hypot(*along.T) / ideal)[:, None]
            np.subtract.at(moves, edges[:, 0], pull)
            np.add.at(moves, edges[:, 1], pull)
        length = np.maximum(np.hypot(*moves.T), 1e-9)
        places = places + moves / length[:, None] * np.minimum(length, 0.2 * (1 - step / ROUNDS))[:, None]
    return places


def tree_places(parents: Sequence[int | None]) -> NDArray[np.float64]:
    """Positions (nodes, 2) of a forest whose parents have higher numbers: roots at the top, leaves side by side."""
    children: list[list[int]] = [[] for _ in parents]
    roots = []
    for node, parent in enumerate(parents):
        if parent is None:
            roots.append(node)
        else:
            children[parent].append(node)
    depth = [0] * len(parents)
    for node in reversed(range(len(parents))):
        parent = parents[node]
        depth[node] = 0 if parent is None else depth[parent] + 1
    across = np.zeros(len(parents))
    leaves = 0
    stack = list(reversed(roots))
    seen: list[int] = []
    while stack:
        node = stack.pop()
        seen.append(node)
        stack.extend(reversed(children[node]))
        if not children[node]:
            across[node] = leaves
            leaves += 1
    for node in reversed(seen):
        if children[node]:
            across[node] = np.mean([across[child] for child in children[node]])
    return np.stack([across, -np.array(depth, dtype=np.float64)], axis=1)
