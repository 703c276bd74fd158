"""Floats that are whole numbers of a step are solved as integers, and told about as floats."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import oocbe
from oocbe.api.solving.strategies import IntegerScaling
from oocbe.elimination.reformulation import Stack
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM
from oocbe.model.settings.options import SolveOptions
from tests.helpers.bound_problems import anything, optimum
from tests.helpers.effort import examples

AUTO = SolveOptions()
PAIR = tuple(Variable(name, 2) for name in "ab")


def stretched(problem: Problem, step: float) -> Problem:
    """A problem of integers with every value so many times as large, as floats."""
    functions = [
        Function(f.scope, f.tuples, f.values * step, None if f.default is None else f.default * step)
        for f in problem.functions
    ]
    top = problem.upper_bound
    return replace(
        problem,
        functions=tuple(functions),
        constant=problem.constant * step,
        upper_bound=None if top is None else top * step,
    )


@pytest.mark.parametrize("step", [1.0, 0.75, 2.0**-20, 1536.0])
def test_the_optimum_is_that_of_the_integers_times_the_step(step):
    solved = 0
    for seed in range(examples(120)):
        whole = anything(seed)
        if not whole.is_integral:
            continue
        floats = stretched(whole, step)
        steps = IntegerScaling.of(floats)
        if steps.problem is floats:  # sums too large to be exact
            assert sum(float(np.abs(f.values).max(initial=0)) for f in floats.functions) > 2.0**20
            continue
        solved += 1
        assert steps.problem.is_integral
        best, result = optimum(whole), oocbe.solve(floats)
        assert result.value == (best * step if math.isfinite(best) else None)
        assert result.value is None or isinstance(result.value, float)
        assert result.value is None or floats.evaluate(result.assignment) == result.value == result.bound
    assert solved > 10


def test_greatest_sums_gaps_and_upper_bounds_mean_what_they_say():
    f = Function((0, 1), [[0, 0], [0, 1], [1, 0], [1, 1]], [2.5, 4.0, 10.5, 1.0])
    least = Problem(PAIR, (f,), constant=0.5)
    assert oocbe.solve(replace(least, semiring=MAX_SUM)).value == 11.0
    assert oocbe.solve(least).value == 1.5
    assert oocbe.solve(least, ub=1.6).value == 1.5
    nothing = oocbe.solve(least, ub=1.3)
    assert (nothing.status, nothing.bound) == ("nothing-better", 1.3)
    assert oocbe.solve(least, ub=-1e307).status == "nothing-better"
    assert oocbe.solve(least, ub=1e308).value == 1.5
    steps = IntegerScaling.of(least)
    options = steps.options(replace(AUTO, ub=1.3, gap=replace(AUTO.gap, absolute=2.0)))
    assert isinstance(steps, IntegerScaling)
    assert (steps.step, options.ub, options.gap.absolute) == (0.5, 3, 4.0)
    assert [value.item() for value in steps.problem.functions[0].values] == [5, 8, 21, 2]


def test_reports_are_in_floats():
    reported = []
    problem = stretched(anything(3), 0.25) if anything(3).is_integral else stretched(anything(4), 0.25)
    steps = IntegerScaling.of(problem)
    report = Stack(problem).then(steps).report(lambda bound, value, *_: reported.append((bound, value)))
    report(3, None, "a bound", None)
    assert isinstance(steps, IntegerScaling)
    assert reported == [(3 * steps.step, None)]


def test_products_integers_and_floats_without_a_step_stay():
    values = [[0, 0], [1, 1]]
    numbers = ([1, 2], [0.1, 2.0], [1.0, 2.0**32])
    stay = [Problem(PAIR, (Function((0, 1), values, own),)) for own in numbers]
    stay.append(Problem(PAIR, (Function((0, 1), values, [0.5, 2.0]),), semiring=MAX_PRODUCT))
    for problem in stay:
        assert IntegerScaling.of(problem).problem is problem
    zeros = Problem(PAIR, (Function((0, 1), values, [0.0, 0.0]),))
    assert oocbe.solve(zeros).value == 0.0
