"""A problem finds a bad tuple wherever it is: small parts are checked together, large ones one by one."""

from __future__ import annotations

import re

import numpy as np
import pytest

from oocbe.errors import ModelError
from oocbe.problem import Constraint, Function, Problem, Variable

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
