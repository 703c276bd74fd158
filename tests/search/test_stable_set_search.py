"""Stable sets: which problems are such, and the optimum of those that are."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from oocbe.bounds.row_tables import ScopeTables
from oocbe.elimination.preparation.packing import with_exclusions
from oocbe.errors import TimeLimitError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search import searches, stable_set_search
from oocbe.search.searches import RowProblem, Searches
from oocbe.search.stable_set_search import StableSetSearch, ValueGraph
from oocbe.search.subsolver import SharedBounds
from tests.helpers.bound_problems import optimum
from tests.helpers.effort import examples
from tests.helpers.small_problems import all_values

NO_GAP = SolveOptions().gap


def choices(seed: int) -> Problem:
    """Variables with a free value anywhere in their domains, costs of any sign, pairs of others that may not be."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 4, int(random.integers(2, 8))).tolist()
    free = [int(random.integers(size)) for size in sizes]
    functions = [Function.from_array((v,), random.integers(-4, 9, size)) for v, size in enumerate(sizes)]
    part, constraints = random.random(), []
    for u in range(len(sizes)):
        for v in range(u):
            cells = random.random((sizes[u], sizes[v])) < part
            cells[free[u]] = False
            cells[:, free[v]] = False
            if cells.any():
                constraints.append(Constraint((u, v), np.argwhere(cells)))
    if random.integers(3) == 0:
        v = int(random.integers(len(sizes)))
        if sizes[v] > 1:
            constraints.append(Constraint((v,), [[(free[v] + 1) % sizes[v]]]))
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    problem = Problem(variables, tuple(functions), tuple(constraints), constant=3, name=f"choices {seed}")
    if random.integers(3):
        return problem
    total, feasible = all_values(problem)
    return replace(problem, upper_bound=int(total[feasible].min()) + int(random.integers(0, 3)))


def value_graph(problem: Problem) -> ValueGraph | None:
    tables = ScopeTables.of(problem)
    assert tables is not None
    return ValueGraph.of(tables)


@pytest.mark.parametrize("first_nodes", [1, 256])
def test_the_optimum(first_nodes, monkeypatch):
    monkeypatch.setattr(stable_set_search, "FIRST_NODES", first_nodes)
    monkeypatch.setattr(stable_set_search, "CALL_SECONDS", 1e-12)  # a node a call
    nodes = found = 0
    for seed in range(examples(200)):
        problem = choices(seed)
        graph = value_graph(problem)
        if graph is None:
            continue  # nothing that could be saved
        found += 1
        known = SharedBounds(problem, NO_GAP, lambda *_: None)
        made = StableSetSearch(graph, known)
        made.work(math.inf, Deadline())
        assert made.is_over
        assert known.is_closed, problem.name
        total, feasible = all_values(replace(problem, upper_bound=None))
        best = int(total[feasible].min())
        if problem.upper_bound is not None and best >= problem.upper_bound:
            assert known.value is None
        else:
            assert known.value == best, problem.name
        nodes += made.nodes
    assert found > examples(80)
    assert nodes > examples(150)


@pytest.mark.parametrize("bound", [-(10**30), -1e300, 10**30])
def test_upper_bounds_beyond_64_bits(bound):
    problem = choices(1)
    graph = value_graph(problem)
    assert graph is not None
    known = SharedBounds(replace(problem, upper_bound=bound), NO_GAP, lambda *_: None)
    StableSetSearch(graph, known).work(math.inf, Deadline())
    assert known.is_closed
    total, feasible = all_values(replace(problem, upper_bound=None))
    assert known.value == (int(total[feasible].min()) if bound > 0 else None)


def conflicts(count: int, part: float, seed: int) -> Problem:
    random = np.random.default_rng(seed)
    functions = [Function((v,), [[0]], [int(random.integers(1, 9))], 0) for v in range(count)]
    pairs = [(u, v) for u in range(count) for v in range(u) if random.random() < part]
    constraints = [Constraint(pair, [[1, 1]]) for pair in pairs]
    return Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), tuple(functions), tuple(constraints))


def test_more_vertices_than_a_word_has_bits(monkeypatch):
    monkeypatch.setattr(stable_set_search, "CALL_SECONDS", 1e-6)
    problem = conflicts(130, 0.5, 3)
    graph = value_graph(problem)
    assert graph is not None
    assert graph.adjacent.shape == (130, 3)
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    made = StableSetSearch(graph, known)
    expected = []
    while not made.is_over:
        made.work(0.0, Deadline())
        expected.append(made.expected)
    assert known.is_closed
    assert known.value == problem.evaluate(known.assignment)
    assert len(expected) > 3
    # By elimination along any order, without any of this.
    weight = {v: int(f.values[0]) for v, f in enumerate(problem.functions)}
    near = {v: set() for v in weight}
    for c in problem.constraints:
        near[c.scope[0]].add(c.scope[1])
        near[c.scope[1]].add(c.scope[0])

    def most(left: list[int]) -> int:
        if not left:
            return 0
        rest = left[1:]
        with_it = weight[left[0]] + most([v for v in rest if v not in near[left[0]]])
        return with_it if not near[left[0]].intersection(rest) else max(with_it, most(rest))

    assert known.value == sum(weight.values()) - most(list(weight))


def test_other_problems_are_none():
    problem = conflicts(20, 0.3, 1)
    assert value_graph(problem) is not None
    assert value_graph(replace(problem, functions=(*problem.functions, Function((0, 1), [[0, 0]], [1], 0)))) is None
    assert value_graph(replace(problem, constraints=(*problem.constraints, Constraint((0, 1, 2), [[1, 1, 1]])))) is None
    assert value_graph(replace(problem, constraints=(*problem.constraints, Constraint((3, 4), [[0, 0]])))) is None
    real = replace(problem, functions=tuple(replace(f, values=f.values * 0.5) for f in problem.functions))
    assert value_graph(real) is None


def test_it_ends_at_the_deadline():
    problem = conflicts(60, 0.5, 1)
    graph = value_graph(problem)
    assert graph is not None
    with pytest.raises(TimeLimitError):
        StableSetSearch(graph, SharedBounds(problem, NO_GAP, lambda *_: None)).work(math.inf, Deadline(0.0))


@pytest.mark.parametrize("part", [0.1, 0.5])
def test_it_opens_a_solve(part, monkeypatch):
    monkeypatch.setattr(searches, "HEAD_START", math.inf)
    problem = conflicts(14, part, 2)
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    rounds = Searches(problem, SolveOptions(), known, Deadline())
    rounds.load()
    rounds.open()
    assert known.is_closed
    assert known.value == optimum(problem)
    assert "stable sets" in rounds.summary


def limited(seed: int) -> Problem:
    """Choices under linear constraints of few different amounts, most of which permit one of their variables."""
    random = np.random.default_rng(seed)
    problem, rows = choices(seed), []
    for _ in range(int(random.integers(1, 3))):
        count = int(random.integers(1, len(problem.sizes) + 1))
        scope = tuple(random.choice(len(problem.sizes), size=count, replace=False).tolist())
        own = tuple(random.choice([0, 0, 2, 3], size=problem.sizes[v]) for v in scope)
        rows.append(LinearConstraint(scope, own, sum(int(c.min()) for c in own) + int(random.integers(2, 5))))
    return replace(problem, linear_constraints=tuple(rows))


def test_linear_constraints_that_permit_one_variable_become_pairs():
    whole = part = solved = 0
    for seed in range(examples(300)):
        problem = limited(seed)
        excluding = with_exclusions(problem)
        feasible = all_values(problem.below(None))[1]
        assert (all_values(excluding.below(None))[1] == feasible).all()
        fewer = len(problem.linear_constraints) - len(excluding.linear_constraints)
        whole += fewer > 0 and not excluding.linear_constraints
        part += fewer > 0 and bool(excluding.linear_constraints)
        graph = RowProblem(problem).graph
        if graph is None or not problem.linear_constraints:
            continue
        solved += 1
        known = SharedBounds(problem, NO_GAP, lambda *_: None)
        StableSetSearch(graph, known).work(math.inf, Deadline())
        assert known.is_closed
        best = optimum(problem)
        assert known.value == (None if best == math.inf else best)
    assert min(whole, part, solved) > examples(10), (whole, part, solved)
