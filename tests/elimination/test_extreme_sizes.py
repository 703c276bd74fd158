"""Problems of extreme sizes: each is solved, or refused before anything large is allocated, naming the limit."""

from __future__ import annotations

import numpy as np
import pytest

import oocbe
from oocbe.elimination.orders import primal_graph, separators
from oocbe.errors import ResourceError, UnsupportedError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from tests.helpers.effort import examples

FAST = {"order_seconds": 0.0, "backend": "cpu", "incumbent_seconds": 0.01}


def large_domain(values: int, has_pair: bool = False) -> Problem:
    """One function of each value, one beside a small variable, and perhaps one with a variable of the same size."""
    own = np.random.default_rng(0).integers(1, 100, values)
    own[values - 7] = 0
    functions = [
        Function((0,), np.arange(values)[:, None], own, None),
        Function((0, 1), [[5, 1], [values - 1, 2]], [3, 4], 7),
    ]
    if has_pair:
        functions.append(Function((0, 2), [[5, 1], [values - 1, 2]], [3, 4], 7))
    return Problem((Variable("a", values), Variable("b", 3), Variable("c", values)), tuple(functions))


def wide(arity: int, default: int | None, constraint: str = "") -> Problem:
    """One function, or one constraint, over all of many variables, which have costs of their own."""
    tuples = np.random.default_rng(1).integers(0, 2, (5, arity))
    scope = tuple(range(arity))
    functions = [Function((v,), [[0]], [1 + v % 9], 0) for v in scope]
    constraints = []
    if constraint:
        constraints.append(Constraint(scope, tuples, allowed=constraint == "allowed"))
    else:
        functions.append(Function(scope, tuples, [1, 2, 3, 4, 5], default))
    return Problem(tuple(Variable(f"x{v}", 2) for v in scope), tuple(functions), tuple(constraints))


@pytest.mark.parametrize("values", [70_000])
def test_large_domains(values):
    """A variable that no function mentions failed with an internal error."""
    result = oocbe.solve(large_domain(values), **FAST)
    assert result.value == 7
    assert oocbe.count(large_domain(values), **FAST).value == values * values * 3


def test_pairs_of_large_domains_are_refused_where_their_costs_count():
    with pytest.raises(UnsupportedError, match=r"assignments to a default; written out, at most"):
        oocbe.solve(large_domain(70_000, has_pair=True), **FAST)
    assert oocbe.count(large_domain(70_000, has_pair=True), **FAST).value == 70_000 * 70_000 * 3


@pytest.mark.parametrize(("arity", "kind"), [(64, "allowed"), (65, "listed"), (130, "allowed")])
def test_wide_scopes_with_listed_tuples(arity, kind):
    problem = wide(arity, None) if kind == "listed" else wide(arity, None, "allowed")
    part = problem.constraints[0] if problem.constraints else problem.functions[-1]
    expected = min(v for v in (problem.evaluate(row) for row in part.tuples.tolist()) if v is not None)
    result = oocbe.solve(problem, **FAST)
    assert (result.value, problem.evaluate(result.assignment)) == (expected, expected)
    assert oocbe.count(problem, **FAST).value == 5


@pytest.mark.parametrize("problem", [wide(200, 0), wide(200, 0, "forbidden")], ids=["default", "forbidden"])
def test_wide_scopes_with_a_default(problem):
    """Bounds may solve them; where that is not enough, the limit is named."""
    result = oocbe.solve(problem, **FAST)
    assert result.value == problem.evaluate(result.assignment) == 0
    with pytest.raises(UnsupportedError, match="written out, at most"):
        oocbe.solve(problem, bounds="none", **FAST)


def test_more_variables_than_memory_has_room_for_are_refused(monkeypatch):
    monkeypatch.setattr(separators, "available_memory", lambda: 1_000)
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(200)))
    with pytest.raises(ResourceError, match="of memory here"):
        oocbe.plan(problem)


def test_a_bound_outlives_an_order_that_memory_has_no_room_for(monkeypatch):
    """The width in the result needs an order; where there can be none, the answer was lost."""
    functions = [Function.from_array((v, v + 1), [[3, 1], [0, 2]]) for v in range(30)]
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(31)), tuple(functions))
    monkeypatch.setattr(separators, "available_memory", lambda: 0)
    result = oocbe.solve(problem, bounds="constant", time_limit=0, **FAST)
    assert (result.status, result.width) == ("limit", 0)
    assert result.bound is not None


def test_the_primal_graph_has_an_edge_where_two_variables_share_a_scope():
    scopes = [(0, 70), (3, 64, 65), (1,), (69, 70, 2, 63)]
    functions = [Function(scope, [[0] * len(scope)], [1], 0) for scope in scopes]
    graph = primal_graph.PrimalGraph(Problem(tuple(Variable(f"x{v}", 2) for v in range(71)), tuple(functions)))
    bits = np.unpackbits(graph.adjacency.view(np.uint8), axis=1, bitorder="little")
    edges = {(v, w) for scope in scopes for v in scope for w in scope if v != w}
    assert {(int(v), int(w)) for v, w in np.argwhere(bits)} == edges


@pytest.mark.parametrize("seed", range(examples(32)))
def test_variables_of_one_value_are_part_of_a_linear_constraint_s_capacity(seed):
    """Tasks that go back over the tables were refused, as such a constraint was too wide to be tabulated."""
    random = np.random.default_rng(seed)
    sizes = random.permutation([1] * 70 + [2, 3, 2, 3]).tolist()
    coefficients = tuple(random.integers(-(2**50), 2**58, size) for size in sizes)
    least, greatest = sum(int(own.min()) for own in coefficients), sum(int(own.max()) for own in coefficients)
    linear = LinearConstraint(tuple(range(74)), coefficients, least + (greatest - least) * (seed + 1) // 10)
    costs = tuple(Function.from_array((v,), random.integers(0, 4, sizes[v])) for v in range(74))
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    problem = Problem(variables, costs, linear_constraints=(linear,))
    every = np.ndindex(*sizes)
    values = sorted(problem.evaluate(assignment) for assignment in every if linear.permits(assignment))
    assert oocbe.solve(problem, **FAST).value == values[0]
    assert oocbe.count(problem).value == len(values)
    assert oocbe.count_optimal(problem).value == values.count(values[0])
    assert [value for value, _ in oocbe.k_best(problem, k=9).assignments] == values[:9]
