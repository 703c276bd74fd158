"""Values that a message has no row for go from the buckets to come: fewer rows, the same answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from oocbe.api.tasks.verbs import run_task
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.preparation.prepare import prepare
from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import COUNTING, MAX_SUM, MIN_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuned
from tests.helpers.effort import examples
from tests.helpers.small_problems import brute_force, check, eliminate, make_problem, structures, without_bound

OPTIONS = SolveOptions(order_seconds=0.0, backend="cpu", tables="incomplete")


def passed(problem: Problem, order: tuple[int, ...], narrows: bool):
    """The forward pass of counting, and how many values messages removed."""
    with tuned(narrows=narrows), MessageStore(1 << 26) as store:
        forward = Forward(prepare(problem, COUNTING, order), False, store)
        outcome = forward.run()
        return outcome, forward._maker.supported.removed


def test_a_value_without_a_row_goes_from_another_branch():
    """Eliminating a shows that c is 0 or 1; the bucket of b, which has c, too, gets fewer rows by that."""
    size = 8
    both = np.array([(a, c) for a in range(size) for c in range(size) if c > 1])
    wide = np.array([(d, e) for d in range(size) for e in range(size) if d == e])
    variables = tuple(Variable(name, size) for name in "abcde")
    constraints = (
        Constraint((0, 2), both),
        Constraint((1, 2), wide),
        Constraint((1, 3), wide),
        Constraint((3, 4), wide),
    )
    problem = Problem(variables, constraints=constraints)
    order = (0, 1, 3, 2, 4)
    narrow, removed = passed(problem, order, True)
    whole, none = passed(problem, order, False)
    assert (removed, none) == (size - 2, 0)
    assert narrow.value == whole.value > 0
    assert narrow.total_rows < whole.total_rows


def random_network(seed: int) -> Problem:
    random = np.random.default_rng(seed)
    constraints = []
    for _ in range(60):
        a = int(random.integers(20))
        b = (a + int(random.integers(1, 6))) % 20
        constraints.append(Constraint((a, b), np.argwhere(random.random((5, 5)) < 0.3)))
    return Problem(tuple(Variable(f"x{v}", 5) for v in range(20)), constraints=tuple(constraints))


@pytest.mark.parametrize("seed", range(4))
def test_counts_and_marginals_stay(seed):
    problem = random_network(seed)
    results = []
    for narrows in (True, False):
        with tuned(narrows=narrows):
            results.append([run_task(task, problem, OPTIONS) for task in ("count", "min-marginals", "logz")])
    for found, expected in zip(*results, strict=True):
        assert found.value == pytest.approx(expected.value, rel=1e-12)
        assert found.total_rows <= expected.total_rows
        for own, other in zip(found.marginals, expected.marginals, strict=True):
            np.testing.assert_array_equal(own.astype(float), other.astype(float))


@settings(max_examples=examples(150))
@given(structures((MIN_SUM, MAX_SUM), largest_domain=4))
def test_the_optimum_stays_with_dominance(structure):
    problem = without_bound(make_problem(structure))
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    with tuned(narrows=True):
        value, assignment = eliminate(problem, order)
    check(problem, value, assignment, brute_force(problem))
