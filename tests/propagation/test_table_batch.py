"""Many small tables asked at once reach the fixpoint that each by itself does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.errors import TimeLimitError
from oocbe.model.parts import Constraint, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.propagation.domains import Domains, TableBatch, may_remove
from oocbe.propagation.fixpoint import Network
from oocbe.runtime.deadline import Deadline
from tests.helpers.effort import examples


def random_problem(seed: int) -> Problem:
    """Hard constraints only: tables of up to three variables, dense enough to remove values, and a sum."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, size=int(random.integers(2, 8)))
    constraints = []
    for _ in range(int(random.integers(1, 10))):
        arity = int(random.integers(1, min(3, len(sizes)) + 1))
        scope = tuple(random.choice(len(sizes), arity, replace=False).tolist())
        cells = np.argwhere(random.random([sizes[v] for v in scope]) < random.random())
        constraints.append(Constraint(scope, cells.reshape(len(cells), arity), bool(random.random() < 0.5)))
    coefficients = tuple(random.integers(-3, 4, size=size) for size in sizes)
    linear = LinearConstraint(tuple(range(len(sizes))), coefficients, int(random.integers(-3, 8)))
    variables = tuple(Variable(f"x{v}", int(size)) for v, size in enumerate(sizes))
    return Problem(variables, constraints=tuple(constraints), linear_constraints=(linear,))


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0, 3, 1000]), st.floats(0, 0.5))
def test_it_is_the_fixpoint_of_each(seed: int, batch_rows: int, share: float) -> None:
    problem = random_problem(seed)
    random = np.random.default_rng(seed + 1)
    pairs = [(v, x) for v, size in enumerate(problem.sizes) for x in range(size) if random.random() < share]
    apart, together = Network(problem), Network(problem, batch_rows=batch_rows)
    expected, found = apart.propagate_without(pairs), together.propagate_without(pairs)
    assert found.status == expected.status
    if found.status == "fixpoint":
        assert (found.domains.alive == expected.domains.alive).all()
        assert (found.domains.counts == expected.domains.counts).all()


def test_what_each_may_do_is_told_by_its_rows() -> None:
    rows = np.array([[0, 0], [0, 1], [0, 2]])
    assert may_remove(((0, 1), rows, False), (2, 3))
    assert not may_remove(((0, 1), rows[:1], False), (2, 3))
    assert may_remove(((0, 1), rows, True), (2, 3))
    assert not may_remove(((0, 1), np.argwhere(np.ones((2, 3))), True), (2, 3))


@pytest.mark.parametrize("batch_rows", [-1, 100])
def test_a_chain_is_followed_to_its_end(batch_rows: int) -> None:
    """x0 = 0 and x(i) = x(i+1): each table can remove something only after the one before."""
    equal = np.array([[0, 1], [1, 0]])
    constraints = tuple(Constraint((v, v + 1), equal) for v in range(200))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(201)), constraints=constraints)
    found = Network(problem, batch_rows=batch_rows).propagate_without([(0, 1)])
    assert found.status == "fixpoint"
    assert found.domains.alive.reshape(-1, 2).tolist() == [[1, 0]] * 201


def test_a_failure_is_one_again_and_a_set_flag_ends_in_time() -> None:
    equal = np.array([[0, 0], [1, 1]])
    domains = Domains.of_sizes((2, 2))
    batch = TableBatch([((0, 1), equal, True), ((0,), np.array([[0]]), True), ((1,), np.array([[0]]), False)], domains)
    assert batch.filter(domains) is None
    assert batch.filter(domains) is None
    with Deadline(None) as deadline, pytest.raises(TimeLimitError):
        deadline.interrupt()
        batch.filter(Domains.of_sizes((2, 2)))
