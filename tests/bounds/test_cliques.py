"""Cliques of random graphs, judged by the graph itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from oocbe.bounds.cliques import ROOM, bit_matrix, covering_cliques, violated_cliques
from tests.helpers.effort import examples


def random_graph(seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 150))
    upper = np.triu(random.random((count, count)) < random.choice([0.0, 0.05, 0.4, 0.9]), 1)
    return upper | upper.T


def check_maximal(graph: np.ndarray, clique: list[int]) -> None:
    assert clique == sorted(set(clique))
    inside = graph[np.ix_(clique, clique)]
    assert inside.sum() == len(clique) * (len(clique) - 1)
    assert not graph[clique].all(axis=0).any()


@pytest.mark.parametrize("seed", range(examples(120)))
def test_cliques_cover_every_edge(seed):
    graph = random_graph(seed)
    cliques = covering_cliques(bit_matrix(graph))
    covered = np.zeros_like(graph)
    for clique in cliques:
        check_maximal(graph, clique)
        for one, other in itertools.permutations(clique, 2):
            covered[one, other] = True
    assert (covered == graph).all()
    assert len({tuple(c) for c in cliques}) == len(cliques)


def test_more_cliques_than_one_call_has_room_for():
    one, other = np.indices((60, 60)) % 2
    graph = one != other  # bipartite: every edge is a maximal clique
    assert len(covering_cliques(bit_matrix(graph))) == 900 > ROOM


@pytest.mark.parametrize("seed", range(examples(120)))
def test_violated_cliques_are_violated(seed):
    graph = random_graph(seed)
    random = np.random.default_rng(seed)
    point = random.choice([0.0, 0.1, 0.25, 0.5, 1.0], size=len(graph))
    for clique in violated_cliques(bit_matrix(graph), point, 1e-3):
        check_maximal(graph, clique)
        assert point[clique].sum() > 1 + 1e-3


def test_the_triangles_of_a_wheel_are_found():
    graph = np.zeros((70, 70), dtype=bool)
    rim = [60, 63, 64, 65, 69]
    for one, other in zip(rim, rim[1:] + rim[:1], strict=True):
        graph[one, other] = graph[other, one] = True
    graph[2, rim] = graph[rim, 2] = True
    point = np.zeros(70)
    point[[2, *rim]] = 0.4
    found = violated_cliques(bit_matrix(graph), point, 1e-3)
    triangles = [sorted([2, a, b]) for a, b in zip(rim, rim[1:] + rim[:1], strict=True)]
    assert len(found) >= 3  # greedily, so not always all five
    assert all(clique in triangles for clique in found)


@pytest.mark.parametrize("columns", [0, 1, 63, 64, 65, 130])
def test_bit_matrices_hold_each_row(columns):
    matrix = np.random.default_rng(columns).random((5, columns)) < 0.5
    words = bit_matrix(matrix)
    assert words.shape == (5, (columns + 63) // 64)
    numbers = [sum(1 << place for place in np.flatnonzero(row).tolist()) for row in matrix]
    assert [sum(int(w) << (64 * i) for i, w in enumerate(row)) for row in words] == numbers
