"""Orders and separators of graphs as lists, held against elimination as it is written down in textbooks."""

import itertools
import math

import numpy as np
import pytest

from oocbe.api.facade import solve
from oocbe.elimination.orders.order import HEURISTICS, search_orders
from oocbe.elimination.orders.separators import Hurry, ScopeGraph, Separators
from oocbe.errors import ResourceError
from oocbe.kernels.cpu.orders.greedy_order import MIN_DEGREE, MIN_FILL, WEIGHTED_MIN_FILL
from oocbe.kernels.cpu.orders.sparse_order import sparse_order
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem

NEVER, NOW = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)


def random_scopes(count, scopes, widest, seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, widest + 1, scopes)
    return [tuple(random.permutation(count)[:length].tolist()) for length in lengths]


def neighbours_of(scopes, count):
    near = [set() for _ in range(count)]
    for scope in scopes:
        for u, v in itertools.permutations(scope, 2):
            near[u].add(v)
    return near


def score(near, weights, criterion, v):
    if criterion == MIN_DEGREE:
        return len(near[v])
    missing = [(u, w) for u, w in itertools.combinations(near[v], 2) if w not in near[u]]
    return sum(1 if criterion == MIN_FILL else weights[u] * weights[w] for u, w in missing)


def eliminate(near, v):
    own = near[v]
    for u in own:
        near[u] |= own
        near[u] -= {u, v}
    near[v] = set()
    return own


@pytest.mark.parametrize("criterion", [MIN_DEGREE, MIN_FILL, WEIGHTED_MIN_FILL])
@pytest.mark.parametrize("seed", range(6))
def test_each_step_of_a_greedy_order_takes_a_best_vertex(criterion, seed):
    count = 60
    scopes = random_scopes(count, 70, 2 + seed % 3, seed)
    sizes = np.random.default_rng(seed).integers(2, 9, count).tolist()
    graph = ScopeGraph("g", scopes, sizes)
    near, left = neighbours_of(scopes, count), set(range(count))
    arguments = (graph.starts, graph.neighbours, graph.weights, criterion, seed, np.ones(count))
    order, cells = sparse_order(*arguments, math.inf, 1 << 20, 0.0, NEVER, NEVER, NEVER)
    found, together = graph.separators(order).listed(), 0.0
    position = {v: place for place, v in enumerate(order.tolist())}
    for v, separator in zip(order.tolist(), found, strict=True):
        least = min(score(near, graph.weights, criterion, u) for u in left)
        assert score(near, graph.weights, criterion, v) == pytest.approx(least)
        own = eliminate(near, v)
        left.remove(v)
        assert list(separator) == sorted(own, key=position.__getitem__)
        together += math.prod(sizes[u] for u in own)
    assert cells == pytest.approx(together)


def test_hubs_come_last_and_a_hurry_leaves_an_order_of_all():
    count = 3000
    spokes = [(0, v) for v in range(1, count)]
    rim = [(v, v % (count - 1) + 1) for v in range(1, count)]
    graph = ScopeGraph("wheel", [*spokes, *rim], [2] * count)
    for flags in ((NEVER, NEVER), (NOW, NEVER), (NEVER, NOW)):
        arguments = (graph.starts, graph.neighbours, graph.weights, MIN_FILL, 0, np.ones(count), math.inf, 1 << 24, 0.0)
        order, _ = sparse_order(*arguments, *flags, NEVER)
        assert sorted(order.tolist()) == list(range(count)) and order[-1] == 0
        if flags[1] is NEVER:
            assert graph.separators(order).width == 3


@pytest.mark.parametrize("limit", ["hurry", "give_up"])
@pytest.mark.parametrize("name", HEURISTICS)
@pytest.mark.parametrize("bitsets", [0, 1 << 12])
def test_every_heuristic_ends_in_a_hurry(limit, name, bitsets, tune):
    tune(bitset_variables=bitsets)
    graph = ScopeGraph("g", random_scopes(200, 400, 3, 1), [2] * 200)
    order = HEURISTICS[name](graph, 0, flags=Hurry(**{limit: NOW}))
    assert sorted(order.tolist()) == list(range(200))


@pytest.mark.parametrize("bitsets", [0, 1 << 12])
def test_bit_sets_and_lists_come_to_orders_alike(bitsets, tune):
    """A chain of triangles has width 2 along any order without fill."""
    tune(bitset_variables=bitsets)
    functions = tuple(Function((v, v + 1, v + 2), [[0, 0, 0]], [1], 0) for v in range(298))
    problem = Problem(tuple(Variable(f"x{v}", 3) for v in range(300)), functions)
    for choice in search_orders(problem, "auto", 0.0, 0):
        assert max(map(len, choice.separators)) == 2
        assert sum(choice.predicted_rows) == 298 * 9 + 3 + 1


def test_separators_of_too_many_members_are_refused(tune, tmp_path):
    tune(most_members=100)
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(40)), (Function((0, 1), [[0, 0]], [1], 0),))
    clique = Problem(problem.variables, (Function(tuple(range(40)), [[0] * 40], [1], 0),))
    assert search_orders(problem, "auto", 0.0, 0)
    assert search_orders(clique, "auto", 0.0, 0), "as many as there are edges are listed"
    pairs = [(u, v) for u in range(8) for v in range(8, 40) if (u + v) % 4 == 0]
    dense = Problem(problem.variables, tuple(Function(pair, [[0, 0]], [1], 0) for pair in pairs))
    order = "\n".join(f"x{v}" for v in range(40))  # hubs first: all that they join is one clique
    (tmp_path / "order").write_text(order)
    with pytest.raises(ResourceError, match="more than 128 variables together"):
        search_orders(dense, str(tmp_path / "order"), 0.0, 0)


def test_an_order_of_too_many_members_is_no_obstacle_to_another_one(tune):
    """A tree: the frontiers of a linear order are far wider than the messages of a greedy one."""
    tune(most_members=600)  # twice the edges are allowed in any case
    functions = tuple(Function(((v - 1) // 2, v), [[0, 0]], [1], 0) for v in range(1, 400))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(400)), functions)
    with pytest.raises(ResourceError, match="more than 798 variables together"):
        search_orders(problem, "linear", 0.0, 0)
    choices = search_orders(problem, "auto", 0.0, 0)
    assert choices
    assert all(max(map(len, choice.separators)) == 1 for choice in choices)


def test_sets_as_lists():
    sets = Separators.of([(3, 1), (), (0,)])
    assert sets.listed() == [(3, 1), (), (0,)] and sets.width == 2
    assert Separators.of([]).listed() == [] and Separators.of([]).width == 0


def test_a_problem_whose_separators_are_too_many_is_bounded(tune):
    """Elimination is out of reach; bounds and a search are not."""
    tune(most_members=100)
    random = np.random.default_rng(0)
    pairs = {tuple(sorted(random.choice(120, 2, replace=False).tolist())) for _ in range(360)}
    functions = tuple(Function.from_array(pair, random.integers(0, 9, (2, 2))) for pair in sorted(pairs))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(120)), functions)
    graph = ScopeGraph("g", [f.scope for f in functions], problem.sizes)
    assert np.isinf(graph.cells_along(HEURISTICS["min-fill"](graph, 0))).all()
    result = solve(problem, gap=1e9)
    assert result.bound <= problem.evaluate(result.assignment) == result.value
