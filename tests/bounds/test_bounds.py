"""Bounds of every source against brute force: at the root, for each row of random messages, for fixed values."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from oocbe.bounds.bounds import BoundSources
from oocbe.errors import TimeLimitError, UnsupportedError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM
from tests.helpers.bound_problems import (
    anything,
    check_message,
    costly_photographs,
    optimum,
    photographs,
    random_message,
)
from tests.helpers.bound_sources import bound_sources
from tests.helpers.effort import examples
from tests.helpers.small_problems import all_values

MESSAGES = 4


def check_all(problem: Problem, seed: int) -> dict[str, tuple[float, float]]:
    """Check everything that the sources of a problem say; returns root bound and optimum by source."""
    best = optimum(problem)
    found = {}
    for source in bound_sources(problem, 1.0, seed):
        # A floating-point optimum is itself a rounded sum: the margin is what keeps the bound below it.
        assert source.root <= best, (problem.name, source.name)
        found[source.name] = (source.root, best)
        for number in range(MESSAGES):
            check_message(problem, source, *random_message(problem, 100 * seed + number))
        total, counts = all_values(problem)
        below = best + 1 + (seed % 3) if best < math.inf else 10
        for v, value in source.fixed_values(below):
            assert not (counts & (total < below)).take(value, axis=v).any(), (problem.name, source.name, v, value)
    return found


@pytest.mark.parametrize("first", range(0, 50, 25))
def test_bounds_of_photographs_hold(first):
    tight = 0
    for seed in range(first, first + 12):
        found = check_all(photographs(seed), seed)
        tight += max(root for root, _ in found.values()) == found["constant"][1]
    assert tight >= 10  # local cuts over everything close problems as small as these; a broken source would not


def test_a_time_limit_leaves_what_the_linear_program_has_given(monkeypatch):
    from oocbe.bounds.relaxation import Relaxation

    def ends(made, *given):
        raise TimeLimitError("the time limit was reached")

    monkeypatch.setattr(Relaxation, "_cut", ends)
    raised = 0
    for seed in range(20):
        problem = photographs(seed)
        found = {source.name: source.root for source in bound_sources(problem, 1.0, seed)}
        if found["constant"] < math.inf and "lp" in found:
            assert found["lp"] <= optimum(problem)
            raised += found["lp"] > found["constant"]
    assert raised > 5


@pytest.mark.parametrize("first", range(0, 50, 25))
def test_bounds_of_photographs_with_costly_conflicts_hold(first):
    better = 0
    for seed in range(first, first + 12):
        found = check_all(costly_photographs(seed), seed)
        better += found.get("lp", (-math.inf, 0))[0] > found["constant"][0]
    assert better >= 6


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_bounds_of_anything_hold(first):
    better = 0
    for seed in range(first, first + 20):
        found = check_all(anything(seed), seed)
        better += max(root for root, _ in found.values()) > found["constant"][0]
    assert better >= 2


@pytest.mark.parametrize("make", [photographs, anything])
def test_bounds_hold_below_an_assignment_found_on_the_way(make):
    found = closed = 0
    for seed in range(7000, 7030):
        problem = make(seed)
        for source in bound_sources(problem, 1.0, seed, improve=True):
            if source.assignment is None:
                continue
            found += 1
            value = problem.evaluate(source.assignment)
            assert value is not None
            better = replace(problem, upper_bound=value)
            closed += source.root >= value
            assert source.root <= optimum(better)
            for number in range(MESSAGES):
                check_message(better, source, *random_message(problem, 100 * seed + number))
    assert found >= 5
    assert closed >= found // 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("make", [photographs, costly_photographs, anything])
def test_bounds_of_many_problems_hold(make):
    for seed in range(1000, 6000):
        check_all(make(seed), seed)


@pytest.mark.parametrize("make", [photographs, costly_photographs, anything])
def test_steps_continue_where_the_last_one_ended(make):
    longer = 0
    for seed in range(20):
        problem = make(seed)
        best, sources = optimum(problem), BoundSources(problem, seed)
        roots = [max(source.root for source in sources.improved(1e-4)) for _ in range(3)]
        longer += not sources.is_over
        last = sources.improved(1.0)
        roots.append(last[0].root)
        assert roots[-1] <= best
        assert roots == sorted(roots)
        for source in last:
            check_message(problem, source, *random_message(problem, seed))
        if sources.is_over:
            assert sources.improved(1.0)[0].root == roots[-1]
    assert longer


@pytest.mark.parametrize("seed", range(examples(80)))
def test_upper_bound_at_the_optimum_proves_it(seed):
    problem = replace(photographs(seed), upper_bound=None)
    best = optimum(problem)
    if best == math.inf:
        return
    sources = bound_sources(problem, 1.0, seed, upper_bound=best)
    assert sources[0].root >= best
    assert bound_sources(problem, 1.0, seed, upper_bound=best + 1)[0].root <= best


def test_values_above_the_upper_bound_do_not_hide_conflicts():
    """A choice between two warehouses: values dearer than the bound are gone, the conflicts of the others stay."""
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate((2, 2, 4, 4)))
    functions = [Function.from_array((w,), [0, 6]) for w in range(2)]
    functions += [Function.from_array((s,), [1, 2, 99, 99]) for s in (2, 3)]
    closed = [Constraint((w, s), [[0, w]]) for w in range(2) for s in (2, 3)]
    problem = Problem(variables, tuple(functions), tuple(closed), upper_bound=20)
    assert {source.name: source.root for source in bound_sources(problem, 1.0)} == {"lp": 8, "constant": 2}


def test_nothing_to_bound():
    source = bound_sources(Problem((), constant=4), 1.0)[0]
    assert source.root == 4
    assert source.for_message(0, ()).constant == 4 * source.for_message(0, ()).scale


def test_infeasible_problems_have_no_finite_bound():
    x = (Variable("x", 2), Variable("y", 2))
    assert bound_sources(Problem(x, constraints=(Constraint((0,), [[0], [1]]),)), 1.0)[0].root == math.inf
    assert bound_sources(Problem(x, functions=(Function((0, 1), np.zeros((0, 2)), []),)), 1.0)[0].root == math.inf
    conflicts = [Constraint((0, 1), [[a, b]]) for a in range(2) for b in range(2)]
    assert bound_sources(Problem(x, constraints=tuple(conflicts)), 1.0)[0].root == math.inf


def test_more_values_than_a_linear_program_takes():
    problem = Problem(
        (Variable("x", 5000), Variable("y", 4000)),
        (Function((0,), [[3]], [4], 7),),
        (Constraint((0, 1), [[3, 0]]),),
    )
    sources = bound_sources(problem, 1.0)
    assert [(source.name, source.root) for source in sources] == [("constant", 4)]
    assert "9,000 values of variables are more than" in sources[0].why


def test_other_semirings_are_refused():
    with pytest.raises(UnsupportedError, match="min-sum semiring only"):
        bound_sources(Problem((Variable("x", 2),), semiring=MAX_SUM), 1.0)


def test_large_costs_keep_within_64_bits():
    big = 2**58
    functions = (
        Function((0,), [[0]], [big], 0),
        Function((1,), [[0]], [big], 0),
        Function((0, 1), [[1, 1]], [big], 0),
    )
    problem = Problem((Variable("x", 2), Variable("y", 2)), functions)
    for source in bound_sources(problem, 1.0):
        bound = source.for_message(1, (1,))
        assert bound.scale == 1
        assert source.root <= big


def test_values_of_a_grid():
    function = Function((0,), [[0], [1]], [6, 16], 1)
    grid = Problem((Variable("x", 3),), (function,), constant=2).value_grid
    assert (grid.step, grid.round_up(9), grid.largest_below(8), grid.largest_below(8.5)) == (5, 13, 3, 8)
    assert Problem((Variable("x", 1),), constant=3).value_grid.round_up(2.5) == 3
    assert Problem((), constant=0.5).value_grid.round_up(2.5) == 2.5


def test_without_highs_the_other_sources_remain(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    for module in ("oocbe.bounds.relaxation", "oocbe.bounds.linear_program"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    sources = bound_sources(photographs(2), 1.0)
    assert [source.name for source in sources] == ["constant"]
    assert "highspy cannot be loaded" in sources[0].why
