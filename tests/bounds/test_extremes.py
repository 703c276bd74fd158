"""What is computed of all functions at once is what each of them says, one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oocbe.bounds.estimators import constant_source, minimum_terms
from oocbe.bounds.forbidden import cost_limits, removed_values
from oocbe.elimination.row_pruning.row_bounds import FixedPoint
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem, ValueGrid
from tests.helpers.effort import examples


def random_problem(seed: int) -> Problem:
    random = np.random.default_rng(seed)
    is_integral = bool(seed % 2)
    count = int(random.integers(1, 6))
    sizes = random.integers(1, 4, count).tolist()
    functions, constraints = [], []
    for _ in range(int(random.integers(0, 12))):
        scope = tuple(random.permutation(count)[: random.integers(0, min(count, 3) + 1)].tolist())
        shape = [sizes[v] for v in scope]
        tuples = np.argwhere(np.ones(shape, dtype=bool)) if scope else np.zeros((1, 0), dtype=int)
        keep = random.random(len(tuples)) < random.choice([0.0, 0.6, 1.0])
        if random.random() < 0.25:
            constraints.append(Constraint(scope, tuples[keep], bool(random.random() < 0.5)))
            continue
        values = random.integers(-9, 30, len(tuples)) * 3 if is_integral else random.normal(size=len(tuples)) * 4
        default = None if random.random() < 0.4 else (int(random.integers(-9, 9)) if is_integral else 0.25)
        functions.append(Function(scope, tuples[keep], values[keep], default))
    linear = ()
    if random.random() < 0.5:
        linear = (LinearConstraint((0,), (np.arange(sizes[0]),), int(random.integers(0, 3))),)
    bound = None if random.random() < 0.4 else (int(random.integers(-20, 60)) if is_integral else 7.5)
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    return Problem(variables, tuple(functions), tuple(constraints), linear, constant=2, upper_bound=bound)


def cheapest(f: Function, sizes: tuple[int, ...]) -> int | float:
    values, feasible = f.to_array(sizes)
    return values[feasible].min().item() if feasible.any() else math.inf


@pytest.mark.parametrize("seed", range(examples(1200)))
def test_all_functions_at_once_as_one_by_one(seed):
    problem = random_problem(seed)
    sizes, functions = problem.sizes, problem.functions
    listed = [[*f.values.tolist(), *([] if f.default is None else [f.default])] for f in functions]
    assert problem.extremes.least.tolist() == [min(own, default=0) for own in listed]
    assert problem.extremes.greatest.tolist() == [max(own, default=0) for own in listed]
    assert problem.magnitude == pytest.approx(2 + sum(max(map(abs, own), default=0) for own in listed))
    least = [cheapest(f, sizes) for f in functions]
    assert problem.least_values.tolist() == least
    if problem.is_integral:
        differences = [value - own[0] for own in listed for value in own]
        assert problem.value_grid == ValueGrid(
            math.gcd(*differences) or 1, 2 + sum(min(f.values.tolist(), default=f.default or 0) for f in functions)
        )


@pytest.mark.parametrize("seed", range(examples(1200)))
def test_removed_values_and_minima_as_one_by_one(seed):
    problem = random_problem(seed)
    sizes = problem.sizes
    limits = cost_limits(problem)
    removed, is_empty = [np.zeros(size, dtype=bool) for size in sizes], False
    parts = [(c.scope, ~c.to_array(sizes)) for c in problem.constraints]
    parts += [(c.scope, ~c.to_array()) for c in problem.linear_constraints if c.can_bind]
    for number, f in enumerate(problem.functions):
        values, feasible = f.to_array(sizes)
        parts.append((f.scope, ~feasible | (values >= limits[number]) if limits else ~feasible))
    for scope, forbids in parts:
        if len(scope) == 1:
            removed[scope[0]] |= forbids
        is_empty |= not scope and bool(forbids)
    found = removed_values(problem)
    assert found[0].tolist() == np.concatenate(removed).tolist() and found[1] == is_empty
    fixed = FixedPoint.of(problem)
    terms = minimum_terms(problem, fixed)
    unary, minima = np.zeros((len(sizes), max(sizes))), 0
    for f in problem.functions:
        values, feasible = f.to_array(sizes)
        if feasible.any() and len(f.scope) == 1:
            unary[f.scope[0], : sizes[f.scope[0]]] += fixed.down(np.where(feasible, values, values[feasible].max()))
        elif feasible.any():
            minima += int(fixed.down(values[feasible].min()))
    assert terms.constant.sum() == minima + fixed.down(problem.constant)
    for number, (v, offset) in enumerate(zip(terms.variable.tolist(), terms.offset.tolist(), strict=True)):
        term = int(np.searchsorted(terms.start, number, side="right")) - 1
        own = terms.entries[offset : offset + sizes[v]]
        assert len(own) == sizes[v] and (terms.constant[term] == 0 or not own.any())
        unary[v, : sizes[v]] -= own
    assert not unary.any()
    source = constant_source(problem)
    values = [problem.evaluate(a) for a in np.ndindex(*sizes)]
    optimum = min((value for value in values if value is not None), default=math.inf)
    assert source.root <= optimum


def test_integers_at_the_ends_of_their_range():
    """Differences and magnitudes of these leave int64."""
    ends = [-(2**63), 2**63 - 1]
    problem = Problem((Variable("a", 2),), (Function.from_array((0,), ends),), constant=0)
    assert problem.magnitude == 2**63
    assert problem.value_grid == ValueGrid(2**64 - 1, -(2**63))
