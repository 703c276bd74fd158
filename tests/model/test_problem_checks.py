"""A problem finds a bad tuple wherever it is: small parts are checked together, large ones one by one."""

from __future__ import annotations

import re

import numpy as np
import pytest

import oocbe
from oocbe.errors import ModelError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import SEMIRINGS

SIZES = (2, 3, 4, 2000)
VARIABLES = tuple(Variable(f"x{v}", size) for v, size in enumerate(SIZES))
GOOD = [Constraint((0, 1), [[0, 0], [1, 2]]), Constraint((1, 0), [[2, 1], [0, 0]]), Constraint((2, 1), [[3, 2]]),
        Constraint((), np.zeros((1, 0))), Constraint((3, 0), np.zeros((0, 2)))]  # fmt: skip


def test_good_parts():
    assert len(Problem(VARIABLES, constraints=tuple(GOOD)).constraints) == len(GOOD)


@pytest.mark.parametrize("place", range(len(GOOD) + 1))
@pytest.mark.parametrize(
    ("scope", "tuples", "message"),
    [
        ((0, 1), [[0, 0], [0, 3]], "a value of scope position 1 is outside its domain of size 3"),
        ((1, 0), [[0, -1]], "a value of scope position 1 is outside its domain of size 2"),
        ((1, 2), [[1, 3], [0, 0], [1, 3]], "1 tuples occur twice"),
        ((0, 4), [[0, 0]], "variable 4 of scope (0, 4) does not exist"),
        ((-1, 0), [[0, 0]], "variable -1 of scope (-1, 0) does not exist"),
        ((1, 1), [[0, 0]], "a variable occurs twice in scope (1, 1)"),
        ((3,), [[v] for v in [*range(1999), 5]], "1 tuples occur twice"),
        ((3, 0), [[v, 0] for v in range(1500)] + [[2000, 1]], "a value of scope position 0 is outside its domain"),
    ],
)
def test_one_bad_part(place, scope, tuples, message):
    parts = [*GOOD[:place], Constraint(scope, tuples), *GOOD[place:]]
    with pytest.raises(ModelError, match=re.escape(f"constraint {place}: {message}")):
        Problem(VARIABLES, constraints=tuple(parts))
    functions = [Function(c.scope, c.tuples, np.zeros(len(c.tuples)), 0) for c in parts]
    with pytest.raises(ModelError, match=re.escape(f"function {place}: {message}")):
        Problem(VARIABLES, functions=tuple(functions))


def test_scopes_of_more_than_64_bits():
    variables = tuple(Variable(f"x{v}", 2) for v in range(100))
    zeros, ones = np.zeros((1, 100), dtype=int), np.ones((1, 100), dtype=int)
    scope = tuple(range(100))
    assert Problem(variables, constraints=(Constraint(scope, np.concatenate([zeros, ones])),)).constraints
    with pytest.raises(ModelError, match="occur twice"):
        Problem(variables, constraints=(Constraint(scope, np.concatenate([zeros, zeros])),))


def parts_of(random, count, kind):
    """Parts of every arity up to 3, some with more rows than are looked at together, some without any."""
    made = []
    for _ in range(count):
        scope = tuple(random.permutation(len(SIZES))[: random.integers(0, 4)].tolist())
        sizes = [SIZES[v] for v in scope]
        cells = np.argwhere(random.random(sizes) < random.choice([0.0, 0.4, 0.9]))
        made.append(kind(scope, cells, random))
    return tuple(made)


@pytest.mark.parametrize("seed", range(5))
def test_an_assignment_is_worth_what_its_parts_say_one_by_one(seed):
    random = np.random.default_rng(seed)
    constraints = parts_of(random, 12, lambda s, t, r: Constraint(s, t, bool(r.integers(2))))
    values = iter(range(10**6))
    functions = parts_of(
        random, 12, lambda s, t, r: Function(s, t, [next(values) for _ in t], r.choice([None, 3], p=[0.2, 0.8]))
    )
    problem = Problem(VARIABLES, functions, constraints)
    free = Problem(VARIABLES, functions)
    feasible = 0
    for _ in range(60):
        assignment = [int(random.integers(size)) for size in SIZES]
        worth = [f.value_at(assignment) for f in functions]
        total = None if None in worth else sum(worth)
        permitted = all(c.permits(assignment) for c in constraints)
        assert free.evaluate(assignment) == total
        assert problem.evaluate(assignment) == (total if permitted else None)
        for c in constraints:
            alone = Problem(VARIABLES, constraints=(c,))
            assert (alone.evaluate(assignment) is not None) == c.permits(assignment)
        feasible += total is not None
    assert sum(len(p.tuples) >= 1024 for p in (*constraints, *functions)) > 0
    assert feasible > 0 or any(f.default is None for f in functions)


def test_a_name_that_two_variables_have_is_told():
    with pytest.raises(ModelError, match="two are called 'x'"):
        Problem((Variable("x", 2), Variable("y", 2), Variable("x", 3)))


@pytest.mark.parametrize("semiring", ["max-product", "max-sum", "min-sum"])
def test_an_upper_bound_limits_the_sum_of_costs_in_every_semiring(semiring):
    """A product's neutral constant of 1 is no cost."""
    problem = oocbe.Problem((oocbe.Variable("a", 2),), (), upper_bound=0.5)
    result = oocbe.solve(problem, semiring=semiring)
    again = problem.in_semiring(SEMIRINGS[semiring])
    assert result.value == again.evaluate(result.assignment) == oocbe.solve(again).value
