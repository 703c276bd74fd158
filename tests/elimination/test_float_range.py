"""Products and sums of floats at the ends of their range: exact where they fit in the end, or refused."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.errors import FloatRangeError, ValueRangeError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT
from oocbe.model.settings.tuning import tuned
from tests.helpers.effort import examples

FAST = {"order_seconds": 0, "backend": "cpu"}
FORMS = (
    {},
    {"tables": "complete"},
    {"tables": "incomplete"},
    {"piece_rows": 2},
    {"piece_rows": 2, "tables": "complete"},
)

PALETTES = (
    (1e-200, 1.0, 1e-150, 2.0, 1e-107),
    (1e-300, 1e300, 1.0, 0.0),
    (1e-100, 1e-50, 0.5, 0.0, 3.0),
    (1e250, 1e-100, 1e-250),
)
"""What values are drawn from: products of a few of them leave the range of float64 in both directions."""


def made(seed: int, palette: tuple[float, ...]) -> Problem:
    """A small product problem without negative values."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 4, size=random.integers(1, 6)).tolist()
    functions = []
    for _ in range(random.integers(1, 7)):
        scope = random.permutation(len(sizes))[: random.integers(1, min(2, len(sizes)) + 1)].tolist()
        functions.append(Function.from_array(scope, random.choice(palette, size=[sizes[v] for v in scope])))
    scope = random.permutation(len(sizes))[:2].tolist()
    tuples = [t for t in itertools.product(*(range(sizes[v]) for v in scope)) if random.random() < 0.3]
    constraint = Constraint(tuple(scope), np.array(tuples, dtype=np.int64).reshape(-1, len(scope)))
    semiring = MAX_PRODUCT if random.random() < 0.5 else SUM_PRODUCT
    variables = tuple(Variable(f"v{i}", size) for i, size in enumerate(sizes))
    return Problem(variables, tuple(functions), (constraint,), semiring=semiring, name="extreme")


def exact(problem: Problem) -> Fraction:
    """The optimum or sum in rational numbers; 0 where nothing is feasible."""
    found = [
        math.prod((Fraction(f.value_at(assignment)) for f in problem.functions), start=Fraction(1))
        for assignment in itertools.product(*map(range, problem.sizes))
        if all(c.permits(assignment) for c in problem.constraints)
    ] or [Fraction(0)]
    return max(found) if problem.semiring is MAX_PRODUCT else sum(found)


def rounded(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(PALETTES), st.sampled_from(FORMS))
def test_products_against_rational_numbers(seed, palette, form):
    problem = made(seed, palette)
    expected = exact(problem)
    result = oocbe.solve(problem, **form, **FAST)
    if expected == 0:
        assert result.value in (None, 0)
        return
    assert result.value == pytest.approx(rounded(expected), rel=1e-9, abs=1e-318)
    assert result.semiring == problem.semiring.name
    if result.value in (0, math.inf):
        logarithm = math.log(expected.numerator) - math.log(expected.denominator)
        assert any(f"natural logarithm is {logarithm:.6g}"[:25] in note for note in result.notes)


def hub(values: list[float], leaves: int, semiring=SUM_PRODUCT, last: float = 1.0) -> Problem:
    """A variable in the middle of many: its bucket joins as many messages as there are leaves."""
    variables = tuple(Variable(f"v{i}", 2) for i in range(leaves + 1))
    table = np.array([values, [0.0, 1.0]]).T
    functions = tuple(Function.from_array((0, leaf), table) for leaf in range(1, leaves + 1))
    return Problem(variables, (*functions, Function.from_array((0,), [last, 0.0])), semiring=semiring, name="hub")


@pytest.mark.parametrize(("semiring", "value"), [(SUM_PRODUCT, 0.71), (MAX_PRODUCT, 1.41)])
def test_a_bucket_of_many_messages(semiring, value):
    """Each message is near 1; 2,500 of them are not."""
    result = oocbe.solve(hub([value, value], 2500, semiring), order="min-degree", **FAST)
    expected = 2500 * math.log(value)
    assert any(f"natural logarithm is {expected:.6g}"[:27] in note for note in result.notes), result.notes
    assert result.value == (0 if value < 1 else math.inf)


def test_counts_that_are_infinite_as_floats_are_counted():
    """Messages of 11 rows, 1.375 once they were scaled: 2,500 of them are infinite as floats."""
    variables = (Variable("hub", 2), *(Variable(f"v{i}", 12) for i in range(2500)))
    pairs = tuple(Constraint((0, leaf), np.array([[0, 0], [1, 0]])) for leaf in range(1, 2501))
    problem = Problem(variables, (), pairs, name="wide")
    with tuned(propagates=False):
        assert oocbe.count(problem, order="min-degree", **FAST).value == 2 * 11**2500


def test_a_negative_value_and_a_work_folder_have_no_logarithms(tmp_path):
    first = Function.from_array((0, 1), [[1e-200, 1.0], [1.0, 1.0]])
    only = Constraint((0, 1), np.array([[0, 0]]), allowed=True)
    variables = (Variable("x", 2), Variable("y", 2))
    positive = Problem(variables, (first, first), (only,), semiring=SUM_PRODUCT, name="tiny")
    assert oocbe.solve(positive, **FAST).value == pytest.approx(1e-400, abs=5e-324)
    left_range = r"tiny, bucket of .: products of its values leave the range of float64"
    with pytest.raises(FloatRangeError, match=left_range), tuned(propagates=False):
        oocbe.solve(positive, workdir=tmp_path / "run", **FAST)
    wide = Function.from_array((0, 1), [[-1e-200, 1e200], [1.0, 1.0]])
    with pytest.raises(FloatRangeError, match="differ by more than float64 has room for"):
        oocbe.solve(Problem(variables, (wide,), semiring=SUM_PRODUCT), **FAST)


@pytest.mark.parametrize("form", [{}, {"tables": "incomplete"}, {"bounds": "none"}])
def test_sums_beyond_the_range_are_infinite_and_not_infeasible(form):
    """Every assignment costs more than float64 holds: that is a cost, and no proof that there is none."""
    functions = tuple(Function.from_array((0, v), np.full((2, 2), 1.5e308)) for v in (1, 2))
    problem = Problem(tuple(Variable(name, 2) for name in "xyz"), functions, name="vast")
    result = oocbe.solve(problem, **form, **FAST)
    assert (result.status, result.value) == ("optimal", math.inf)
    with pytest.raises(ValueRangeError, match="vast: sums of its values"):
        oocbe.solve(problem, tables="complete", **FAST)


@pytest.mark.parametrize(("value", "expected"), [(1e308, math.inf), (-1e308, -math.inf)])
def test_sums_of_exponentials_of_infinite_sums_are_numbers(value, expected):
    """The difference of two equal infinities is none."""
    functions = tuple(Function.from_array(pair, np.full((2, 2), value)) for pair in ((0, 1), (1, 2), (0, 2)))
    problem = Problem(tuple(Variable(name, 2) for name in "xyz"), functions, semiring=LOG_SUM_EXP)
    result = oocbe.solve(problem, tables="incomplete", **FAST)
    assert (result.status, result.value) == ("exact", expected)


@pytest.mark.parametrize("semiring", [MIN_SUM, MAX_SUM, LOG_SUM_EXP])
@pytest.mark.parametrize("bounds", ["auto", "none"])
def test_sums_beyond_the_range_in_both_directions_are_refused(semiring, bounds):
    functions = tuple(Function.from_array((0,), [sign * 1.5e308, 0.5]) for sign in (1, -1) for _ in range(2))
    problem = Problem((Variable("x", 2),), functions, semiring=semiring, name="vast")
    with pytest.raises(ValueRangeError, match="vast: sums of values may leave the range of float64 in both directions"):
        oocbe.solve(problem, bounds=bounds, **FAST)
