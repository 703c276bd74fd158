"""Better orders than greedy ones, and the greedy kernel in them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from oocbe.elimination.orders.order import DISSECTION, HEURISTICS, OrderFlags, _candidates, longest_search
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.orders.separators import ScopeGraph
from oocbe.kernels.cpu.orders.dissection import dissect
from oocbe.kernels.cpu.orders.greedy_order import MIN_FILL, greedy_order, linear_order
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuning
from tests.helpers.effort import examples

NEVER = np.zeros(1, dtype=np.int64)
"""A flag that nobody sets."""


def network(count: int, edges: int, seed: int, hard: bool = False) -> Problem:
    """Binary functions, or constraints, between random variables of 1 to 4 values."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, size=count).tolist()
    pairs = sorted({tuple(sorted(random.permutation(count)[:2].tolist())) for _ in range(edges)})
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    if hard:
        listed = [(u, v, random.integers(0, [sizes[u], sizes[v]], size=(1, 2))) for u, v in pairs]
        return Problem(variables, (), tuple(Constraint((u, v), tuples) for u, v, tuples in listed))
    functions = (Function.from_array((u, v), random.random((sizes[u], sizes[v]))) for u, v in pairs)
    return Problem(variables, tuple(functions))


def test_windows_pass_what_restarts_find():
    """On a network where ties are many, a few windows pass the best of ten times as many restarts."""
    side = 12
    pairs = [(r * side + c, r * side + c + 1) for r, c in itertools.product(range(side), range(side - 1))]
    pairs += [(r * side + c, r * side + side + c) for r, c in itertools.product(range(side - 1), range(side))]
    values = np.zeros((3, 3))
    variables = tuple(Variable(f"x{v}", 3) for v in range(side * side))
    graph = PrimalGraph(Problem(variables, tuple(Function.from_array(p, values) for p in pairs)))
    restarts = min(graph.work(HEURISTICS["min-fill"](graph, seed), 1, 0) for seed in range(300))
    order = HEURISTICS["min-fill"](graph, 0)
    for step in range(30):
        order = graph.improved_order(order, graph.joined_cells(order, graph.separators(order)), step)
    assert graph.work(order, 1, 0) < restarts


def test_rows_of_a_greedy_order_and_where_it_gives_up():
    problem = network(40, 70, 5)
    graph = PrimalGraph(problem)
    ones = np.ones(40)
    order, rows = greedy_order(graph.adjacency.copy(), graph.weights, MIN_FILL, 0, ones, math.inf, NEVER, NEVER)
    expected = sum(math.prod(problem.sizes[u] for u in members) for members in graph.separators(order).listed())
    assert rows == pytest.approx(expected)
    order, part = greedy_order(graph.adjacency.copy(), graph.weights, MIN_FILL, 0, ones, rows / 2, NEVER, NEVER)
    assert rows / 2 < part < rows
    assert sorted(order.tolist()) == list(range(40))


def test_the_frontiers_of_a_linear_order_and_where_it_gives_up():
    problem = network(40, 70, 5)
    graph = PrimalGraph(problem)
    edges = (graph.starts, graph.neighbours)
    never = (math.inf, NEVER, NEVER)
    order, peak, total = linear_order(*edges, graph.weights, 3, *never)
    neighbours = [set(graph.neighbours[graph.starts[v] : graph.starts[v + 1]].tolist()) for v in range(40)]
    frontiers = []
    for end in range(1, 41):
        done = set(order[:end].tolist())
        frontiers.append(sum(graph.weights[v] for v in set().union(*(neighbours[u] for u in done)) - done))
    assert (peak, total) == (pytest.approx(max(frontiers)), pytest.approx(sum(frontiers)))
    again, reached, _ = linear_order(*edges, graph.weights, 3, peak / 2, NEVER, NEVER)
    assert peak / 2 < reached
    assert sorted(again.tolist()) == list(range(40))
    kept = next(step for step, bits in enumerate(frontiers) if bits > peak / 2) + 1
    assert (again[:kept] == order[:kept]).all() and not (again == order).all()
    sweeps = [linear_order(*edges, graph.weights, seed, *never) for seed in range(tuning().linear_sweeps)]
    best = min(sweeps, key=lambda sweep: sweep[1:])
    assert (ScopeGraph("g", [f.scope for f in problem.functions], problem.sizes).linear_order(0) == best[0]).all()


@pytest.mark.parametrize("chosen", range(8))
def test_a_small_factor_has_a_variable_eliminated_first(chosen):
    cycle = tuple(Function.from_array((v, (v + 1) % 8), np.zeros((2, 2))) for v in range(8))
    graph = PrimalGraph(Problem(tuple(Variable(f"x{v}", 2) for v in range(8)), cycle))
    factors = np.ones(8)
    factors[chosen] = 0.5
    assert (
        greedy_order(graph.adjacency.copy(), graph.weights, MIN_FILL, 0, factors, math.inf, NEVER, NEVER)[0][0]
        == chosen
    )


def test_a_long_search_takes_a_part_of_the_time_limit():
    assert longest_search(0.5, math.inf) == 10.0
    assert longest_search(0.5, 8.0) == 2.0
    assert longest_search(0.0, math.inf) == 0.0


def total(graph: ScopeGraph, order: np.ndarray) -> float:
    """Assignments of all separators of an order."""
    return sum(math.prod(graph.sizes[list(members)].tolist()) for members in graph.separators(order).listed())


@pytest.mark.parametrize("seed", range(6))
def test_windows_keep_the_cost_of_what_is_outside_them(seed):
    """Each step's order has no more assignments than the one before, in windows of all sizes."""
    graph = PrimalGraph(network(150, 260, seed))
    order = graph.greedy_order(MIN_FILL, seed)[0]
    costs = [total(graph, order)]
    for step in range(20):
        heat = graph.joined_cells(order, graph.separators(order))
        order = graph.improved_order(order, heat, seed + 100 * step)
        assert sorted(order.tolist()) == list(range(150))
        costs.append(total(graph, order))
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in itertools.pairwise(costs))
    assert costs[-1] < 0.9 * costs[0]


def components(edges: list[tuple[int, int]], vertices: set[int]) -> list[set[int]]:
    """The connected components of some of a graph's vertices."""
    left, found = set(vertices), []
    while left:
        part, waiting = set(), [left.pop()]
        while waiting:
            v = waiting.pop()
            part.add(v)
            near = {u for edge in edges if v in edge for u in edge} & left
            left -= near
            waiting += near
        found.append(part)
    return found


@pytest.mark.parametrize("seed", range(examples(32)))
def test_dissections_divide_the_graph_again_and_again(seed):
    random = np.random.default_rng(seed)
    edges = sorted({tuple(sorted(random.choice(60, 2, replace=False).tolist())) for _ in range(100)})
    graph = ScopeGraph("g", edges, [2] * 60)
    ranks = dissect(graph.starts, graph.neighbours, 6, 4, seed, NEVER, NEVER)
    assert ranks.min() == 0
    divided = 0
    waiting = components(edges, set(range(60)))
    while waiting:
        part = waiting.pop()
        rank = max(ranks[v] for v in part)
        if rank == 0:
            continue
        parts = components(edges, {v for v in part if ranks[v] < rank})
        divided += len(parts) > 1
        assert len(parts) > 1
        waiting += parts
    assert divided


@pytest.mark.parametrize("between", [1, 3, 5])
def test_the_first_separator_is_the_smallest_one_between_two_halves(between):
    """Two random graphs of 40 vertices, joined by a few vertices with neighbours in both."""
    random = np.random.default_rng(between)
    pairs = {tuple(random.choice(40, 2, replace=False)) for _ in range(160)} | {(v, v + 1) for v in range(39)}
    edges = [*pairs, *((u + 40, v + 40) for u, v in pairs)]
    middle = range(80, 80 + between)
    edges += [(m, v + side) for m in middle for side in (0, 40) for v in random.choice(40, 8, replace=False)]
    graph = ScopeGraph("halves", [tuple(map(int, edge)) for edge in edges], [2] * (80 + between))
    ranks = dissect(graph.starts, graph.neighbours, 45, 16, 0, NEVER, NEVER)
    assert np.flatnonzero(ranks == ranks.max()).tolist() == list(middle)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_dissections_and_windows_pass_greedy_orders_of_a_cut_grid(seed):
    """A grid without a sixth of its edges."""
    side, random = 30, np.random.default_rng(seed)
    edges = [(v, v + 1) for v in range(side * side) if v % side < side - 1]
    edges += [(v, v + side) for v in range(side * (side - 1))]
    graph = ScopeGraph("grid", [edge for edge in edges if random.random() < 5 / 6], [2] * side * side)
    greedy = min(total(graph, graph.greedy_order(MIN_FILL, seed)[0]) for seed in range(60))
    order = min((graph.dissected_order(seed) for seed in range(10)), key=lambda order: total(graph, order))
    for step in range(40):
        order = graph.improved_order(order, graph.joined_cells(order, graph.separators(order)), step)
    assert total(graph, order) < greedy


@pytest.mark.parametrize("is_better", [True, False])
def test_large_graphs_are_dissected_before_greedy_orders_that_would_be_hopeless(is_better, tune):
    """On he141 of PACE 2017, with 11,680 vertices, greedy orders took all of ten seconds and were twice as wide."""
    tune(bitset_variables=4)
    graph, names = PrimalGraph(network(20, 40, 0)), list(HEURISTICS)
    finalists = {name: [] for name in (*names, DISSECTION)}
    with OrderFlags(graph, 10.0, 0.0) as flags:
        found = _candidates(graph, names, 10.0, 0, finalists, math.inf, flags)
        given = []
        for place, (name, order) in enumerate(itertools.islice(found, 25)):
            given.append((name, order is not None))
            if order is not None:
                finalists[name] = [(1.0 if is_better and name == DISSECTION else 1e3, place, order)]
    assert given[:2] == [(names[0], True), (DISSECTION, True)]
    assert given[2:5] == [(name, not is_better) for name in names[1:]]
    greedy = {name for name, _ in given[5:]} & set(names)
    assert bool(greedy) != is_better
