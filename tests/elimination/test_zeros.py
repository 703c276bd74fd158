"""Products that are 0 are infeasible, to everything that looks at a problem."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

import oocbe
from oocbe.elimination.plan.plan import make_plan
from oocbe.elimination.preparation.prepare import without_zeros
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import COUNTING, MAX_PRODUCT, MIN_SUM, SUM_PRODUCT
from oocbe.model.settings.options import SolveOptions
from tests.helpers.effort import examples
from tests.helpers.small_problems import make_problem, structures

OPTIONS = SolveOptions(order_seconds=0.0, backend="cpu")


@settings(max_examples=examples(60))
@given(structures(semirings=(MAX_PRODUCT, SUM_PRODUCT), largest_domain=3))
def test_zeros_become_infeasible_and_nothing_else_changes(structure):
    problem = make_problem(structure)
    bare = without_zeros(problem)
    assert all((f.values != 0).all() and f.default != 0 for f in bare.functions)
    assert bare.constant != 0
    assert without_zeros(bare) is bare
    for assignment in itertools.islice(itertools.product(*(range(size) for size in problem.sizes)), 300):
        assert bare.evaluate(assignment) == (problem.evaluate(assignment) or None)


def test_other_semirings_keep_their_zeros():
    functions = (Function((0,), [[0]], [0.0], 1.0),)
    for semiring in (MIN_SUM, COUNTING):
        problem = Problem((Variable("x", 2),), functions, semiring=semiring)
        assert without_zeros(problem) is problem


EQUAL = {
    "listed": ([[0, 0], [0, 1], [1, 0], [1, 1]], [0.5, 0.0, 0.0, 0.5], None),
    "beside a default": ([[0, 1], [1, 0]], [0.0, 0.0], 0.5),
    "default": ([[0, 0], [1, 1]], [0.5, 0.5], 0.0),
}


@pytest.mark.parametrize("semiring", [SUM_PRODUCT, MAX_PRODUCT])
@pytest.mark.parametrize("zeros", EQUAL)
def test_a_plan_knows_what_zeros_forbid(zeros, semiring):
    """All variables must be equal: two rows a message, and not the 2^29 that the disk would be too small for."""
    count = 30
    functions = [Function((i, j), *EQUAL[zeros]) for i in range(count) for j in range(i)]
    variables = tuple(Variable(f"x{i}", 2) for i in range(count))
    problem = Problem(variables, tuple(functions), semiring=semiring, name="equal")
    options = SolveOptions(order_seconds=0.0, backend="cpu", max_disk=1 << 30)
    plan = make_plan(problem, options)
    assert plan.largest.predicted_rows <= 4
    assert not plan.disk_refusal
    expected = 0.5 ** len(functions)
    result = oocbe.solve(problem, options)
    assert result.value == (2 * expected if semiring is SUM_PRODUCT else expected)
    assert result.largest_message_rows == 2
    assert oocbe.count(problem, options).value == 2


def _three_best(problem, options):
    return oocbe.k_best(problem, 3, options)


@pytest.mark.parametrize("semiring", [SUM_PRODUCT, MAX_PRODUCT])
@pytest.mark.parametrize("values", [[1, 2], [0.25, 0.5]])
@pytest.mark.parametrize("form", ["constant", "function", "function beside a default"])
def test_a_product_with_a_constant_of_zero_is_infeasible(semiring, values, form):
    zero = type(values[0])(0)
    constant = zero if form == "constant" else 1
    functions = [Function.from_array((0,), values)]
    if form != "constant":
        none = np.zeros((1, 0), dtype=np.int64)
        functions.append(Function((), none, [zero], None if form == "function" else values[1]))
    problem = Problem((Variable("x", 2),), tuple(functions), constant=constant, semiring=semiring, name="nothing")
    result = oocbe.solve(problem, OPTIONS)
    assert (result.status, result.value, result.assignment) == ("infeasible", None, None)
    tasks = [oocbe.count, oocbe.log_partition, oocbe.marginals]
    if semiring is MAX_PRODUCT:
        tasks += [oocbe.count_optimal, oocbe.most_probable_explanation, _three_best]
        assert oocbe.bound(problem, 2, OPTIONS).status == "infeasible"
    for task in tasks:
        found = task(problem, options=OPTIONS)
        assert found.status == "infeasible", found.task
        assert found.value in (None, 0, -np.inf)
