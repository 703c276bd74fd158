"""Numbers, tuples and scopes enter a problem as they were given, or are refused: none is wrapped, cut off or lost."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import oocbe
from oocbe.errors import ModelError, ValueRangeError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import COUNTING, LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT

X, Y = Variable("x", 2), Variable("y", 2)


@pytest.mark.parametrize(
    "values",
    [[2**63], [-(2**63) - 1], [2**70], np.array([2**63], dtype=np.uint64), np.array([2**70], dtype=object)],
    ids=repr,
)
def test_integers_beyond_64_bits_are_refused(values):
    with pytest.raises(ValueRangeError, match="beyond 64-bit integers"):
        Function((0,), [[0]], values)
    with pytest.raises(ValueRangeError, match="beyond 64-bit integers"):
        LinearConstraint((0,), (values,), 0)


def test_a_list_of_integers_of_both_signs_does_not_become_floats():
    with pytest.raises(ValueRangeError):
        Function((0,), [[0], [1]], [2**63 + 1, -1])
    with pytest.raises(ValueRangeError):
        Function.from_array((0,), [2**63 + 1, -1])


def test_the_extremes_of_64_bits_are_kept():
    given = np.array([2**63 - 1, 5], dtype=np.uint64)
    assert Function((0,), [[0], [1]], given).values.tolist() == [2**63 - 1, 5]
    assert Function((0,), [[0]], [-(2**63)], -(2**63)).default == -(2**63)
    assert Function((0,), [[0], [1]], np.array([3, -4], dtype=object)).values.dtype == np.int64


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), "1", 1j, [1], Fraction(1, 2)])
def test_a_default_constant_or_bound_that_is_no_finite_number_is_refused(value):
    with pytest.raises(ModelError, match="the default must be"):
        Function((0,), [[0]], [1], value)
    with pytest.raises(ModelError, match="the constant must be"):
        Problem((X,), constant=value)
    with pytest.raises(ModelError, match="the upper bound must be"):
        Problem((X,), upper_bound=value)


def test_a_default_beyond_64_bits_is_refused():
    with pytest.raises(ValueRangeError):
        Function((0,), [[0]], [1], 2**63)


@pytest.mark.parametrize("default", [np.float32(0.7), np.float16(0.7), np.float64(0.7), np.array(0.7)])
def test_a_float_default_of_numpy_stays_a_float(default):
    f = Function((0,), [[0]], [2], default)
    assert type(f.default) is float
    assert not f.is_integral
    assert f.to_array((2,))[0].tolist() == [2, float(default)]
    assert oocbe.solve(Problem((X,), (f,)), order_seconds=0).value == float(default)


@pytest.mark.parametrize("constant", [np.int64(1), np.uint8(1), np.bool_(True), True, np.array(1)])
def test_an_integer_constant_of_numpy_leaves_the_problem_integral(constant):
    problem = Problem((X,), (Function((0,), [[0]], [1], np.int32(4)),), constant=constant, upper_bound=np.int64(9))
    assert problem.is_integral
    assert [type(n) for n in (problem.constant, problem.functions[0].default, problem.upper_bound)] == [int] * 3


def test_nan_in_an_array_is_refused_unless_it_says_infeasible():
    array = np.array([math.nan, 2.0, math.inf])
    with pytest.raises(ModelError, match="values must be finite"):
        Function.from_array((0,), array)
    with pytest.raises(ModelError, match="values must be finite"):
        Function.from_array((0,), array, infeasible=2.0)
    assert Function.from_array((0,), array, infeasible=math.nan).tuples.tolist() == [[1]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, list])
def test_what_is_infeasible_is_rounded_as_the_entries_are(dtype):
    """Widened to float64, 0.1 in 32 bits is another number."""
    entries = [0.1, 1.0, 60000.0]
    array = entries if dtype is list else np.array(entries, dtype=dtype)
    for infeasible, left in (
        (0.1, [[1], [2]]),
        (60000.0, [[0], [1]]),
        (1e300, [[0], [1], [2]]),
        (10**400, [[0], [1], [2]]),
    ):
        assert Function.from_array((0,), array, infeasible=infeasible).tuples.tolist() == left


@pytest.mark.parametrize("tuples", [[[0.9]], [[1.0]], [["1"]], [[math.nan]], [[None]]])
def test_tuples_that_are_no_integers_are_refused(tuples):
    with pytest.raises(ModelError, match=r"tuples over \(0,\) must be"):
        Function((0,), tuples, [1])
    with pytest.raises(ModelError, match=r"tuples over \(0,\) must be"):
        Constraint((0,), tuples)


def test_a_tuple_beyond_64_bits_is_refused():
    with pytest.raises(ValueRangeError):
        Constraint((0,), np.array([[2**63]], dtype=np.uint64))


def test_scopes_and_sizes_of_numpy_become_python_integers():
    f = Function(tuple(np.arange(2)), [[0, 1]], [1])
    assert [type(v) for v in (*f.scope, Variable("x", np.int64(3)).size)] == [int] * 3
    with pytest.raises(ModelError, match=r"a variable of a scope, .* must be an integer"):
        Constraint((0.0,), [[0]])


def test_functions_without_variables():
    default = Function((), np.zeros((0, 0)), [], 5)
    assert default.is_integral
    assert [a.item() for a in default.to_array(())] == [5, True]
    assert [a.item() for a in Function((), np.zeros((1, 0)), [7], 5).to_array(())] == [7, True]
    assert [a.item() for a in Function((), np.zeros((0, 0)), []).to_array(())] == [0, False]
    assert oocbe.solve(Problem((X,), (default,)), order_seconds=0).value == 5
    with pytest.raises(ModelError, match="1 tuples occur twice"):
        Problem((X,), (Function((), np.zeros((2, 0)), [7, 8]),))


@pytest.mark.parametrize("coefficients", [[0, 1.5], [0.0, 1.0], ["a", "b"]])
def test_linear_coefficients_that_are_no_integers_are_refused(coefficients):
    with pytest.raises(ModelError, match="capacity: coefficients must be"):
        LinearConstraint((0,), (coefficients,), 1, "capacity")


@pytest.mark.parametrize("capacity", [1.0, math.inf, None])
def test_a_capacity_that_is_no_integer_is_refused(capacity):
    with pytest.raises(ModelError, match="recorder: the capacity must be an integer"):
        LinearConstraint((0,), ([0, 1],), capacity, "recorder")


@pytest.mark.parametrize("large", [2**62, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("capacity", [10, -10, 2**63, -(2**65)])
def test_linear_sums_beyond_64_bits_are_exact(large, capacity):
    linear = LinearConstraint((0, 1, 2), (np.array([0, large]),) * 3, capacity)
    expected = [[[linear.permits((x, y, z)) for z in (0, 1)] for y in (0, 1)] for x in (0, 1)]
    assert linear.to_array().tolist() == expected


def test_a_linear_sum_beyond_64_bits_forbids():
    cost = tuple(Function((v,), [[0]], [5], 0) for v in (0, 1))
    linear = LinearConstraint((0, 1), ([0, 2**62], [0, 2**62]), 10)
    result = oocbe.solve(Problem((X, Y), cost, linear_constraints=(linear,)), order_seconds=0)
    assert (result.value, result.assignment) == (10, (0, 0))


@pytest.mark.parametrize(("capacity", "status"), [(-1, "infeasible"), (0, "optimal")])
def test_a_linear_constraint_without_variables(capacity, status):
    problem = Problem((X,), linear_constraints=(LinearConstraint((), (), capacity),))
    assert oocbe.solve(problem, order_seconds=0).status == status


SEMIRINGS = [MIN_SUM, MAX_SUM, MAX_PRODUCT, SUM_PRODUCT, LOG_SUM_EXP, COUNTING]


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=str)
@pytest.mark.parametrize("own", SEMIRINGS, ids=str)
def test_no_constant_means_none_in_every_semiring(own, semiring):
    problem = Problem((X,), (Function.from_array((0,), [2.0, 3.0]),), semiring=own)
    assert problem.constant == own.one
    expected = {MIN_SUM: 2, MAX_SUM: 3, MAX_PRODUCT: 3, SUM_PRODUCT: 5, COUNTING: 2}
    expected[LOG_SUM_EXP] = math.log(math.exp(2) + math.exp(3))
    value = oocbe.solve(problem, semiring=semiring, order_seconds=0).value
    assert value == pytest.approx(expected[semiring], rel=1e-14)


def test_a_constant_that_says_something_is_kept_in_another_semiring():
    problem = Problem((X,), (Function.from_array((0,), [2, 3]),), constant=4)
    assert oocbe.solve(problem, semiring=SUM_PRODUCT, order_seconds=0).value == 20
    assert problem.in_semiring(MIN_SUM) is problem
