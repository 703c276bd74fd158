"""Greatest products are searched for among sums of logarithms where elimination is not over in a moment."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import oocbe
from oocbe.api.solving import strategies
from oocbe.api.solving.strategies import UNBOUNDED, prefers_logarithms
from oocbe.elimination.preparation.logarithms import Logarithms
from oocbe.model.semiring import MAX_PRODUCT, SUM_PRODUCT
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime import deadline
from tests.helpers.effort import examples
from tests.helpers.small_networks import random_product


@pytest.fixture
def always(monkeypatch):
    """Whatever an order promises."""
    monkeypatch.setattr(strategies, "FEW_ROWS", -1.0)


def product(seed: int):
    return replace(random_product(np.random.default_rng(seed)), semiring=MAX_PRODUCT)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", range(examples(160)))
def test_the_product_is_that_of_elimination(seed):
    problem = product(seed)
    result = oocbe.solve(problem, order_seconds=0)
    plain = oocbe.solve(problem, order_seconds=0, bounds="none")
    assert UNBOUNDED not in " ".join(plain.notes)
    assert (result.semiring, result.sense) == ("max-product", "max")
    if plain.value:
        assert result.status == plain.status == "optimal"
        assert result.value == pytest.approx(plain.value, rel=1e-12)
        assert problem.evaluate(result.assignment) == pytest.approx(result.value, rel=1e-12)


@pytest.mark.usefixtures("always")
def test_only_floats_that_are_multiplied_and_nothing_else_is_asked_for(tmp_path):
    problem, auto = product(1), SolveOptions()
    assert prefers_logarithms(problem, auto)
    assert prefers_logarithms(problem, SolveOptions(time_limit=1e-9))
    for changed in ({"order": "min-fill"}, {"bounds": "none"}, {"workdir": tmp_path}, {"tables": "complete"}):
        assert not prefers_logarithms(problem, SolveOptions(**changed))
    assert not prefers_logarithms(replace(problem, semiring=SUM_PRODUCT), auto)
    whole = oocbe.Function.from_array((0,), np.arange(problem.sizes[0]) + 1)
    assert not prefers_logarithms(replace(problem, functions=(whole,), constant=2), auto)
    negative = oocbe.Function.from_array((0,), -0.5 * np.ones(problem.sizes[0]))
    assert not prefers_logarithms(replace(problem, functions=(negative,)), auto)


@pytest.mark.usefixtures("always")
def test_a_result_says_why():
    result = oocbe.solve(product(1), order_seconds=0)
    assert result.notes[0].startswith(UNBOUNDED)


@pytest.mark.usefixtures("always")
def test_logarithms_are_made_within_the_time_limit(monkeypatch):
    """Those of tables of 20 million rows took 10 seconds after a limit of one."""
    original, seen = Logarithms.of, []

    def made(problem, why):
        seen.append(deadline.current())
        return original(problem, why)

    monkeypatch.setattr(Logarithms, "of", made)
    oocbe.solve(product(1), order_seconds=0, time_limit=600)
    assert 0 < seen[0].remaining <= 600


def test_what_elimination_ends_in_a_moment_stays_as_it_is():
    assert not prefers_logarithms(product(1), SolveOptions())


@pytest.mark.usefixtures("always")
def test_a_plan_is_that_of_the_sums():
    assert oocbe.plan(product(1), order_seconds=0).semiring == "min-sum"
    assert oocbe.plan(product(1), order_seconds=0, bounds="none").semiring == "max-product"


def test_a_part_of_a_product_as_a_gap_is_a_difference_of_logarithms():
    problem = product(1)
    for asked, expected in (("1%", math.log(1.01)), (0.5, 0.0), (0, 0.0)):
        logarithms = Logarithms.of(problem)
        options = logarithms.options(SolveOptions().with_overrides(gap=asked))
        assert logarithms.problem.semiring.name == "min-sum"
        assert options.gap.relative == 0
        assert options.gap.absolute == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("tolerance", [0.0, 1e-12])
def test_a_bound_is_no_less_than_what_its_logarithm_may_be_of(tolerance, monkeypatch):
    random = np.random.default_rng(0)
    rounded_down = 0
    for seed in range(30):
        problem = product(seed)
        plain = oocbe.solve(problem, order_seconds=0, bounds="none")
        if not plain.value:
            continue
        cost = -math.log(plain.value)
        limit = replace(plain, status="limit", value=cost, bound=cost - random.random() * tolerance)
        rounded_down += math.exp(-limit.bound) < plain.value
        monkeypatch.setattr("oocbe.elimination.preparation.logarithms.rounding_margin", lambda _, own=tolerance: own)
        found = Logarithms.of(problem, UNBOUNDED).result(limit)
        assert found.bound >= found.value > 0
        assert found.bound >= math.exp(-limit.bound + tolerance)
        assert found.bound == pytest.approx(found.value, rel=1e-9)
    assert rounded_down > 0 or tolerance


class Listening(oocbe.Observer):
    def __init__(self):
        self.known = []

    def bounds_changed(self, lower, value, why, assignment):
        self.known.append((lower, value, assignment))


@pytest.mark.usefixtures("always")
def test_an_observer_is_told_products(monkeypatch):
    monkeypatch.setattr("oocbe.api.solving.strategies.needs_no_bounds", lambda *_: False)
    told = 0
    for seed in range(12):
        problem, listening = product(seed), Listening()
        result = oocbe.solve(problem, order_seconds=0, incumbent_seconds=0.05, observer=listening)
        for bound, value, assignment in listening.known:
            assert bound is None or value is None or bound >= value
            assert bound is None or result.value is None or bound >= result.value * (1 - 1e-9)
            if assignment is not None:
                told += 1
                assert value == pytest.approx(problem.evaluate(assignment), rel=1e-9)
    assert told > 0
