"""Incumbents against brute force: never infeasible, never wrongly valued, optimal where there is time."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from oocbe.bounds import incumbent
from oocbe.bounds.incumbent import LocalSearch, find_incumbent, search_model
from oocbe.bounds.kernels.cpu.local_search import _best_kept_move, _best_move
from oocbe.errors import UnsupportedError
from oocbe.kernels.cpu.interpreter import interpreted
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import COUNTING, MAX_SUM, MIN_SUM
from tests.helpers.effort import examples
from tests.helpers.small_problems import brute_force, make_problem, structures

PLENTY = 3600.0
"""Seconds: what ends the search is the number of iterations."""


def is_same(problem, value, expected):
    return value == expected if problem.is_integral else value == pytest.approx(expected)


@settings(max_examples=examples(150))
@given(structures(semirings=(MIN_SUM, MAX_SUM)))
def test_small_problems_reach_the_optimum(structure):
    problem = make_problem(structure)
    expected = brute_force(problem)
    found = find_incumbent(problem, PLENTY, seed=structure["seed"], iterations=20_000)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found.value == problem.evaluate(found.assignment)
    assert is_same(problem, found.value, expected)


def test_a_search_is_begun_however_long_its_set_up_took(monkeypatch):
    """As on a machine that does other things too."""
    problem = Problem((Variable("x", 3),), (Function.from_array((0,), np.array([2, 1, 3])),), ())

    def slowly(problem):
        time.sleep(0.02)
        return search_model(problem)

    monkeypatch.setattr(incumbent, "search_model", slowly)
    found = find_incumbent(problem, 0.01)
    assert found is not None
    assert found.value == 1
    assert find_incumbent(problem, 0.0) is None


@settings(max_examples=examples(100))
@given(structures(semirings=(MIN_SUM,)))
def test_factors_searched_by_key_give_what_dense_ones_give(structure):
    problem = make_problem(structure)
    expected = brute_force(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incumbent, "LARGEST_DENSE", 4)
        patch.setattr(incumbent, "LARGEST_INDEX", structure["seed"] % 2 * (1 << 62))
        found = find_incumbent(problem, PLENTY, seed=1, iterations=20_000)
    assert (found is None) == (expected is None)
    assert found is None or is_same(problem, found.value, expected)


def test_a_value_that_a_capacity_has_no_room_for_is_no_way_out():
    """The second variable's cheapest value is in no conflict, but it consumes too much."""
    cost = Function.from_array((0, 1), [[4, 1, 0]])
    linear = LinearConstraint((0, 1), (np.array([2]), np.array([1, -2, 3])), 4, "capacity")
    problem = Problem((Variable("x", 1), Variable("y", 3)), (cost,), (), (linear,))
    found = find_incumbent(problem, PLENTY, seed=0, iterations=500)
    assert (found.value, found.assignment) == (1, (0, 1))


def packing(seed, count=40, capacity=None):
    """Photographs that may be left out at a cost, in conflict by pairs and triples, with a recorder's capacity."""
    random = np.random.default_rng(seed)
    variables = tuple(Variable(f"p{v}", 3) for v in range(count))
    weights = random.integers(1, 20, size=count)
    functions = tuple(Function((v,), [[0]], [int(w)], 0) for v, w in enumerate(weights))
    constraints = []
    for _ in range(3 * count):
        scope = tuple(random.choice(count, size=random.integers(2, 4), replace=False).tolist())
        tuples = np.unique(random.integers(1, 3, size=(3, len(scope))), axis=0)
        constraints.append(Constraint(scope, tuples))
    linear = ()
    if capacity is not None:
        coefficients = tuple(np.array([0, *random.integers(1, 5, size=2)]) for _ in range(count))
        linear = (LinearConstraint(tuple(range(count)), coefficients, capacity, "recorder capacity"),)
    return Problem(variables, functions, tuple(constraints), linear, name=f"packing {seed}")


def test_iterations_and_seed_decide_the_result():
    problem = packing(1)
    runs = [find_incumbent(problem, PLENTY, seed=5, iterations=500) for _ in range(2)]
    assert runs[0] == runs[1]
    assert len({find_incumbent(problem, PLENTY, seed=s, iterations=3).assignment for s in range(8)}) > 1


@pytest.mark.parametrize("capacity", [0, 7, 30])
def test_capacity_is_respected(capacity):
    problem = packing(2, capacity=capacity)
    found = find_incumbent(problem, PLENTY, iterations=3000)
    assert problem.linear_constraints[0].consumption(found.assignment) <= capacity
    assert found.value == problem.evaluate(found.assignment)
    free = find_incumbent(replace(problem, linear_constraints=()), PLENTY, iterations=3000)
    assert free.value < found.value


def test_an_assignment_of_another_solver_is_never_lost():
    problem = packing(3)
    best = find_incumbent(problem, PLENTY, iterations=5000)
    search = LocalSearch(problem, 1)
    search.take(best.value, best.assignment)
    assert search.run(0.0) == replace(best, method="given")
    assert search.run(PLENTY, iterations=1).value <= best.value


def test_without_time_there_is_no_search():
    assert find_incumbent(packing(5), 0.0) is None


def test_only_semirings_that_select_a_sum():
    with pytest.raises(UnsupportedError, match="counting"):
        find_incumbent(packing(1).in_semiring(COUNTING), 1.0)


def test_colouring_without_safe_values():
    """Every value of every variable is in a conflict: violated constraints must be weighted, not repaired."""
    size, colours = 30, 4
    different = [[c, c] for c in range(colours)]
    random = np.random.default_rng(7)
    hidden = random.integers(colours, size=size)
    pairs = [(u, v) for u in range(size) for v in range(u) if hidden[u] != hidden[v] and random.random() < 0.3]
    problem = Problem(
        tuple(Variable(f"v{v}", colours) for v in range(size)),
        constraints=tuple(Constraint(pair, different) for pair in pairs),
        name="colouring",
    )
    found = find_incumbent(problem, PLENTY, iterations=200_000)
    assert found.value == 0


def test_a_large_colouring_is_not_perturbed_before_it_can_be_feasible():
    """Perturbations after each hundred iterations moved more variables than the search had repaired."""
    size, colours, random = 2500, 3, np.random.default_rng(800)
    pairs = {tuple(sorted(random.choice(size, 2, replace=False).tolist())) for _ in range(2 * size)}
    same = [[c, c] for c in range(colours)]
    problem = Problem(
        tuple(Variable(f"v{v}", colours) for v in range(size)),
        constraints=tuple(Constraint(pair, same) for pair in sorted(pairs)),
    )
    assert find_incumbent(problem, PLENTY, iterations=40_000) is not None


def linked(seed, count):
    """Variables with costs of pairs, one in two of which forbids what it does not list."""
    random = np.random.default_rng(seed)
    functions = []
    for _ in range(2 * count):
        pair = random.choice(count, size=2, replace=False)
        values, default = random.integers(0, 9, size=(3, 3)), None if random.random() < 0.5 else 0
        listed = np.argwhere(random.random((3, 3)) < 0.8)
        functions.append(Function(pair.tolist(), listed, values[tuple(listed.T)], default))
    return Problem(tuple(Variable(f"v{v}", 3) for v in range(count)), tuple(functions), ())


@pytest.mark.parametrize("problem", [packing(4, count=70), linked(4, 70)], ids=["packing", "linked"])
@pytest.mark.parametrize("iterations", [1, 7, 40, 300])
def test_kept_moves_are_those_of_all_slots(problem, iterations):
    search = LocalSearch(problem, 3)
    assert search._settings.keeps
    search.run(PLENTY, iterations=iterations)
    model, state = search._model.model, search._state
    *_, least = interpreted(_best_move)(model, state)
    for _ in range(5):
        v, b, change = interpreted(_best_kept_move)(model, state)
        slot, current = model.start[v] + b, model.start[v] + state.values[v]
        parts = (model.unary, state.cost, state.conflict)
        assert (change, change) == pytest.approx((least, sum(part[slot] - part[current] for part in parts)))
