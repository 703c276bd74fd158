"""Synthetic networks have the shapes that Fioretto et al. (2018) describe."""

import numpy as np
import pytest

from oocbe.errors import UsageError
from oocbe.model.problem import Problem
from oocbe.stress import grid_network, random_network, scale_free_network


def edges_of(problem: Problem) -> set[tuple[int, ...]]:
    return {f.scope for f in problem.functions}


def is_connected(problem: Problem) -> bool:
    reached = {0}
    for _ in problem.variables:
        reached |= {v for edge in edges_of(problem) if reached & set(edge) for v in edge}
    return len(reached) == len(problem.variables)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("variables", "density", "edges"), [(10, 0.3, 13), (12, 0.9, 59), (9, 0.0, 8), (2, 1.0, 1)])
def test_random_networks(variables: int, density: float, edges: int, seed: int) -> None:
    problem = random_network(variables, 3, density, seed=seed)
    assert len(problem.functions) == len(edges_of(problem)) == edges
    assert is_connected(problem)


@pytest.mark.parametrize("seed", range(5))
def test_scale_free_networks(seed: int) -> None:
    problem = scale_free_network(30, 3, seed=seed)
    assert len(problem.functions) == len(edges_of(problem)) == 2 * 28 + 1
    assert is_connected(problem)
    degrees = np.bincount([v for edge in edges_of(problem) for v in edge])
    assert degrees[2:].min() == 2
    assert degrees.max() > 2 * np.median(degrees)


def test_grids() -> None:
    problem = grid_network(4, 2)
    assert len(problem.variables) == 16
    assert edges_of(problem) >= {(0, 1), (0, 4), (14, 15), (11, 15)}
    assert len(problem.functions) == len(edges_of(problem)) == 24
    assert (3, 4) not in edges_of(problem)
    assert grid_network(1, 5).functions == ()


@pytest.mark.parametrize(("tightness", "rows"), [(0.0, 100), (0.5, 50), (0.99, 1)])
def test_tightness_is_the_share_of_missing_rows(tightness: float, rows: int) -> None:
    problem = random_network(6, 10, 0.5, tightness)
    assert {len(f.values) for f in problem.functions} == {rows}
    assert all(f.values.min() >= 0 and f.values.max() <= 100 and f.default is None for f in problem.functions)


def test_a_seed_gives_one_problem() -> None:
    def costs(seed: int) -> list[int]:
        return [int(value) for f in random_network(8, 4, 0.4, seed=seed).functions for value in f.values]

    assert costs(3) == costs(3)
    assert costs(3) != costs(4)


@pytest.mark.parametrize("arguments", [(1, 3, 0.5), (5, 0, 0.5), (5, 3, 1.5), (5, 3, 0.5, 1.0), (5, 3, 0.5, -0.1)])
def test_senseless_arguments_are_refused(arguments: tuple[int, int, float]) -> None:
    with pytest.raises(UsageError):
        random_network(*arguments)
