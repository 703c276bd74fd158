"""Join graphs of logarithms: bounds and estimates, compared with enumeration."""

import itertools
import math

import numpy as np
import pytest

from oocbe.bounds.mini_buckets.log_join_graph import LogJoinGraph
from oocbe.elimination.preparation.temperature import at_temperature
from oocbe.errors import ResourceError, TimeLimitError, UnsupportedError
from oocbe.model.parts import Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import SUM_PRODUCT
from oocbe.runtime.deadline import Deadline
from tests.helpers.effort import examples
from tests.helpers.small_networks import random_product

ROOM = 1 << 24
WHOLE = 1 << 30


def weights_of(problem):
    """Weight of every assignment, an axis for each variable."""
    found = np.zeros(problem.sizes)
    for assignment in itertools.product(*map(range, problem.sizes)):
        found[assignment] = problem.evaluate(assignment) or 0.0
    return found


def log(x):
    return math.log(x) if x > 0 else -math.inf


def marginals_of(weights):
    axes = range(weights.ndim)
    return [weights.sum(axis=tuple(a for a in axes if a != v)) / weights.sum() for v in axes]


@pytest.mark.parametrize("seed", range(examples(48)))
def test_without_divided_buckets_all_is_exact(seed):
    random = np.random.default_rng(seed)
    problem = random_product(random, zeros=(0.0, 0.3)[seed % 2])
    weights = weights_of(problem)
    order = random.permutation(len(problem.sizes)).tolist()
    graph = LogJoinGraph(at_temperature(problem, 1.0), order, WHOLE, ROOM)
    assert not graph.is_divided
    assert graph.bound() == pytest.approx(log(weights.sum()), abs=1e-9)
    assert graph.bound(is_upper=False) == pytest.approx(log(weights.sum()), abs=1e-9)
    graph.propagate(1)
    assert graph.estimate == pytest.approx(log(weights.sum()), abs=1e-9)
    if weights.sum() > 0:
        for own, expected in zip(graph.marginals(), marginals_of(weights), strict=True):
            assert own == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(examples(80)))
@pytest.mark.parametrize("cells", [1, 6])
def test_bounds_contain_the_sum_before_and_after_propagation(seed, cells):
    random = np.random.default_rng(seed)
    problem = random_product(random, variables=7, zeros=(0.0, 0.2)[seed % 2])
    exact = log(weights_of(problem).sum())
    graph = LogJoinGraph(at_temperature(problem, 1.0), range(7), cells, ROOM)
    for _ in range(2):
        assert graph.bound(is_upper=False) <= exact + 1e-9
        assert graph.bound() >= exact - 1e-9
        graph.propagate(3, damping=0.2)


@pytest.mark.parametrize("seed", range(examples(48)))
def test_maximised_variables(seed):
    random = np.random.default_rng(seed)
    problem = random_product(random, zeros=0.1)
    weights = weights_of(problem)
    maximised = {3, 4, 5}
    sums = weights.sum(axis=(0, 1, 2))
    energies = at_temperature(problem, 1.0)
    bound, chosen = LogJoinGraph(energies, range(6), WHOLE, ROOM, maximised).best_values()
    assert bound == pytest.approx(log(sums.max()), abs=1e-9)
    if sums.max() > 0:
        assert sums[tuple(chosen.get(v, 0) for v in sorted(maximised))] == pytest.approx(sums.max())
    divided, _ = LogJoinGraph(energies, range(6), 1, ROOM, maximised).best_values()
    assert divided >= log(sums.max()) - 1e-9


def test_a_loop_of_equal_strong_couplings_is_estimated_closely():
    coupling = np.array([[1.2, 1.0], [1.0, 1.2]])
    problem = random_product(np.random.default_rng(0), variables=4)
    from dataclasses import replace

    loop = replace(
        problem,
        variables=tuple(Variable(f"v{i}", 2) for i in range(4)),
        functions=tuple(Function.from_array((i, (i + 1) % 4), coupling) for i in range(4)),
        constraints=(),
        constant=1.0,
    )
    exact = log(weights_of(loop).sum())
    graph = LogJoinGraph(at_temperature(loop, 1.0), range(4), 4, ROOM)
    assert graph.is_divided
    assert graph.propagate(100) < 1e-4
    assert graph.estimate == pytest.approx(exact, abs=1e-3)
    assert all(own == pytest.approx([0.5, 0.5]) for own in graph.marginals())


def test_a_cluster_that_becomes_zero_sends_nothing():
    """Its messages were -inf less -inf: beliefs and estimates were no numbers."""
    functions = (((0, 1), np.eye(2)), ((0,), [1.0, 0.0]), ((1,), [0.0, 1.0]), ((1, 2), np.ones((2, 2))))
    problem = Problem(
        tuple(Variable(f"v{i}", 2) for i in range(3)),
        tuple(Function.from_array(*own, infeasible=0.0) for own in functions),
        semiring=SUM_PRODUCT,
    )
    for cells in (WHOLE, 2):
        graph = LogJoinGraph(at_temperature(problem, 1.0), range(3), cells, ROOM)
        graph.propagate(2)
        assert graph.estimate == -math.inf
        assert all(own.sum() == pytest.approx(1.0) for own in graph.marginals())


def test_loops_that_a_deadline_ends_give_no_marginals():
    """They were read from memory that was never written; ``oocbe uai`` printed them beside an exact value."""
    graph = LogJoinGraph(at_temperature(random_product(np.random.default_rng(1)), 1.0), range(6), WHOLE, ROOM)
    graph.propagate(1)
    with Deadline(0.0), pytest.raises(TimeLimitError):
        graph.marginals()


def test_limits_and_constraints_are_refused():
    problem = at_temperature(random_product(np.random.default_rng(1)), 1.0)
    with pytest.raises(ResourceError, match="do not fit"):
        LogJoinGraph(problem, range(6), WHOLE, 8)
    from dataclasses import replace

    linear = LinearConstraint((0,), (np.arange(problem.sizes[0]),), 0, "weight", 0)
    with pytest.raises(UnsupportedError, match="linear"):
        LogJoinGraph(replace(problem, linear_constraints=(linear,)), range(6), WHOLE, ROOM)
