"""Optimal and best assignments of products: what elimination scales, and what logarithms cannot tell apart."""

import math

import pytest

import oocbe
from oocbe.api.tasks.count import count_optimal
from oocbe.api.tasks.k_best import k_best
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT
from oocbe.model.settings.options import SolveOptions

OPTIONS = SolveOptions(order_seconds=0.0, backend="cpu")


@pytest.mark.parametrize("scale", [1.0, 1e-200])
def test_the_optimum_of_floating_point_products(scale):
    """Elimination scales products; the optimum is the one that a solve returns."""
    functions = (Function.from_array((0,), [0.1 * scale, 0.05 * scale]), Function.from_array((1,), [0.001, 0.002]))
    problem = Problem((Variable("x", 2), Variable("y", 2)), functions, semiring=MAX_PRODUCT, name="floats")
    result = count_optimal(problem, OPTIONS)
    assert result.value == 1
    assert result.optimum == oocbe.solve(problem, OPTIONS).value == pytest.approx(2e-4 * scale)


def near_ties(top):
    """Products of integers whose logarithms are the same in floating point."""
    functions = (Function.from_array((0,), [top, top + 1, 5, top - 1]), Function.from_array((0, 1), [[1, 1]] * 4))
    return Problem((Variable("x", 4), Variable("y", 2)), functions, semiring=MAX_PRODUCT, name="near ties")


@pytest.mark.parametrize("top", [2**45, 2**60])
def test_products_of_integers_are_compared_exactly(top):
    assert count_optimal(near_ties(top), OPTIONS).value == 2
    best = k_best(near_ties(top), OPTIONS, 5)
    assert [value for value, _ in best.assignments] == [top + 1, top + 1, top, top, top - 1]


def test_the_best_products_of_integers_beyond_64_bits():
    """Independent buckets: each fits 64 bits, their product does not."""
    first, second = 2**50, 2**40
    functions = (Function.from_array((0,), [first, first + 1]), Function.from_array((1,), [second - 1, second, 1]))
    problem = Problem((Variable("x", 2), Variable("y", 3)), functions, semiring=MAX_PRODUCT, name="beyond")
    expected = sorted((a * b for a in (first, first + 1) for b in (second - 1, second, 1)), reverse=True)
    assert [value for value, _ in k_best(problem, OPTIONS, 4).assignments] == expected[:4]
    assert count_optimal(problem, OPTIONS).optimum == expected[0]


def products(*pairs):
    variables = tuple(Variable(f"x{number}", 2) for number in range(len(pairs)))
    functions = tuple(Function.from_array((number,), pair) for number, pair in enumerate(pairs))
    return Problem(variables, functions, semiring=MAX_PRODUCT, name="far")


def test_products_that_leave_the_range_of_float64_on_the_way_are_listed_and_others_are_noted():
    best = k_best(products((1e-200, 2e-200), (1e-200, 3e-200), (1e200, 4e200)), OPTIONS, 2)
    assert [value for value, _ in best.assignments] == [pytest.approx(2.4e-199), pytest.approx(1.2e-199)]
    assert not any("float64" in note for note in best.notes)
    best = k_best(products((1e-200, 2e-200), (1e-200, 3e-200)), OPTIONS, 2)
    assert best.assignments == ((0.0, (1, 1)), (0.0, (0, 1)))
    assert any("beyond the range of float64" in note for note in best.notes)
    best = k_best(products((1e200, 1e20), (1e200, 1e150)), OPTIONS, 3)
    assert best.assignments == ((math.inf, (0, 0)), (math.inf, (0, 1)), (pytest.approx(1e220), (1, 0)))
    assert any("beyond the range of float64" in note for note in best.notes)


def test_a_product_that_is_infinite_on_the_way_and_0_in_the_end_is_0():
    small = (1e-300, 1e-310)
    best = k_best(products((1e200, 1e200), (1e200, 1e200), small, small, small), OPTIONS, 2)
    assert [value for value, _ in best.assignments] == [0.0, 0.0]
