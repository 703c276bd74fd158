"""Eliminating variables before rows are made leaves what the others' assignments can cost."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.pruning import row_reduction
from oocbe.pruning.row_reduction import reduced
from oocbe.pruning.row_tables import Tables
from oocbe.synth import random_network
from tests.helpers.bound_problems import anything, costly_photographs, photographs
from tests.helpers.small_problems import all_values


def least_of_rest(problem: Problem, variables: tuple[int, ...]) -> np.ndarray:
    """What each assignment of some variables costs at least, infinite where it is infeasible."""
    total, feasible = all_values(problem.below(None))
    values = np.where(feasible, total.astype(np.float64), np.inf)
    return values.min(axis=tuple(v for v in range(len(problem.sizes)) if v not in variables))


def costs_of(tables: Tables) -> np.ndarray:
    """What the tables say that each assignment costs, an axis a variable."""
    sizes = tables.problem.sizes
    total = np.full(sizes, np.inf if tables.is_impossible else tables.constant, dtype=np.float64)
    for part in tables.parts:
        shape = [n if v in part.scope else 1 for v, n in enumerate(sizes)]
        total = total + np.where(part.permitted, part.values, np.inf).reshape(shape)
    return total


@pytest.mark.parametrize("joined", [1 << 12, 1 << 4])
@pytest.mark.parametrize("make", [anything, photographs, costly_photographs])
def test_what_is_left_costs_what_its_best_completion_does(make, joined, monkeypatch):
    monkeypatch.setattr(row_reduction, "MOST_JOINED", joined)
    gone = 0
    for seed in range(150):
        problem = make(seed)
        tables = Tables.of(problem)
        made = reduced(tables)
        assert len(made.variables) + len(made.steps) == made.count == len(problem.sizes)
        assert (made.tables.grid, made.tables.rounding) == (tables.grid, tables.rounding)
        expected, found = least_of_rest(problem, made.variables), costs_of(made.tables)
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)
        for part in made.tables.parts:
            assert part.values[~part.permitted].sum() == 0
            assert part.least == (part.values[part.permitted].min() if part.permitted.any() else 0)
        best = np.unravel_index(found.argmin(), found.shape)
        if np.isfinite(found[best]):
            assignment = made.complete([int(value) for value in best])
            assert problem.below(None).evaluate(assignment) == pytest.approx(found[best], rel=1e-12, abs=1e-12)
        gone += len(made.steps)
    assert gone > 100


def test_a_tree_leaves_one_variable():
    functions = tuple(Function.from_array((v // 2, v), np.arange(9).reshape(3, 3) * v % 5) for v in range(1, 30))
    made = reduced(Tables.of(Problem(tuple(Variable(f"x{v}", 3) for v in range(30)), functions)))
    assert len(made.variables) == 1


def test_nothing_goes_where_all_would_grow():
    tables = Tables.of(random_network(8, 4, 1.0, tightness=0.0, seed=0))
    made = reduced(tables)
    assert not made.steps
    assert [part.scope for part in made.tables.parts] == [part.scope for part in tables.parts]
