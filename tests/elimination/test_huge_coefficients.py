"""Linear constraints with coefficients up to the ends of 64 bits, against sums of Python's integers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.bounds.forbidden import forbidden_sets
from oocbe.bounds.relaxation import PointRounding, _resources
from oocbe.elimination.engine import consumption as enforcement
from oocbe.errors import ModelError, OocbeError, UnsupportedError, ValueRangeError
from oocbe.model.parts import Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from tests.helpers.effort import examples

FAST = {"order_seconds": 0, "backend": "cpu", "bound_seconds": 0.05, "incumbent_seconds": 0.01}
LOWEST, HIGHEST = -(2**63), 2**63 - 1
EDGES = (LOWEST, LOWEST + 1, HIGHEST, 2**62, -(2**62), 2**61, 2**40, 0, 1, -1, 7)
CAPACITIES = (546038280773533695, 0, -1, 2**62, -(2**62), HIGHEST, 2**64, LOWEST, 2**62 - 1)


@st.composite
def problems(draw):
    """Three or four variables, one or two constraints and a few costs."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=3, max_size=4))
    linears = []
    for _ in range(draw(st.integers(1, 2))):
        scope = tuple(draw(st.permutations(range(len(sizes))))[: draw(st.integers(1, len(sizes)))])
        own = [draw(st.lists(st.sampled_from(EDGES), min_size=sizes[v], max_size=sizes[v])) for v in scope]
        linears.append(LinearConstraint(scope, tuple(map(np.array, own)), draw(st.sampled_from(CAPACITIES))))
    costs = tuple(
        Function.from_array((v,), draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)))
        for v, n in enumerate(sizes)
    )
    variables = tuple(Variable(f"v{i}", n) for i, n in enumerate(sizes))
    return Problem(variables, costs, linear_constraints=tuple(linears), name="huge")


def feasible_costs(problem: Problem) -> list[int]:
    """Cost of each feasible assignment, by Python's integers alone."""
    costs = [f.values.tolist() for f in problem.functions]
    sums = [([own.tolist() for own in c.coefficients], c.scope, c.capacity) for c in problem.linear_constraints]
    return [
        sum(cost[value] for cost, value in zip(costs, assignment, strict=True))
        for assignment in itertools.product(*map(range, problem.sizes))
        if all(
            sum(own[assignment[v]] for own, v in zip(rows, scope, strict=True)) <= limit for rows, scope, limit in sums
        )
    ]


@pytest.mark.parametrize("tabulated_bits", [enforcement.TABULATED_BITS, -1])
@settings(max_examples=examples(30), deadline=None)
@given(problems())
def test_counts_and_optima(tabulated_bits, problem):
    expected = feasible_costs(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enforcement, "TABULATED_BITS", tabulated_bits)
        try:
            assert oocbe.count(problem, order_seconds=0, backend="cpu").value == len(expected)
        except UnsupportedError as refusal:
            assert "no room for a capacity" in str(refusal) and tabulated_bits < 0
        for bounds in ("none", "constant", "lp", "local-polytope"):
            result = oocbe.solve(problem, bounds=bounds, **FAST)
            if result.status != "limit":
                assert result.value == min(expected, default=None)
            elif result.bound is not None:
                assert tabulated_bits < 0 and result.bound <= min(expected, default=result.bound)


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_what_is_written_is_read_back_or_refused(tmp_path_factory, problem):
    problem = Problem(problem.variables, linear_constraints=problem.linear_constraints, name="huge")
    file = tmp_path_factory.mktemp("huge") / "huge.wcsp"
    try:
        oocbe.write(problem, file)
    except OocbeError as refusal:
        assert isinstance(refusal, ValueRangeError)
        return
    copy = oocbe.read(file)
    for assignment in itertools.product(*map(range, problem.sizes)):
        assert copy.evaluate(assignment) == problem.evaluate(assignment)


def test_differences_of_coefficients_need_more_than_64_bits():
    """Values whose use beyond the least leaves 64 bits are neither a resource of local cuts nor rounded to."""
    own = (np.array([LOWEST, 2**40]), np.array([0, 5]))
    capacity = LinearConstraint((0, 1), own, LOWEST + 3)
    problem = Problem((Variable("x", 2), Variable("y", 2)), linear_constraints=(capacity,))
    forbidden = forbidden_sets(problem)
    use, room = _resources(problem, forbidden)
    assert len(room) == 0 and use.shape == (0, 4)
    rounding = PointRounding(problem, forbidden, np.zeros(4))
    assert list(rounding._takes[1]) == [(0, 2**40 - LOWEST)]
    assert rounding.round(np.array([0.0, 1.0, 0.0, 1.0]), np.zeros(4, dtype=np.uint8))
    assert rounding.assignment == (0, 0)


@pytest.mark.parametrize("coefficients", [[2**63, -1], [LOWEST, 2**63], [2**64, 0], [2**63], [0, LOWEST - 1]])
def test_coefficients_beyond_64_bits_are_refused_as_such(coefficients):
    with pytest.raises(ValueRangeError, match=r"recorder: coefficients reach -?\d{19,}, beyond 64-bit integers"):
        LinearConstraint((0,), (coefficients,), 5, "recorder")
    with pytest.raises(ModelError, match="recorder: coefficients must be integers"):
        LinearConstraint((0,), ([0.5, 1.0],), 5, "recorder")
