"""Elimination of all that reduction has left, in one go: the optimum, and only where tables are small."""

from __future__ import annotations

import numpy as np
import pytest

import oocbe
from oocbe.bounds.row_reduction import Reduction, reduced
from oocbe.bounds.row_tables import ScopeTables
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.search import presolve
from oocbe.search import presolve as module
from oocbe.search.presolve import eliminated_whole
from oocbe.stress import random_network
from tests.helpers.bound_problems import anything, hidden_solution, optimum
from tests.helpers.effort import examples

AUTO = SolveOptions(backend="cpu")


def nothing_removed(tables: ScopeTables) -> Reduction:
    """A reduction that leaves the whole problem."""
    sizes = tables.problem.sizes
    return Reduction(tables, tuple(range(len(sizes))), (), sizes)


@pytest.mark.parametrize("make", [anything, hidden_solution])
def test_what_it_leaves_has_the_optimum_and_comes_back_to_an_assignment_of_all(make):
    made = 0
    for seed in range(examples(600)):
        problem = make(seed).below(None)
        tables = ScopeTables.of(problem)
        if tables is None or tables.is_impossible or len(problem.variables) < 2:
            continue
        before = nothing_removed(tables) if seed % 2 else reduced(tables)
        whole = eliminated_whole(before, AUTO)
        expected = optimum(problem)
        if not np.isfinite(expected):
            assert whole is before
            continue
        found = whole.tables
        assert len(found.problem.variables) == 1
        values = [(found.evaluate([a]), a) for a in range(found.problem.sizes[0])]
        value, best = min((v, a) for v, a in values if v is not None)
        assignment = whole.complete([best])
        assert problem.evaluate(assignment) == pytest.approx(value, rel=1e-12, abs=1e-12)
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-12)
        made += 1
    assert made > examples(200)


def test_not_where_a_table_is_large_or_rows_are_asked_for(monkeypatch):
    before = nothing_removed(ScopeTables.of(random_network(6, 5, 1.0, tightness=0.0, seed=1)))
    assert eliminated_whole(before, AUTO) is not before
    assert eliminated_whole(before, SolveOptions(tables="incomplete")) is before
    monkeypatch.setattr(presolve, "LARGEST", 5**6 - 1)
    assert eliminated_whole(before, AUTO) is before
    monkeypatch.setattr(presolve, "LARGEST", 5**6)
    assert eliminated_whole(before, AUTO) is not before


def chain(count: int, sign: int = 1) -> Problem:
    """A chain of variables with random costs, or values."""
    rng = np.random.default_rng(count)
    functions = [Function.from_array((v, v + 1), sign * rng.integers(0, 1000, (3, 3))) for v in range(count - 1)]
    variables = tuple(Variable(f"x{v}", 3) for v in range(count))
    return Problem(variables, tuple(functions), **({} if sign > 0 else {"semiring": MAX_SUM}))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_long_chain_is_over_before_an_order_is_looked_for(sign, monkeypatch):
    monkeypatch.setattr(module, "MANY_VARIABLES", 30)
    for count, is_many in ((29, False), (30, True)):
        problem = chain(count, sign)
        result = oocbe.solve(problem, backend="cpu")
        plain = oocbe.solve(problem, backend="cpu", bounds="none")
        assert any(note.startswith("reduced to 1 of") for note in result.notes) == is_many
        assert (result.status, result.value) == ("optimal", plain.value)
        assert problem.evaluate(result.assignment) == result.value
        assert sorted(result.order) == list(range(count))
        assert ("reduced to 1 of" in oocbe.plan(problem, order_seconds=0).propagation) == is_many
