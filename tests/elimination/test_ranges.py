"""Integers are exact up to the last one that fits, and refused beyond: nothing wraps around or turns into a float."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import oocbe
from oocbe.elimination.preparation.ranges import (
    are_fractions,
    check_product,
    largest_magnitude,
    rounding_margin,
    value_dtype,
)
from oocbe.errors import UnsupportedError, ValueRangeError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem, relative_rounding
from oocbe.model.semiring import COUNTING, LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT
from oocbe.model.settings.tuning import tuned
from tests.helpers.small_problems import eliminate


def problem_of(*arrays, semiring=MIN_SUM, constant=0) -> Problem:
    """Variables of the arrays' lengths, each with its own unary function."""
    variables = tuple(Variable(f"x{v}", len(a)) for v, a in enumerate(arrays))
    functions = tuple(Function.from_array((v,), a) for v, a in enumerate(arrays))
    return Problem(variables, functions, constant=constant, semiring=semiring)


# Sums in int32 must leave room for what is infeasible in complete tables; in int64, which is the widest, twice the sum
# of largest magnitudes must fit, as dominance works with differences.
@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(2**28 - 1, "int32"), (2**28, "int64"), (2**30 - 1, "int64"), (2**62 - 1, "int64")],
)
def test_dtype_follows_from_the_largest_sum(largest, dtype):
    for sign in (1, -1):
        problem = problem_of([0, sign * (largest - 7)], [4 * sign, 0], constant=3 * sign)
        assert value_dtype(problem, MIN_SUM).name == dtype
        for semiring, choose in ((MIN_SUM, min), (MAX_SUM, max)):
            result = oocbe.solve(problem, semiring=semiring, order_seconds=0)
            sums = [problem.evaluate(a) for a in itertools.product(range(2), repeat=2)]
            assert (result.value, result.dtype) == (choose(sums), dtype)
            assert isinstance(result.value, int)


def test_complete_tables_hold_what_rows_of_32_bits_would():
    """Tables were made of int32, and the option was refused, from a quarter of its range on."""
    problem = problem_of([2**30 - 20, 7], [3, 0], semiring=MAX_SUM)
    assert oocbe.solve(problem, tables="complete").value == 2**30 - 17
    found = oocbe.min_marginals(problem, tables="complete").marginals
    assert [list(best) for best in found] == [[2**30 - 17, 10], [2**30 - 17, 2**30 - 20]]


def test_sums_beyond_are_refused():
    with pytest.raises(ValueRangeError, match="64-bit integers"):
        oocbe.solve(problem_of([0, 2**62 - 7], [4, 0], constant=3), order_seconds=0)
    with pytest.raises(ValueRangeError, match="64-bit integers"):
        oocbe.solve(problem_of([-(2**63), 0]), order_seconds=0)


@pytest.mark.parametrize("semiring", [MIN_SUM, MAX_SUM], ids=str)
@pytest.mark.parametrize("dominance", [True, False])
def test_integers_beyond_the_precision_of_floats_stay_exact(semiring, dominance):
    """Joined rows, functions looked up and dominance's penalties: each differs in the last bit only."""
    base = 2**58
    random = np.random.default_rng(2)
    scopes = [(0, 1), (1, 2), (0, 2), (2, 3)]
    functions = tuple(Function.from_array(s, base + random.integers(0, 5, size=(3, 3))) for s in scopes)
    problem = Problem(tuple(Variable(f"x{v}", 3) for v in range(4)), functions, semiring=semiring)
    values = [problem.evaluate(a) for a in itertools.product(range(3), repeat=4)]
    for order in itertools.permutations(range(4)):
        value, assignment = eliminate(problem, order, dominance)
        assert value == semiring.reduce(np.array(values)) == problem.evaluate(assignment)


@pytest.mark.parametrize(
    ("semiring", "integral", "expected"),
    [
        (MAX_PRODUCT, True, "int64"),
        (SUM_PRODUCT, False, "float64"),
        (LOG_SUM_EXP, True, "float64"),
        (COUNTING, False, "int64"),
        (MIN_SUM, False, "float64"),
    ],
    ids=str,
)
def test_dtype_of_other_semirings(semiring, integral, expected):
    problem = problem_of([1, 2] if integral else [1.5, 2.0], constant=1)
    assert value_dtype(problem, semiring).name == expected


def test_exact_products_up_to_the_limit():
    """(2^63 + 1) / 3 times 3 is one too many by two, and rounds down to what would fit."""
    too_many, fits = (2**63 + 1) // 3, (2**63 - 1) // 7
    for semiring in (MAX_PRODUCT, SUM_PRODUCT):
        apart = problem_of([too_many], [3], semiring=semiring, constant=1)
        together = Problem(
            (Variable("x", 1),),
            (Function.from_array((0,), [too_many]), Function.from_array((0,), [3])),
            constant=1,
            semiring=semiring,
        )
        with pytest.raises(ValueRangeError, match="products can reach"):
            oocbe.solve(together, order_seconds=0)
        # Independent parts are combined outside the tables, in integers without a limit.
        assert oocbe.solve(apart, order_seconds=0).value == too_many * 3
        assert oocbe.solve(problem_of([fits], [7], semiring=semiring, constant=1), order_seconds=0).value == 2**63 - 1
    lowest = Problem(
        (Variable("x", 1),),
        (Function.from_array((0,), [-(2**63)]), Function.from_array((0,), [3])),
        constant=1,
        semiring=SUM_PRODUCT,
    )
    with pytest.raises(ValueRangeError):
        oocbe.solve(lowest, order_seconds=0)


def test_counts_of_independent_parts_have_no_limit():
    def free(variables: int) -> Problem:
        return Problem(tuple(Variable(f"x{v}", 2) for v in range(variables)), semiring=COUNTING)

    assert oocbe.solve(free(62), order_seconds=0).value == 2**62
    assert oocbe.solve(free(70), order_seconds=0).value == 2**70


def test_counts_within_one_component_are_refused_beyond_the_limit():
    def chain(length: int) -> Problem:
        pairs = tuple(Constraint((v, v + 1), [[0, 0]]) for v in range(length - 1))
        return Problem(tuple(Variable(f"x{v}", 4) for v in range(length)), (), pairs, semiring=COUNTING)

    free, ending_in_zero = 3, 1
    for _ in range(29):
        free, ending_in_zero = 3 * (free + ending_in_zero), free
    assert oocbe.solve(chain(30), order_seconds=0).value == free + ending_in_zero
    with pytest.raises(ValueRangeError, match="bucket of x"):
        oocbe.solve(chain(41), order_seconds=0)


def test_check_product():
    check_product("here", (2**62, 1), 1)
    check_product("here", (2**40, 2**20), 7)
    for factors, size in (((2**62,), 2), ((2**32, 2**31), 1), ((2**63,), 1)):
        with pytest.raises(ValueRangeError, match=r"^here: "):
            check_product("here", factors, size)


def test_largest_magnitude_knows_that_the_lowest_integer_has_no_twin():
    assert largest_magnitude(np.array([-(2**63), 5])) == 2**63
    assert largest_magnitude(np.array([], dtype=np.int64)) == 0


def test_margin_is_zero_only_where_sums_are_exact():
    assert rounding_margin(problem_of([1, 2])) == 0
    assert rounding_margin(problem_of([1.5, 2.25], constant=0.125)) == 0
    assert 0 < rounding_margin(problem_of([0.1, 2.25])) < 1e-9
    assert rounding_margin(problem_of([2.0**40, 2.0])) > 0
    assert not are_fractions(problem_of([1e-320, 2e-320]))  # though their sums are exact, too


def test_margins_grow_with_the_number_of_additions():
    """Added to 1 one by one, numbers that are half its last digit are lost, each of them."""
    functions = (Function.from_array((0,), [2.0**-53]),) * (1 << 18)
    problem = Problem((Variable("x", 1),), functions, constant=1.0)
    margin = len(functions) * 2.0**-53
    assert margin < rounding_margin(problem) < 4 * margin
    assert margin < relative_rounding(problem) < 4 * margin  # which bounds of rows take


@pytest.mark.parametrize("values", [[-1.0, 2.0], [-3, 1]])
def test_negative_factors_cannot_be_maximised_over(values):
    """The greatest product of two negative factors is not the product of the greatest ones."""
    with pytest.raises(UnsupportedError, match="function 0 has a negative value"):
        oocbe.solve(problem_of(values, [1, 2], semiring=MAX_PRODUCT, constant=1), order_seconds=0)


@pytest.mark.parametrize("semiring", [COUNTING, MAX_SUM, LOG_SUM_EXP], ids=str)
def test_an_upper_bound_that_other_semirings_would_ignore_is_refused(semiring):
    problem = replace(problem_of([1, 2], [3, 4]), upper_bound=6)
    with pytest.raises(UnsupportedError, match="upper bound of 6"):
        oocbe.solve(problem, semiring=semiring, order_seconds=0)
    oocbe.solve(replace(problem, upper_bound=7), semiring=semiring, order_seconds=0)


def test_an_underflow_is_not_taken_for_infeasible():
    """1e-200 twice on one value is 1e-400: beyond float64, but feasible."""
    tiny = Function.from_array((0,), [1.0, 1e-200])
    problem = Problem((Variable("x", 2),), (tiny, tiny), (Constraint((0,), [[0]]),), constant=1.0, semiring=MAX_PRODUCT)
    with tuned(propagates=False):  # which would leave nothing to multiply
        result = oocbe.solve(problem, order_seconds=0)
    assert result.status == "optimal"
    assert result.assignment == (1,)
    assert result.value == 0
    assert "underflow" in " ".join(result.notes)


def test_values_that_cancel_are_a_value_not_infeasible():
    problem = Problem(
        (Variable("x", 2),), (Function.from_array((0,), [1.0, -1.0]),), constant=1.0, semiring=SUM_PRODUCT
    )
    result = oocbe.solve(problem, order_seconds=0)
    assert (result.status, result.value) == ("exact", 0)
