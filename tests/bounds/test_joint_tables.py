"""Functions joined to functions over three variables: every assignment costs the same, and root bounds rise."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest

from oocbe.bounds import row_reduction
from oocbe.bounds.row_reduction import with_joint_tables
from oocbe.errors import TimeLimitError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import Deadline
from oocbe.search import depth_search
from tests.helpers.bound_problems import optimum
from tests.helpers.depth_searches import begun, search, whole
from tests.helpers.effort import examples


def made(sizes, functions, constraints=(), name="joint"):
    variables = tuple(Variable(f"x{v}", int(size)) for v, size in enumerate(sizes))
    return Problem(variables, tuple(functions), tuple(constraints), name=name)


def mixed(seed: int) -> Problem:
    """Costs and forbidden tuples of pairs, triples, and a few larger scopes."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, int(random.integers(3, 7)))
    functions, constraints = [], []
    for arity, density in ((1, 0.5), (2, 0.7), (3, 0.25 * (seed % 2)), (4, 0.1)):
        for scope in combinations(range(len(sizes)), arity):
            shape = tuple(sizes[v] for v in scope)
            if random.random() >= density:
                continue
            if random.random() < 0.3:
                constraints.append(Constraint(scope, np.argwhere(random.random(shape) < 0.15)))
            else:
                costs = random.integers(-3, 12, shape)
                functions.append(Function.from_array(scope, costs * 0.3 if seed % 5 == 4 else costs))
    return made(sizes, functions, constraints, f"mixed {seed}")


def cut(vertices: int) -> Problem:
    """A largest cut of a complete graph: its local polytope gives 0, each triangle has to pay for one edge."""
    functions = [Function.from_array(pair, np.eye(2, dtype=np.int64)) for pair in combinations(range(vertices), 2)]
    return made([2] * vertices, functions)


def shifts(days: int) -> Problem:
    """Pairs of days, and triples that contain them."""
    random = np.random.default_rng(days)
    scopes = [tuple(range(v, v + length)) for length in (1, 2, 3) for v in range(days - length + 1)]
    return made([4] * days, [Function.from_array(s, random.integers(0, 30, [4] * len(s))) for s in scopes])


def test_every_assignment_costs_the_same():
    joined = forbidding = 0
    for seed in range(examples(60)):
        plain = whole(mixed(seed))
        found = with_joint_tables(plain)
        joined += found is not plain
        forbidding += any(not part.permitted.all() for part in found.tables.parts if len(part.scope) == 3)
        tables, sizes = plain.tables, plain.tables.problem.sizes
        assert {len(part.scope) for part in found.tables.parts} <= {1, 2, 3, 4}
        assert found.tables.is_impossible or found.tables.least >= tables.least - 4 * tables.rounding
        for assignment in product(*map(range, sizes)):
            cost, same = tables.evaluate(assignment), found.tables.evaluate(assignment)
            assert same == (cost if tables.is_integral or cost is None else pytest.approx(cost, abs=1e-9)), plain
    assert joined
    assert forbidding


def test_searches_over_joint_functions_find_the_optimum():
    used = 0
    for seed in range(examples(60)):
        problem = mixed(seed)
        known, found = search(problem)  # all reports are compared with the optimum
        best = optimum(problem)
        assert known.is_closed
        assert (math.inf if known.value is None else known.value) == pytest.approx(best)
        used += found.shared is not None and len(found._tables.parts) < len(whole(problem).tables.parts)
    assert used


@pytest.mark.parametrize("problem", [cut(7), shifts(8)], ids=["cut", "shifts"])
def test_the_root_is_nearer_to_the_optimum(problem, monkeypatch):
    found = []
    for most in (0, row_reduction.MOST_CELLS):
        monkeypatch.setattr(row_reduction, "MOST_CELLS", most)
        if not most:
            monkeypatch.setattr("oocbe.search.depth_search.with_joint_tables", lambda reduction: reduction)
        known, search = begun(problem)
        known.offer(problem.evaluate([0] * len(problem.sizes)), (0,) * len(problem.sizes), "any")
        while search.shared is None:
            search.work(0.0, Deadline())
        found.append(known.lower)
        monkeypatch.undo()
    assert found[1] > found[0]


def test_functions_stay_apart_where_the_root_gains_too_little(monkeypatch):
    """Grids of pixels had as many nodes with them, and longer passes."""
    monkeypatch.setattr(depth_search, "LEAST_NEARER", 1.1)
    problem = cut(6)
    known, search = begun(problem)
    search.work(math.inf, Deadline())
    assert len(search._tables.parts) == len(problem.functions)
    assert known.value == optimum(problem)


def test_a_deadline_at_the_second_root_leaves_a_search_that_goes_on(monkeypatch):
    problem = cut(6)
    known, search = begun(problem)
    roots, own = [], type(search)._root

    def root(self):
        roots.append(self)
        if len(roots) == 2:
            raise TimeLimitError("the limit")
        return own(self)

    monkeypatch.setattr(type(search), "_root", root)
    with pytest.raises(TimeLimitError):
        search.work(math.inf, Deadline())
    search.work(math.inf, Deadline())
    assert known.value == optimum(problem)


def test_wide_domains_form_no_triangles():
    wide = made([6, 6, 6], [Function.from_array(pair, np.eye(6, dtype=np.int64)) for pair in combinations(range(3), 2)])
    plain = whole(wide)
    assert with_joint_tables(plain) is plain
