"""Linear constraints over more variables than any lookup takes: our optimum is that of solvers of another kind."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import oocbe
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.search import bounded


def chosen(seed: int, constraints: int = 1) -> Problem:
    """Photographs with up to three values, in conflict with near neighbours, that share one or two capacities."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 5, size=32).tolist()
    count = len(sizes)
    pairs = [(v, w) for v in range(count) for w in range(v + 1, min(count, v + 5)) if random.integers(2)]
    conflicts = [Constraint((v, w), [[random.integers(1, sizes[v]), random.integers(1, sizes[w])]]) for v, w in pairs]
    linear = []
    for _ in range(constraints):
        use = tuple(np.append(0, random.integers(1, 12, size=n - 1)) for n in sizes)
        linear.append(LinearConstraint(tuple(range(count)), use, int(random.integers(40, 70)), "capacity"))
    functions = [Function((v,), [[0]], [int(random.integers(1, 40))], 0) for v in range(count)]
    return Problem(
        tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), tuple(functions), tuple(conflicts), tuple(linear)
    )


QUICK, MORE = (
    [(0, 1, "toulbar2"), (1, 1, "highs"), (2, 2, "toulbar2")],
    [(0, 1, "highs"), (1, 1, "toulbar2"), (2, 2, "highs")],
)


@pytest.mark.parametrize(
    ("seed", "constraints", "name"), [*QUICK, *(pytest.param(*own, marks=pytest.mark.slow) for own in MORE)]
)
def test_capacities(name, seed, constraints, monkeypatch):
    pytest.importorskip({"toulbar2": "pytoulbar2", "highs": "scipy"}[name])
    problem = chosen(seed, constraints)
    peer = importlib.import_module(f"benchmarks.peers.{name}").solve(problem, 20.0)
    assert peer.status == "optimal"
    for bounds in ("none", "constant", "lp"):
        if bounds == "lp":
            monkeypatch.setattr(bounded, "QUICK_CAP", 4)  # so that what is left gets bounds of its own
        result = oocbe.solve(problem, bounds=bounds, order_seconds=0, bound_seconds=0.2, incumbent_seconds=0.01)
        assert (result.status, result.value, result.linear_constraints) == ("optimal", peer.value, "enforced")
        assert problem.evaluate(result.assignment) == peer.value


def test_a_wcsp_file_with_knapsacks(tmp_path):
    pytest.importorskip("pytoulbar2")
    peer = importlib.import_module("benchmarks.peers.toulbar2")
    problem = chosen(3, 2)
    oocbe.write(problem, tmp_path / "knapsack.wcsp")
    result = oocbe.solve(tmp_path / "knapsack.wcsp", order_seconds=0, bound_seconds=0.2, incumbent_seconds=0.01)
    assert result.status == "optimal"
    assert result.value == peer.solve(problem, 20.0).value == problem.evaluate(result.assignment)
