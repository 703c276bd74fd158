"""Cost shifting over the join graph of mini-buckets: no sum changes, bounds only rise, and none is too high."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.bounds.mini_buckets import mini_buckets_complete
from oocbe.bounds.mini_buckets.mini_buckets_complete import JoinGraph, best_of_rising
from oocbe.bounds.row_tables import ScaledCosts, ScopeTables
from oocbe.errors import ResourceError, TimeLimitError
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.stress import grid_network, random_network
from tests.helpers.effort import examples
from tests.helpers.small_problems import brute_force, make_problem, structures

MEMORY = 1 << 24
WAYS = st.sampled_from([None, 3.0, 10.0])
DTYPES = st.sampled_from([np.int32, np.int64])


def graph_of(problem, z, temperature=10.0, dtype=np.int32, threshold=None, memory=MEMORY):
    tables = ScopeTables.of(problem)
    costs = ScaledCosts.of(tables, threshold, np.dtype(dtype))
    return costs, JoinGraph(costs, range(len(problem.variables)), z, memory, 0, temperature)


@settings(max_examples=examples(150))
@given(structures((MIN_SUM,)), st.integers(1, 6), WAYS, DTYPES, st.booleans())
def test_bounds_rise_and_stay_below_the_optimum(structure, z, temperature, dtype, is_below):
    """With a threshold, only assignments below it are bounded: the bound is then infinite where there is none."""
    problem = make_problem(structure)
    expected = brute_force(problem)
    limit = expected if expected is not None and is_below else None
    _, graph = graph_of(problem, z, temperature, dtype, limit)
    known = graph.proven
    for _ in range(4):
        if not graph.is_closed:
            graph.back()
            graph.forth()
        assert graph.proven >= known
        known = graph.proven
        if expected is not None:
            assert graph.bound == math.inf if graph.is_closed else graph.bound <= expected
            assert limit is not None or not graph.is_closed
    if limit is not None and problem.is_integral and z >= len(problem.variables):
        assert graph.is_closed


def test_no_sum_changes():
    problem = random_network(6, 3, 0.7, tightness=0.2, seed=3)
    costs, graph = graph_of(problem, 2)
    sizes = problem.sizes

    def total(assignment):
        return graph.proven + sum(c.table.at(assignment, sizes) for c in graph.clusters)

    for _ in range(3):
        for values in product(*(range(n) for n in sizes)):
            value, assignment = problem.evaluate(values), dict(enumerate(values))
            if value is None:
                assert total(assignment) >= costs.cap
            else:
                assert total(assignment) == (value - costs.tables.least) * 2**costs.bits
        graph.back()
        graph.forth()


def test_what_was_divided_is_made_good():
    """On a star each mini-bucket has its own centre: shifting is then as good as elimination, in one pass."""
    generator = np.random.default_rng(4)
    tables = [generator.integers(0, 50, size=(4, 4)) for _ in range(3)]
    functions = tuple(Function.from_array((0, i + 1), t) for i, t in enumerate(tables))
    problem = Problem(tuple(Variable(n, 4) for n in "xabc"), functions, name="star")
    _, graph = graph_of(problem, 2)
    assert graph.is_divided
    assert graph.bound == brute_force(problem)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_dtypes_differ_by_rounding(dtype):
    problem = grid_network(5, 3, tightness=0.2, seed=3)
    _, graph = graph_of(problem, 3, dtype=dtype)
    assert abs(graph.bound - graph_of(problem, 3, dtype=np.int64)[1].bound) <= 1


def test_a_problem_of_no_use_is_closed_at_once():
    nothing = Problem((Variable("x", 2),), (Function((0,), np.zeros((0, 1), int), np.zeros(0, int)),), name="nothing")
    assert graph_of(nothing, 2)[1].is_closed
    assert graph_of(grid_network(3, 2), 2, threshold=-1)[1].is_closed
    assert graph_of(Problem((), constant=3), 2)[1].bound == 3


def test_tables_beyond_the_memory_are_refused():
    problem = random_network(14, 4, 1.0, tightness=0.0, seed=0)
    with pytest.raises(ResourceError, match=r"z = 3 do not fit memory; .* limit .*Lower --z"):
        graph_of(problem, 3, memory=1 << 10)


def test_seeds_and_threads_do_not_matter(monkeypatch):
    problem = random_network(12, 4, 0.6, tightness=0.1, seed=2)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("OOCBE_THREADS", threads)
        _, graph = graph_of(problem, 8)
        graph.back()
        graph.forth()
        found.append((graph.proven, [c.table.values.tobytes() for c in graph.clusters]))
    assert found[0] == found[1]


def test_z_rises_while_that_gains():
    def chosen(bounds, most=99, error=None):
        tried = []

        def run(z):
            tried.append(z)
            if error is not None and z > 3:
                raise error
            return bounds[z], 0.1

        return best_of_rising(run, lambda z: z <= most, 2, Deadline()), tried

    bounds = {2: 0.0, 4: 10.0, 6: 9.0, 8: 12.0, 10: 12.1, 12: 12.2, 14: 50.0}
    assert chosen(bounds) == (12, [2, 4, 6, 8, 10, 12])
    assert chosen(bounds, most=6) == (4, [2, 4, 6])
    assert chosen(bounds, error=ResourceError("full")) == (2, [2, 4])


def test_what_is_proven_stays_when_time_is_up(monkeypatch):
    """At whichever look of all passes the limit comes; before the first pass is done, the bound is that of minima."""
    problem = random_network(7, 3, 0.8, tightness=0.1, seed=5)
    optimum = brute_force(problem)
    options = SolveOptions(order_seconds=0.0, backend="cpu", incumbent_seconds=0.0)
    looks = []
    monkeypatch.setattr(mini_buckets_complete, "check_deadline", lambda: looks.append(len(looks)))
    whole = oocbe.bound(problem, 3, options, cost_shifting=True).entries[0]
    count = len(looks)

    def found(last):
        left = iter(range(last))

        def look():
            if next(left, None) is None:
                raise TimeLimitError("the time limit was reached")

        monkeypatch.setattr(mini_buckets_complete, "check_deadline", look)
        return oocbe.bound(problem, 3, options, cost_shifting=True)

    results = [found(last) for last in range(0, count, 16)]
    first = next(number for number, result in enumerate(results) if result.entries[0].z)
    assert 0 < first < len(results) / 3
    assert all(result.entries[0].z for result in results[first:])
    assert all(result.entries[0].bound <= whole.bound for result in results[:first])
    entries = [result.entries[0] for result in results[first:]]
    assert all(entry.bound <= whole.bound <= optimum for entry in entries)
    assert all(entry.incumbent is None or entry.incumbent >= optimum for entry in entries)
    assert entries[0].bound < whole.bound
    assert "until the time was up" in results[-1].notes[0]


def test_bound_says_what_was_done():
    problem = random_network(14, 4, 0.6, tightness=0.0, seed=1)
    options = SolveOptions(order_seconds=0.0, backend="cpu", incumbent_seconds=0.05)
    plain = oocbe.bound(problem, 3, options)
    found = oocbe.bound(problem, [3, "auto"], options, cost_shifting=True)
    assert plain.best_bound.bound < found.entries[0].bound <= found.best.incumbent
    assert "complete tables of int64; costs were shifted in" in found.notes[0]
