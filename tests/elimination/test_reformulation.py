"""A stack maps assignments and values of its problem back to the original; counts skip entries that change them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import oocbe
from oocbe.api.solving.strategies import IntegerScaling
from oocbe.elimination.preparation.logarithms import Logarithms
from oocbe.elimination.reformulation import Negation, Stack, negated
from oocbe.errors import TimeLimitError
from oocbe.model.parts import Constraint
from oocbe.model.problem import Problem
from oocbe.model.results.progress_curve import PresolveStep
from oocbe.model.semiring import MAX_PRODUCT
from oocbe.model.settings.options import SolveOptions
from oocbe.propagation.propagated import presolved
from oocbe.runtime.deadline import Deadline
from tests.helpers.bound_problems import anything, costly_photographs
from tests.helpers.effort import examples
from tests.helpers.small_networks import random_product

AUTO = SolveOptions()


def values_of(problem: Problem) -> dict[tuple[int, ...], int | float]:
    """Value of every feasible assignment."""
    every = product(*map(range, problem.sizes))
    return {a: value for a in every if (value := problem.evaluate(a)) is not None}


def of_sums(seed: int) -> Stack:
    """Penalties, propagation, integers and negation, whichever apply."""
    problem = (anything, costly_photographs)[seed % 2](seed)
    problem = problem.below(None) if seed % 3 else negated(problem.below(None))
    stack = presolved(Stack(problem), AUTO)
    stack = stack.then(IntegerScaling.of(stack.problem))
    return stack.then(Negation.of(stack.problem))


def of_products(seed: int) -> Stack:
    """Propagation and logarithms."""
    stack = presolved(Stack(replace(random_product(np.random.default_rng(seed)), semiring=MAX_PRODUCT)), AUTO)
    return stack.then(Logarithms.of(stack.problem))


@pytest.mark.parametrize("make", [of_sums, of_products])
def test_assignments_have_their_values_in_the_original(make):
    depths = set()
    for seed in range(examples(60)):
        stack = make(seed)
        reported: list[tuple] = []
        depths.add(len(stack.entries))
        report = stack.report(lambda *event, own=reported: own.append(event))
        rewritten, given = values_of(stack.problem), values_of(stack.original)
        for assignment, value in rewritten.items():
            report(value, value, "a test", assignment)
        for bound, value, _, assignment in reported:
            assert bound == pytest.approx(value, rel=1e-9, abs=1e-9)
            assert value == pytest.approx(given[assignment], rel=1e-9, abs=1e-9)
        if rewritten:
            choose = max if stack.original.sense == "max" else min
            best = choose(value for _, value, _, _ in reported)
            assert best == pytest.approx(choose(given.values()), rel=1e-9, abs=1e-9)
        order = stack.lift_order(range(len(stack.problem.variables)))
        assert sorted(order) == list(range(len(stack.original.variables)))
    assert max(depths) > 1


def test_counts_skip_entries_that_change_them():
    skipped = 0
    for seed in range(examples(32)):
        problem = costly_photographs(seed).below(None)
        kept, lost = (presolved(Stack(problem, keeps_counts=keeps), AUTO) for keeps in (True, False))
        assert all(entry.keeps_counts for entry in kept.entries)
        assert len(values_of(kept.problem)) == len(values_of(problem))
        skipped += len(values_of(lost.problem)) < len(values_of(problem))
    assert skipped > 0


def scaled_and_fixed() -> oocbe.Problem:
    """Costs in halves over three variables of 2 values, of which x is fixed to 1 by a constraint."""
    x, y, z = (oocbe.Variable(name, 2) for name in "xyz")
    functions = [oocbe.Function.from_array(scope, [[0.5, 1.5], [2.5, 0.5]]) for scope in ((0, 1), (1, 2))]
    fixed = Constraint((0,), np.array([[0]]), allowed=False)
    return oocbe.Problem((x, y, z), tuple(functions), (fixed,))


def test_results_and_plans_name_the_entries_with_their_removals():
    problem = scaled_and_fixed()
    # x leaves with both values; its constraint and the listed rows of x = 0 leave, too.
    propagation = PresolveStep("propagation", 1, 2, 1, 3)
    assert str(propagation) == "propagation (1 variables, 2 values, 1 functions, 3 rows)"
    with_order = {"bounds": "none", "tables": "incomplete", "order_seconds": 0.0}
    result, plan = oocbe.solve(problem, **with_order), oocbe.plan(problem, **with_order)
    scaling = PresolveStep("integer scaling", 0, 0, 0, 0)
    assert result.presolve == plan.presolve == (propagation, scaling)
    assert plan.dtype == result.dtype == "int32"
    assert f"presolve removed: {propagation}, integer scaling" in str(plan)
    assert result.to_json()["presolve"] == plan.to_json()["presolve"] == [propagation._asdict(), scaling._asdict()]
    assert oocbe.count(problem).presolve == (propagation, PresolveStep("clauses", 2, 4, 0, 0))


def test_logarithms_of_mini_buckets_obey_the_time_limit():
    problem = replace(random_product(np.random.default_rng(0)), semiring=MAX_PRODUCT)
    with pytest.raises(TimeLimitError), Deadline(0.0):
        Logarithms.of(problem)
