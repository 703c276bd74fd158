"""Counts of whole days of photographs against a counter that shares nothing with the engine, not even the reader."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

import oocbe
from benchmarks.peers.path_count import Day, count_assignments, find_order, read_day
from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from tests.helpers.effort import examples

SPOT5 = Path(os.environ.get("OOCBE_DATA", Path(__file__).parents[3] / "shared" / "data")) / "spot5"
OPTIONS = SolveOptions(order_seconds=0.0, backend="cpu")


def random_day(seed: int, variables: int) -> Day:
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 5, variables).tolist()
    constraints = []
    for _ in range(int(1.5 * variables)):
        scope = random.choice(variables, int(random.integers(1, 4)), replace=False).tolist()
        tuples = {tuple(int(random.integers(1, sizes[v])) for v in scope) for _ in range(3)}
        constraints.append((scope, sorted(tuples)))
    return Day(sizes, constraints)


@pytest.mark.parametrize("seed", range(examples(80)))
def test_the_counter_itself_against_every_assignment(seed):
    day = random_day(seed, 6)
    expected = sum(
        all(tuple(assignment[v] for v in scope) not in tuples for scope, tuples in day.constraints)
        for assignment in itertools.product(*map(range, day.sizes))
    )
    order = np.random.default_rng(seed).permutation(6).tolist()
    assert count_assignments(day, order)[0] == expected
    assert count_assignments(day, find_order(day, 0.01, seed))[0] == expected


@pytest.mark.parametrize("seed", range(2))
def test_random_days(seed):
    day = random_day(seed, 40)
    problem = Problem(
        tuple(Variable(f"v{v}", size) for v, size in enumerate(day.sizes)),
        constraints=tuple(Constraint(tuple(scope), tuples) for scope, tuples in day.constraints),
    )
    count = count_assignments(day, find_order(day, 0.1))[0]
    assert count > 2**32  # in more than one limb
    assert oocbe.count(problem, OPTIONS).value == count


@pytest.mark.parametrize(
    "name",
    ["8", "54", "29", "404", *(pytest.param(name, marks=pytest.mark.slow) for name in ("503", "42"))],
)
def test_whole_instances(name):
    path = SPOT5 / f"{name}.spot"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    day = read_day(path)
    seconds = 30.0 if name == "42" else 0.2
    assert oocbe.count(path, OPTIONS).value == count_assignments(day, find_order(day, seconds))[0]
