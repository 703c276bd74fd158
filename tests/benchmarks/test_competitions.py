"""References of marginals are held against the factors of each variable before scores are taken from them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FIRST, SECOND = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.5, 0.5], [0.3, 0.7]])


@pytest.fixture
def competitions(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("competitions")


def test_a_marginal_that_no_values_of_the_neighbours_give_contradicts(competitions, tmp_path):
    path = tmp_path / "chain.uai"
    tables = "".join(f"4\n{' '.join(map(str, table.ravel()))}\n" for table in (FIRST, SECOND))
    path.write_text(f"MARKOV\n3\n2 2 2\n2\n2 0 1\n2 1 2\n{tables}")
    Path(f"{path}.evid").write_text("1 2 0\n")
    weights = FIRST * SECOND[:, 0]
    right = [weights.sum(axis=1) / weights.sum(), weights.sum(axis=0) / weights.sum(), np.array([1.0, 0.0])]
    assert not competitions.contradicts(path, right)
    # Given its neighbour, the first variable is 0 with probability 9/11 or 1/9: 0.99 is no mixture of these.
    assert competitions.contradicts(path, [np.array([0.99, 0.01]), *right[1:]])
