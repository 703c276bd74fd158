"""Functions over more variables than an array has axes, most of them with one value: read, written or refused."""

from __future__ import annotations

import numpy as np
import pytest

import oocbe
from oocbe import MAX_PRODUCT, MIN_SUM, Constraint, Function, LinearConstraint, Problem, UnsupportedError, Variable

COUNT = 70
SIZES = [1] * (COUNT - 2) + [2, 3]
SCOPE = tuple(range(COUNT))
VALUES = [0, 4, 2, 1, 3, 5]
"""By the tuples of the last two variables, in lexicographic order."""

VARIABLES = tuple(Variable(f"x{v}", size) for v, size in enumerate(SIZES))
TUPLES = np.array([[0] * (COUNT - 2) + [a, b] for a in range(2) for b in range(3)])


def spelled(numbers) -> str:
    return " ".join(map(str, numbers))


def values_of(problem: Problem) -> list[float | None]:
    return [problem.evaluate(row) for row in TUPLES.tolist()]


def test_read_from_uai(tmp_path):
    path = tmp_path / "wide.uai"
    path.write_text(f"MARKOV {COUNT}\n{spelled(SIZES)}\n1\n{COUNT} {spelled(SCOPE)}\n\n6\n{spelled(VALUES)}\n")
    assert values_of(oocbe.read(path)) == [None, 4.0, 2.0, 1.0, 3.0, 5.0]


def test_read_from_wcsp(tmp_path):
    path = tmp_path / "wide.wcsp"
    rows = "\n".join(spelled([*row, cost]) for row, cost in zip(TUPLES.tolist(), VALUES, strict=True))
    path.write_text(f"wide {COUNT} 3 1 100\n{spelled(SIZES)}\n{COUNT} {spelled(SCOPE)} 0 6\n{rows}\n")
    assert values_of(oocbe.read(path)) == VALUES


def test_the_last_cost_of_a_tuple_that_is_listed_twice_counts(tmp_path):
    path = tmp_path / "wide.wcsp"
    rows = [spelled([*TUPLES[1], cost]) for cost in (4, 7)]
    path.write_text(f"wide {COUNT} 3 1 100\n{spelled(SIZES)}\n{COUNT} {spelled(SCOPE)} 0 2\n{rows[0]}\n{rows[1]}\n")
    assert oocbe.read(path).evaluate(TUPLES[1].tolist()) == 7


def test_read_from_cfn(tmp_path):
    path = tmp_path / "wide.cfn"
    variables = " ".join(f"x{v}: {size}" for v, size in enumerate(SIZES))
    names = " ".join(f"x{v}" for v in SCOPE)
    path.write_text(
        f'{{"problem": {{"name": "wide", "mustbe": "<100"}}, "variables": {{{variables}}},\n'
        f'"functions": {{"f": {{"scope": [{names}], "costs": [{spelled(VALUES)}]}}}}}}'
    )
    assert values_of(oocbe.read(path)) == VALUES


def test_many_rows_are_checked(tmp_path):
    sizes = [1] * COUNT + [2000]
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    rows = np.zeros((2000, COUNT + 1), dtype=np.int64)
    rows[:, -1] = np.arange(2000)
    scope = tuple(range(COUNT + 1))
    assert len(Problem(variables, (Function(scope, rows, np.ones(2000, dtype=int)),)).functions) == 1
    rows[7, -1] = 8
    with pytest.raises(oocbe.ModelError, match="1 tuples occur twice"):
        Problem(variables, (Function(scope, rows, np.ones(2000, dtype=int)),))


@pytest.mark.parametrize(
    "part",
    [
        {"functions": (Function(SCOPE, TUPLES, VALUES),)},
        {"constraints": (Constraint(SCOPE, TUPLES[:2]),)},
        {"linear_constraints": (LinearConstraint(SCOPE, tuple([1] * size for size in SIZES), 100),)},
    ],
    ids=["function", "constraint", "linear constraint"],
)
def test_writing_as_uai_is_refused(tmp_path, part):
    with pytest.raises(UnsupportedError, match="over 70 variables, and this writer stops at 63"):
        oocbe.write(Problem(VARIABLES, semiring=MAX_PRODUCT, **part), tmp_path / "wide.uai")
    assert list(tmp_path.iterdir()) == []


def test_nothing_below_a_negative_upper_bound_stays_so_as_wcsp(tmp_path):
    """Functions without variables are added up: two of a negative top would not reach it."""
    nothing = Function((), np.zeros((0, 0)), np.zeros(0, dtype=int))
    problem = Problem((), (nothing, nothing), semiring=MIN_SUM, upper_bound=-12)
    assert problem.evaluate(()) is None
    oocbe.write(problem, tmp_path / "empty.wcsp")
    assert oocbe.read(tmp_path / "empty.wcsp").evaluate(()) is None
