"""Peers agree with brute force on small problems, and admit it when they have no proof."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest

from oocbe.errors import UnsupportedError
from oocbe.formats import read
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT
from tests.helpers.effort import examples

PACKAGES = {"cp_sat": "ortools", "highs": "scipy", "toulbar2": "pytoulbar2"}


def module_of(name: str):
    if name == "cp_sat" and "highspy" in sys.modules:
        pytest.skip("OR-tools and highspy both bring HiGHS along and cannot be loaded in one process")
    pytest.importorskip(PACKAGES[name])
    return importlib.import_module(f"benchmarks.peers.{name}")


@pytest.fixture(scope="module", params=PACKAGES)
def peer(request):
    return module_of(request.param)


def check(peer, problem: Problem, expected: int | None, **options) -> None:
    result = peer.solve(problem, 20.0, **options)
    assert result.value == expected, problem.name
    if expected is None:
        assert (result.status, result.assignment) == ("infeasible", None)
        return
    assert result.status == "optimal"
    assert problem.evaluate(result.assignment) == expected
    assert result.bound == pytest.approx(expected)
    assert 0 < result.wall_seconds < 20


def test_random_problems(peer, random_problem, evaluate_all):
    infeasible = 0
    # toulbar2 starts a process for each.
    for seed in range(examples(48 if peer.__name__.endswith("toulbar2") else 240)):
        problem = random_problem(seed)
        if seed % 3 == 0:
            problem = replace(problem, upper_bound=20)
        best = min((v for v in evaluate_all(problem) if v is not None), default=None)
        infeasible += best is None
        check(peer, problem, best)
    assert infeasible > 0


@pytest.mark.parametrize("name", ["cp_sat", "highs"])
def test_negative_costs(random_problem, evaluate_all, name):
    solver = module_of(name)
    for seed in range(20):
        problem = random_problem(seed, lowest=-9)
        check(solver, problem, min((v for v in evaluate_all(problem) if v is not None), default=None))


def test_tree_decomposition(random_problem, evaluate_all):
    pytest.importorskip("pytoulbar2")
    from benchmarks.peers import toulbar2

    for seed in range(100, 104):
        problem = random_problem(seed, variables=7, largest_domain=2, linear=False)
        best = min((v for v in evaluate_all(problem) if v is not None), default=None)
        check(toulbar2, problem, best, mode="tree decomposition")
    with pytest.raises(ValueError, match="known: default, tree decomposition"):
        toulbar2.solve(problem, 1.0, mode="fast")


def test_small_spot_instances(peer, data):
    for name, minimum in [("8", 2), ("54", 37), ("29", 8059)]:
        check(peer, read(data(f"spot5/{name}.spot")), minimum)


def test_no_proof_where_time_is_short(peer, data):
    problem = read(data("spot5/509.spot"))
    result = peer.solve(problem, 0.05)
    assert result.status in ("feasible", "unknown")
    assert result.value is None or result.value >= 36446
    assert result.bound is None or result.bound <= 36446 + 1e-6


def test_parts_without_variables(peer):
    one = (Variable("x", 2),)
    cost = Function.from_array((0,), [3, 1])
    constant = Function((), np.zeros((1, 0)), np.array([4]))
    check(peer, Problem(one, (cost, constant)), 5)
    check(peer, Problem(one, (cost,), (Constraint((), np.zeros((1, 0))),)), None)
    check(peer, Problem(one, (cost,), (Constraint((), np.zeros((0, 0)), allowed=True),)), None)
    check(peer, Problem(one, (cost,), linear_constraints=(LinearConstraint((), (), -1),)), None)


def test_only_costs_are_minimised(peer):
    with pytest.raises(UnsupportedError):
        peer.solve(Problem((Variable("x", 2),), constant=1, semiring=MAX_PRODUCT), 1.0)


def test_cliques_cover_every_conflict(data):
    from benchmarks.peers.columns import make_columns, merge_conflicts

    columns = make_columns(read(data("spot5/503.spot")))
    cliques, others = merge_conflicts(columns)
    forbidden = {c for c in columns.conflicts if len(c) == 2}
    variable = np.searchsorted(columns.first, np.arange(columns.first[-1]), side="right")
    covered = {(a, b) for clique in cliques for i, a in enumerate(clique) for b in clique[i + 1 :]}
    assert forbidden <= covered
    assert all(variable[a] == variable[b] for a, b in covered - forbidden)
    assert len(cliques) < len(forbidden) / 3
    assert sorted(forbidden | set(others)) == sorted(columns.conflicts)
