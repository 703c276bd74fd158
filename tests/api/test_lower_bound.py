"""A lower bound of sums to maximise: every verb counts the assignments above it only, or refuses by name."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

import oocbe
from oocbe.errors import UnsupportedError
from tests.helpers.effort import examples


def random_problem(seed: int, integral: bool) -> oocbe.Problem:
    """Sums of both signs over four variables, with a bound somewhere among them."""
    random = np.random.default_rng(seed)
    variables = tuple(oocbe.Variable(f"x{v}", int(random.integers(2, 4))) for v in range(4))
    functions = []
    for _ in range(int(random.integers(1, 6))):
        scope = tuple(random.choice(4, size=int(random.integers(1, 4)), replace=False).tolist())
        values = random.integers(-9, 10, size=[variables[v].size for v in scope])
        functions.append(oocbe.Function.from_array(scope, values if integral else values / 8))
    bound = int(random.integers(-15, 25))
    return oocbe.Problem(
        variables,
        tuple(functions),
        constant=int(random.integers(-5, 6)) if integral else 0.25,
        semiring=oocbe.MAX_SUM,
        lower_bound=bound if integral else bound / 8,
    )


def sums_above(problem: oocbe.Problem) -> dict[tuple[int, ...], float]:
    """Assignments that count, by hand."""
    found = {}
    for row in itertools.product(*map(range, problem.sizes)):
        total = problem.constant + sum(f.value_at(row) for f in problem.functions)
        if total > problem.lower_bound:
            found[row] = total
    return found


@pytest.mark.parametrize("integral", [True, False])
@pytest.mark.parametrize("seed", range(examples(80)))
def test_every_verb_counts_what_is_above_it(seed, integral):
    problem = random_problem(seed, integral)
    known = sums_above(problem)
    assert {
        row: value
        for row in itertools.product(*map(range, problem.sizes))
        if (value := problem.evaluate(row)) is not None
    } == known
    best = max(known.values(), default=None)
    for options in ({"order_seconds": 0}, {"order_seconds": 0, "bounds": "none"}):
        result = oocbe.solve(problem, **options)
        assert (result.status, result.value) == ("infeasible" if best is None else "optimal", best)
        if best is not None:
            assert known[result.assignment] == best
            assert oocbe.verify(problem, result).accepted
    optimal = oocbe.count_optimal(problem, order_seconds=0)
    assert optimal.value == sum(value == best for value in known.values())
    found = oocbe.k_best(problem, 5, order_seconds=0)
    assert [value for value, _ in found.assignments] == sorted(known.values(), reverse=True)[:5]
    for entry in oocbe.bound(problem, [2, 4], order_seconds=0).entries:
        assert best is None or entry.bound >= best
        assert entry.incumbent is None or known[entry.assignment] == entry.incumbent
        assert entry.status != "infeasible" or best is None
    for verb, expected in (
        (oocbe.count, len(known)),
        (oocbe.log_partition, math.log(sum(map(math.exp, known.values()))) if known else -math.inf),
    ):
        try:
            assert verb(problem, order_seconds=0).value == pytest.approx(expected)
        except UnsupportedError as error:
            assert f"above its lower bound of {problem.lower_bound} count" in str(error)


def test_what_cannot_reach_the_bound_alone_is_told_apart():
    """One function: every value is on one side."""
    function = oocbe.Function.from_array((0,), [5, 1, -3])
    problem = oocbe.Problem((oocbe.Variable("x", 3),), (function,), semiring=oocbe.MAX_SUM, lower_bound=0)
    assert oocbe.count(problem, order_seconds=0).value == 2
    values = oocbe.min_marginals(problem, order_seconds=0).marginals[0]
    assert values.tolist()[:2] == [5, 1]
    assert math.isnan(values[2])


def test_other_semirings_refuse_what_they_cannot_tell_apart():
    problem = random_problem(0, True)
    with pytest.raises(UnsupportedError, match="above its lower bound"):
        oocbe.solve(problem, semiring="min-sum", order_seconds=0)
    with pytest.raises(UnsupportedError, match="lower bound has a meaning in max-sum only"):
        oocbe.count(problem, semiring="min-sum", order_seconds=0)


def test_a_violated_lower_bound_is_named():
    function = oocbe.Function.from_array((0,), [5, 1])
    problem = oocbe.Problem((oocbe.Variable("x", 2),), (function,), semiring=oocbe.MAX_SUM, lower_bound=1)
    verdict = oocbe.verify(problem, {"x": 1})
    assert verdict.violations == ("value 1 is not above the lower bound 1",)
    assert problem.below(None).evaluate([1]) == 1
    forbidden = oocbe.Constraint((0,), np.array([[0]]))
    left = oocbe.propagate(dataclasses.replace(problem, constraints=(forbidden,))).reduced
    assert (left.sizes, left.lower_bound) == ((1,), 1)
