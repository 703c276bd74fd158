"""Mini-bucket tables as bounds on rows: none is above a row's best completion, and answers stay what they are."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.api.solving import solve as solving
from oocbe.bounds.bounds import ascended_source, constant_source
from oocbe.bounds.mini_buckets.outside_tables import OutsideTables
from oocbe.bounds.row_tables import ScopeTables
from oocbe.elimination.buckets.resources import engine_for
from oocbe.elimination.engine.bound_arrays import JointTable, RowPruning, surviving_rows
from oocbe.elimination.orders.order import search_orders
from oocbe.elimination.race import Race
from oocbe.elimination.row_pruning.pruner import RowPruner
from oocbe.elimination.runs.durability import Run
from oocbe.errors import ResourceError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search import bounded, table_bounds
from oocbe.search.search_statistics import Statistics
from oocbe.search.table_bounds import TableBounds
from oocbe.stress import grid_network, random_network
from oocbe.tables.layout import Layout
from oocbe.tables.table import Table
from tests.helpers.effort import examples
from tests.helpers.small_problems import brute_force, check, make_problem, structures

MEMORY = 1 << 30


def messages_of(problem, order):
    """Eliminated variables and separator of each message, by the scopes of what elimination joins."""
    scopes = [set(part.scope) for part in (*problem.functions, *problem.constraints)]
    subtrees = []
    for v in order:
        own, mine = [s for s in scopes if v in s], [t for t in subtrees if v in t[1]]
        scope = set().union({v}, *own, *(t[1] for t in mine))
        scopes = [s for s in scopes if v not in s]
        subtrees = [t for t in subtrees if v not in t[1]]
        subtrees.append(({v}.union(*(t[0] for t in mine)), scope - {v}))
        yield subtrees[-1][0], sorted(subtrees[-1][1])


def check_rows(problem, limit, order, cells):
    """Each row's bound against its best completion below the limit; how many rows tables said something about."""
    source = ascended_source(problem, 0.01, limit)
    if source is None or source.root >= limit or any(c.can_bind for c in problem.linear_constraints):
        return 0
    tables, told = OutsideTables(problem, source, limit, order, cells, MEMORY), 0
    dense = [(f.scope, f.to_array(problem.sizes)[0]) for f in problem.functions]
    counted = [(a, problem.evaluate(a)) for a in itertools.product(*map(range, problem.sizes))]
    counted = [(a, value) for a, value in counted if value is not None and value < limit]
    for inside, separator in messages_of(problem, order):
        bound = tables.for_message(sum(1 << v for v in inside), separator)
        best, least = {}, {}
        for assignment, value in counted:
            row = tuple(assignment[v] for v in separator)
            own = sum(f[tuple(assignment[v] for v in scope)].item() for scope, f in dense if inside & set(scope))
            best[row], least[row] = min(best.get(row, math.inf), value), min(least.get(row, math.inf), own)
        for row, value in best.items():
            digits = dict(zip(separator, row, strict=True))
            total = least[row] * bound.scale + bound.constant + sum(t[digits[v]] for v, t in bound.tables.items())
            for joint in bound.joint:
                entry = joint.values.reshape(joint.sizes)[tuple(digits[v] for v in joint.scope)]
                told += entry > 0
                total += int(entry) * joint.unit
            assert total <= value * bound.scale
    return told


@settings(max_examples=examples(60))
@given(structures((MIN_SUM,)), st.sampled_from([1, 4, 64]), st.integers(0, 99))
def test_no_bound_is_above_a_best_completion(structure, cells, seed):
    problem = make_problem(structure)
    best = brute_force(problem)
    if best is None:
        return
    limit = best + 3 + abs(best) / 2 if problem.upper_bound is None else problem.upper_bound
    check_rows(problem, limit, np.random.default_rng(seed).permutation(len(problem.sizes)).tolist(), cells)


@pytest.mark.parametrize("scale", [1e-7, 1e-300])
def test_a_limit_far_above_small_costs(scale):
    """In the fixed point of costs of 1e-300 a limit of 1 is beyond all floats."""
    random = np.random.default_rng(0)
    variables = tuple(Variable(f"x{v}", 3) for v in range(5))
    functions = tuple(Function.from_array((u, v), random.random((3, 3)) * scale) for v in range(5) for u in range(v))
    problem = Problem(variables, functions)
    best = brute_force(problem)
    assert check_rows(problem, best * 1.01, range(5), 9) > 0
    check_rows(problem, 1.0, range(5), 9)


def test_tables_say_something_where_functions_disagree():
    told = 0
    for seed in range(4):
        problem = random_network(7, 3, 0.7, tightness=0.15, seed=seed)
        order = np.random.default_rng(seed).permutation(7).tolist()
        told += check_rows(problem, brute_force(problem) + 40, order, 27)
    assert told > 0


def test_tables_rule_out_most_rows_of_a_grid():
    """Under the optimum as threshold, an order's messages are smaller with tables than without."""
    problem = grid_network(6, 3, tightness=0.1, seed=2)
    best = oocbe.solve(problem).value
    order = list(range(36))
    source = ascended_source(problem, 0.2, best + 1)
    rows = []
    for own in (source, OutsideTables(problem, source, best + 1, order, 81, MEMORY)):
        pruner = RowPruner(problem, own, best + 1)
        rows.append(sum(len(pruner.for_message((1 << k) - 1, list(range(k, k + 6))).joint) for k in range(1, 30)))
    assert rows[0] == 0 < rows[1]


def test_tables_keep_to_their_memory():
    """As many cells as their number gives each bucket were several times the memory: a bucket has many tables."""
    problem = random_network(16, 4, 0.9, tightness=0.0, seed=2)
    source = ascended_source(problem, 0.05, 10_000)
    memory = 1 << 18
    tracemalloc.start()
    try:
        tables = OutsideTables(problem, source, 10_000, range(16), memory // (4 * 16), memory)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    found = {id(t): t.values.nbytes for made in tables._tables.values() for t in made}
    assert 0 < sum(found.values()) == tables.nbytes < memory
    assert peak < 2 * memory  # what is no table included
    with pytest.raises(ResourceError, match=r"take more than 1\.0 KiB; raise --memory"):
        OutsideTables(problem, source, 10_000, range(16), 100, 1 << 10)


def test_messages_are_given_what_tables_leave():
    problem, options = random_network(8, 4, 0.8, tightness=0.0, seed=2), SolveOptions(backend="cpu")
    (choice, *_) = search_orders(problem, "min-fill", 0.0, 0)
    run = Run(problem, options)
    run.set_memory(1 << 24)
    with Deadline() as deadline:
        below = TableBounds(options, deadline).below(problem, 10_000)
        pruner = RowPruner(problem, constant_source(problem), 10_000, below)
        race = Race(problem, MIN_SUM, [choice], True, run, engine_for(options, deadline), pruner)
        attempt = next(race.round(1 << 20))
        tables = below.source(choice.order, 1 << 20)
        assert (1 << 24) - attempt.store.free == tables.nbytes > 0
        attempt.store.close()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_rows_are_held_against_all_tables(dtype):
    generator = np.random.default_rng(5)
    sizes = (3, 2, 40, 40, 40, 40, 40, 40, 40, 40, 40, 300)
    separator = tuple(range(20, 32))
    layout = Layout(tuple(f"v{v}" for v in separator), sizes)
    tuples = np.unique(np.column_stack([generator.integers(0, n, 500) for n in sizes]), axis=0)
    values = generator.integers(-50, 50, len(tuples)).astype(dtype)
    table = Table.from_rows(dict(zip(layout.scope, sizes, strict=True)), tuples, values, MIN_SUM)
    assert table.layout.words > 1
    joint = (
        JointTable((31, 20, 21), (300, 3, 2), generator.integers(0, 30, 1800).astype(np.int32), 2),
        JointTable((30, 25), (40, 40), generator.integers(0, 30, 1600).astype(np.int32), 1),
    )
    own = {20: generator.integers(-9, 9, 3), 30: generator.integers(-9, 9, 40)}
    pruning = RowPruning(4, 7, own, 60, (), joint)
    expected = {}
    for row, value in table.to_dict().items():
        digit = dict(zip(separator, row, strict=True))
        total = value * 4 + 7 + sum(t[digit[v]] for v, t in own.items())
        total += sum(t.values.reshape(t.sizes)[tuple(digit[v] for v in t.scope)] * t.unit for t in joint)
        if total < 60:
            expected[row] = value
    assert 0 < len(expected) < table.rows
    assert surviving_rows(table, separator, pruning).to_dict() == expected


@settings(max_examples=examples(30))
@given(structures((MIN_SUM, MAX_SUM)))
def test_the_optimum_is_the_same(structure):
    problem = make_problem(structure)
    expected = brute_force(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded, "QUICK_CAP", 1)
        patch.setattr(table_bounds, "LEAST_DROPPED", 0.0)
        patch.setattr(solving, "needs_no_bounds", lambda *_: False)
        patch.setattr(ScopeTables, "of", lambda *_, **__: None)  # else rows end it first
        result = oocbe.solve(problem, order_seconds=0, incumbent_seconds=0, bound_seconds=0.01)
    if expected is None:
        assert (result.status, result.value) == ("infeasible", None)
        return
    assert result.status == "optimal"
    check(problem, result.value, result.assignment, expected)


def test_a_search_says_what_tables_did(monkeypatch):
    problem = grid_network(9, 4, tightness=0.1, seed=1)
    monkeypatch.setattr(bounded, "QUICK_CAP", 32)
    monkeypatch.setattr(solving, "needs_no_bounds", lambda *_: False)
    monkeypatch.setattr(ScopeTables, "of", lambda *_, **__: None)
    monkeypatch.setattr(bounded.EliminationAttempts, "is_available", False)
    monkeypatch.setattr(table_bounds, "BUILD_SECONDS", math.inf)  # however slow the machine, or cold its cache
    monkeypatch.setattr(table_bounds, "LEAST_DROPPED", 0.0)
    options = {"order_seconds": 0, "incumbent_seconds": 0, "bound_seconds": 0.5}
    with_tables = oocbe.solve(problem, **options)
    without = oocbe.solve(problem, bounds="local-polytope", **options)
    assert with_tables.value == without.value
    assert "mini-bucket tables dropped" in with_tables.bounds
    assert "mini-bucket tables" not in without.bounds


def test_tables_that_drop_nothing_are_the_last(monkeypatch):
    monkeypatch.setattr(table_bounds, "SAMPLE_ROWS", 100)
    problem = grid_network(4, 3, tightness=0.0, seed=1)
    with Deadline() as deadline:
        tables = TableBounds(SolveOptions(), deadline)
        below = tables.below(problem, 1000)
        assert below is tables.below(problem, 1000)
        assert below is not tables.below(problem, 999)
        assert below.count(99, 99)
        assert below.count(10, 1)
        assert not below.count(10_000, 10_000)
        assert tables.below(problem, 1000) is None
        statistics = Statistics()
        tables.report(statistics)
        assert statistics.bounds == "mini-bucket tables dropped 9 of 10,109 rows"
        assert TableBounds(SolveOptions(bounds="lp"), deadline).below(problem, 1000) is None
        monkeypatch.setattr(table_bounds, "BUILD_SECONDS", 0.0)
        late = TableBounds(SolveOptions(), deadline)
        assert late.below(problem, 1000).source(range(16), 100) is None
        assert not late.is_open


def test_hard_constraints_of_a_separator_say_nothing_without_their_terms():
    """An additive bound leaves their terms out, so that their residuals alone would be too high."""
    for seed in range(40):
        generator = np.random.default_rng(seed)
        pairs = [p for p in itertools.combinations(range(5), 2) if generator.random() < 0.8]
        functions = tuple(Function.from_array(p, generator.integers(0, 20, (3, 3))) for p in pairs[::2])
        tuples = [np.argwhere(generator.random((3, 3)) < 0.4) for _ in pairs]
        constraints = tuple(Constraint(p, t) for p, t in zip(pairs, tuples, strict=True) if len(t))
        problem = Problem(tuple(Variable(n, 3) for n in "abcde"), functions, constraints)
        best = brute_force(problem)
        if best is not None:
            check_rows(problem, best + 20, generator.permutation(5).tolist(), 9)
