"""The depth-first search: the optimum, bounds on the way, open nodes on a heap, and few states."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise

import numpy as np
import pytest

import oocbe
from oocbe.bounds import forbidden, row_tables
from oocbe.bounds.bounds import BoundSources
from oocbe.bounds.incumbent import find_incumbent
from oocbe.bounds.row_tables import ScopeTables
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.plan.plan import easy_orders, needs_no_bounds
from oocbe.elimination.preparation.packing import is_supply
from oocbe.errors import TimeLimitError
from oocbe.kernels.cpu.projection import REMOVED
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search import depth_search, depth_tree, searches, subsolver
from oocbe.search.depth_search import DepthSearch
from oocbe.search.depth_tree import Root, Worker
from oocbe.search.kernels.cpu.depth_first import (
    AFTER,
    BEFORE,
    BEYOND,
    DECISION,
    DEPTH,
    ENDS,
    IS,
    IS_NOT,
    MOST_TRIED,
    UP_TO,
)
from oocbe.search.searches import FEW_EXCLUDED, RowProblem, Searches
from oocbe.search.subsolver import FIRST_SECONDS, SharedBounds
from oocbe.stress import random_network
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, optimum, photographs
from tests.helpers.depth_searches import NO_GAP, begun, check_solved, search, whole
from tests.helpers.effort import examples


def parity_checks(variables: int, checks: int, seed: int) -> Problem:
    """Sums of four bits that are even, and a cost for each bit that is 1."""
    random = np.random.default_rng(seed)
    bits = np.indices((2,) * 4).reshape(4, -1).T
    odd = bits[bits.sum(axis=1) % 2 == 1]
    scopes = [tuple(random.choice(variables, size=4, replace=False).tolist()) for _ in range(checks)]
    costs = random.normal(size=variables)
    return Problem(
        tuple(Variable(f"bit{v}", 2) for v in range(variables)),
        tuple(Function((v,), [[1]], [cost], 0.0) for v, cost in enumerate(costs.tolist())),
        tuple(Constraint(scope, odd) for scope in scopes),
        name=f"parity checks {seed}",
    )


@pytest.mark.parametrize("make", [anything, photographs, costly_photographs, hidden_solution])
@pytest.mark.parametrize(("pause", "is_reduced"), [(1, False), (3, True), (10**6, False)])
def test_the_optimum_wherever_it_pauses(make, pause, is_reduced, monkeypatch):
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", pause)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)  # no assignment to begin with
    monkeypatch.setattr(depth_search, "NARROWER", 1.0 if is_reduced else 0.0)
    nodes = 0
    for seed in range(examples(100)):
        problem = make(seed)
        known, made = search(problem, is_reduced=is_reduced)
        check_solved(problem, known, made)
        nodes += made.nodes
    assert nodes > examples(100) // 4 or is_reduced


@pytest.mark.parametrize("make", [anything, photographs, costly_photographs, hidden_solution])
def test_values_that_a_relaxation_excludes_leave_the_search(make, monkeypatch):
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", 1)
    monkeypatch.setattr(depth_search, "NARROWER", 0.0)
    excluded = 0
    for seed in range(examples(60)):
        problem = make(seed)
        known, made = begun(problem, is_reduced=seed % 2 == 0)
        found = find_incumbent(problem, 1.0, iterations=20)
        if found is not None:
            known.offer(found.value, found.assignment, found.method)
        for _ in range(seed % 5):  # before the root, or beside open nodes
            made.work(0.0, Deadline())
        known.source = BoundSources(problem, seed, known.upper_bound, improve=True).improved(1.0)[0]
        if known.source.assignment is not None:  # values of better ones alone are left
            known.offer(problem.evaluate(known.source.assignment), known.source.assignment, "rounding")
        made.work(math.inf, Deadline())
        excluded += made.shared is not None and made._excluded(made.shared.root).sum()
        check_solved(problem, known, made)
    assert excluded > examples(60)


@pytest.mark.parametrize("seed", range(5))
def test_parity_checks(seed, monkeypatch):
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", 2)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    problem = parity_checks(12, 8, seed)
    known, made = search(problem)
    assert known.is_closed
    assert known.value == pytest.approx(optimum(problem), abs=1e-9)
    assert made.nodes > 2
    open_nodes = made.shared.open
    ahead = [0.5**node.path.length for node in open_nodes.heap]  # where bounds have met the value before the end
    assert [node.part for node in open_nodes.heap] == ahead
    assert open_nodes._ahead == pytest.approx(sum(ahead), abs=1e-9)


def test_of_equal_nodes_the_deepest_goes_on_and_ends_are_counted(monkeypatch):
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", 1)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    counted = []
    put_back = Worker._put_back

    def noted(worker):
        counted.append(int(worker.search.counts[ENDS]))
        put_back(worker)
        nodes = sorted(worker.shared.open.heap)
        assert all(one[:2] <= two[:2] for one, two in pairwise(nodes))
        assert all(-node.depth == np.count_nonzero(node.path.decisions[:, DECISION]) for node in nodes)
        assert len({node.number for node in nodes}) == len(nodes)  # paths are never compared

    monkeypatch.setattr(Worker, "_put_back", noted)
    for seed in range(20):
        known, _ = search(parity_checks(12, 8, seed))
        assert known.is_closed
    assert len(counted) > 5


def test_without_room_for_open_nodes_it_goes_on_where_it_is(monkeypatch):
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", 1)
    monkeypatch.setattr(depth_tree, "MOST_OPEN", 0)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(Worker, "_put_back", lambda worker: pytest.fail("put back"))
    for seed in range(20):
        problem = parity_checks(12, 5, seed)
        known, _ = search(problem)
        assert known.is_closed
        assert known.value == pytest.approx(optimum(problem), abs=1e-9)


@pytest.mark.parametrize("make", [anything, costly_photographs])
def test_what_is_needed_below_a_lower_threshold(make):
    for seed in range(examples(50)):
        tables = ScopeTables.of(make(seed))
        least, step = tables.least, 1 if tables.is_integral else 0.37
        root = Root(tables, least + 9 * step)
        needs = [root.scale.cap_for(least + n * step) for n in range(10)]
        assert needs == sorted(needs)
        assert needs[9] == root.need


def network(seed: int, arity: int) -> Problem:
    """Costs over scopes of so many variables, some forbidden, that no search settles at its root."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 4, size=7).tolist()
    functions, constraints = [], []
    for _ in range(12):
        scope = tuple(sorted(random.choice(7, size=arity, replace=False).tolist()))
        shape = [sizes[v] for v in scope]
        functions.append(Function.from_array(scope, random.integers(0, 9, size=shape)))
        constraints.append(Constraint(scope, np.argwhere(random.random(shape) < 0.1)))
    return Problem(tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes)), tuple(functions), tuple(constraints))


@pytest.mark.parametrize("arity", [2, 3, 4])
def test_functions_over_any_number_of_variables(arity, monkeypatch):
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    nodes = 0
    for seed in range(30):
        problem = network(seed, arity)
        known, made = search(problem)
        assert known.value == (optimum(problem) if optimum(problem) < math.inf else None)
        nodes += made.nodes
    assert nodes > 20


def clauses(seed: int, weights: list[int | float]) -> Problem:
    """Random clauses of two of 40 variables, each violated at a cost."""
    random = np.random.default_rng(seed)
    functions = []
    for _ in range(180):
        scope = tuple(sorted(random.choice(40, size=2, replace=False).tolist()))
        functions.append(Function(scope, [random.integers(0, 2, 2).tolist()], [random.choice(weights)], 0))
    return Problem(tuple(Variable(f"x{v}", 2) for v in range(40)), tuple(functions))


@pytest.mark.parametrize("weights", [[1], [1, 3], [0.1, 0.7]])
def test_dominated_values_are_removed_at_nodes(weights, monkeypatch):
    nodes = dict.fromkeys((False, True), 0)
    for seed in range(5):
        problem, values = clauses(seed, weights), []
        for removes in nodes:
            with monkeypatch.context() as context:
                if not removes:
                    context.setattr(depth_tree, "margins", lambda root: np.full(40, -1))
                known = SharedBounds(problem, NO_GAP, lambda *_: None)
                made = DepthSearch(whole(problem), known, 1 << 30)
                made.work(math.inf, Deadline())
            assert known.is_closed
            nodes[removes] += made.nodes
            values.append(known.value)
        assert values[0] == pytest.approx(values[1], abs=1e-9)
    assert nodes[True] != nodes[False]
    assert isinstance(weights[0], float) or nodes[True] < 0.9 * nodes[False]


def test_no_substitution_where_the_consumption_may_rise(monkeypatch):
    monkeypatch.setattr(row_tables, "LARGEST_LINEAR", 1)
    costs = (Function.from_array((0, 1), [[0, 1], [2, 0.5]]), Function.from_array((6, 7), [[0, 1], [1, 0]]))
    cubes = Function.from_array((2, 3, 4, 5), np.arange(16).reshape(2, 2, 2, 2))
    capacity = LinearConstraint((0, 1), ([0, 1], [0, 1]), 1)
    variables = tuple(Variable(f"x{v}", 2) for v in range(8))
    problem = Problem(variables, (*costs, cubes), linear_constraints=(capacity,))
    tables = ScopeTables.of(problem, keeps_linear=True)
    assert len(tables.linear) == 1
    margin = depth_tree.margins(Root(tables, 40))
    assert margin.tolist() == [-1] * 6 + [2, 2]  # costs of two functions, rounded down


@pytest.mark.parametrize("pause", [1, 10**6])
def test_halves_of_large_domains(pause, monkeypatch):
    """Decisions about halves, one within the other, their opposites, and paths of both that are put back."""
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", pause)
    decisions, nodes = set(), 0
    own = depth_tree.restore

    def noted(*arguments):
        path = arguments[-1]
        decisions.update(path[:, DECISION].tolist())
        assert (path[:, AFTER] >= 1).all()
        assert (path[:, AFTER] < path[:, BEFORE]).all()
        return own(*arguments)

    monkeypatch.setattr(depth_tree, "restore", noted)
    for seed in range(20):
        random = np.random.default_rng(seed)
        sizes = random.integers(MOST_TRIED - 2, MOST_TRIED + 8, size=4).tolist()
        functions = []
        for scope in combinations(range(4), 2):
            costs = random.integers(0, 40, size=[sizes[v] for v in scope])
            functions.append(Function.from_array(scope, np.where(random.random(costs.shape) < 0.3, 99, costs)))
        problem = Problem(tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes)), tuple(functions))
        known, made = search(problem)
        assert known.is_closed
        assert known.value == optimum(problem)
        assert known.value == problem.evaluate(known.assignment)
        nodes += made.nodes
    assert nodes > 100
    if pause == 1:
        assert decisions == {IS, IS_NOT, UP_TO, BEYOND}


def test_little_room_for_what_nodes_change_is_enough(monkeypatch):
    monkeypatch.setattr(depth_tree, "FIRST_ROOM", 1)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    problem = random_network(9, 4, 0.9, tightness=0.0, seed=3)
    known, made = search(problem)
    node = made._workers[0].node
    assert known.is_closed
    assert len(node.kept) > len(node.state)  # it has grown
    put_back = []
    monkeypatch.setattr(Worker, "_put_back", lambda worker, own=Worker._put_back: own(put_back.append(1) or worker))
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", 10**9)
    known, made = search(problem, depth_tree.kept_bytes(node) * len(node.state) // len(node.kept))
    assert known.is_closed
    assert len(made._workers[0].node.kept) == len(made._workers[0].node.state)
    assert put_back
    assert made.nodes > 9
    known, made = search(problem, 1)
    assert made.is_over
    assert not known.is_closed


def left_of_functions(network, state):
    """Of each function its uses, what is left of each cell, and whether all of the cell's values are."""
    for first, last in pairwise(network.function_start.tolist()):
        uses = range(first, last)
        sizes = [int(np.diff(network.value_start)[network.variable[use]]) for use in uses]
        start = network.table_start[first]
        table = network.tables[start : start + math.prod(sizes)].astype(np.int64)
        table = table.reshape(sizes[::-1]).T.copy() if len(sizes) == 2 else table.reshape(sizes)
        live = np.ones(sizes, dtype=bool)
        for axis, use in enumerate(uses):
            shape = [-1 if other == axis else 1 for other in range(len(sizes))]
            values, message = network.value_start[network.variable[use]], network.message_start[use]
            live &= (state[values : values + sizes[axis]] != REMOVED).reshape(shape)
            table -= state[message : message + sizes[axis]].reshape(shape)
        yield uses, table, live


def check_node(made):
    """What follows from the state of the node at work, and what it costs in all."""
    worker = made._workers[0]
    root, node, search = made.shared.root, worker.node, worker.search
    network = root.network
    state = node.state
    values = state[: network.value_start[-1]]
    assert values.min() >= 0
    assert values.max() <= REMOVED
    assert (values[root.state[: len(values)] == REMOVED] == REMOVED).all()
    left = [np.flatnonzero(state[low:high] != REMOVED) for low, high in pairwise(network.value_start.tolist())]
    assert node.left.tolist() == [len(values) for values in left]
    is_open = node.left > 1
    tied = np.zeros_like(node.tied)
    assignment = np.array([values[0] for values in left])
    bound = int(search.bounds[search.counts[DEPTH]])
    cost = bound + sum(int(state[low + a]) for low, a in zip(network.value_start, assignment, strict=False))
    for f, (uses, table, live) in enumerate(left_of_functions(network, state)):
        scope = network.variable[list(uses)]
        assert node.open_of[f] == is_open[scope].sum()
        if node.open_of[f] >= 2:
            over = table[np.ix_(*(left[v] for v in scope))].squeeze()
            assert node.is_sum[f] == (over.ndim == 2 and not np.diff(np.diff(over, axis=0), axis=1).any())
        for axis, use in enumerate(uses):
            is_beside_open = node.open_of[f] > is_open[scope[axis]]
            tied[scope[axis]] += node.weight[f] * (is_beside_open and not node.is_sum[f])
            spare = np.where(live, table, 0).min(
                axis=tuple(set(range(len(scope))) - {axis}), where=live, initial=REMOVED
            )
            assert node.stale[use] or (spare[left[scope[axis]]] <= 0).all()
        assert table[live].min() >= 0
        cost += int(table[tuple(assignment[scope])])
    assert node.tied.tolist() == tied.tolist()
    fresh = Root(made._tables, root.threshold)
    expected = sum(int(fresh.state[low + a]) for low, a in zip(network.value_start, assignment, strict=False))
    for uses, table, _ in left_of_functions(network, np.zeros_like(state)):
        expected += int(table[tuple(assignment[network.variable[list(uses)]])])
    assert cost == expected


@pytest.mark.parametrize("arity", [2, 3, 4])
def test_at_every_node_nothing_is_lost_and_only_what_is_stale_has_more_to_spare(arity, monkeypatch):
    """Also after going back: what was moved adds up, and what follows from the values left is right."""
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(depth_search, "NARROWER", 0.0)
    monkeypatch.setattr(depth_search, "CALL_SECONDS", 1e-12)  # a node a call
    nodes = gone = sums = 0
    for seed in range(30):
        problem = network(seed, arity)
        forbidden = [Constraint((v,), [[1]]) for v, size in enumerate(problem.sizes) if size == 3]  # gone at the root
        problem = replace(problem, constraints=(*problem.constraints, *forbidden))
        made = DepthSearch(whole(problem), SharedBounds(problem, NO_GAP, lambda *_: None), 1 << 20)
        while not made.is_over:
            made.work(0.0, Deadline())
            if any(worker.is_at_node and not worker.is_refuted for worker in made._workers):
                check_node(made)
                nodes += 1
                gone += int((made.shared.root.state == REMOVED).sum())
                sums += int(made._workers[0].node.is_sum.sum())
    assert min(nodes, gone) > 20
    assert sums > 2


def test_loading_runs_the_loop_of_the_search(monkeypatch):
    """Its first nodes would take as long as loading it, else, and the pace says what more are worth."""
    calls = []
    own = depth_tree.search_depth_first
    monkeypatch.setattr(depth_tree, "search_depth_first", lambda *given: calls.append(1) or own(*given))
    depth_search.load_loops()
    assert calls


def test_the_deadline_ends_it():
    problem = random_network(12, 6, 0.9, tightness=0.0, seed=3)
    made = DepthSearch(whole(problem), SharedBounds(problem, NO_GAP, lambda *_: None), 1 << 30)
    with pytest.raises(TimeLimitError):
        made.work(math.inf, Deadline(0.0))


def test_it_ends_a_solve_by_itself(monkeypatch):
    problem = parity_checks(12, 8, 1)
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    Searches(problem, SolveOptions(), known, Deadline()).first(math.inf)
    assert known.is_closed
    assert known.value == pytest.approx(optimum(problem), abs=1e-9)


def conflicts(count: int, part: float, seed: int) -> Problem:
    """A random graph, of whose vertices as many as possible are chosen without two neighbours."""
    random = np.random.default_rng(seed)
    functions = [Function((v,), [[0]], [int(random.integers(1, 9))], 0) for v in range(count)]
    pairs = [(u, v) for u in range(count) for v in range(u) if random.random() < part]
    constraints = [Constraint(pair, [[1, 1]]) for pair in pairs]
    return Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), tuple(functions), tuple(constraints))


def warehouses(count: int, stores: int, seed: int, near: int | None = None) -> tuple[Problem, int]:
    """Which warehouses to open for some stores, and what that costs at least, by trying all of it; only ``near`` are
    not too far from each store."""
    random = np.random.default_rng(seed)
    opening, distance = random.integers(20, 60, count), random.integers(1, 40, (stores, count))
    if near is not None:
        distance[np.argsort(random.random(distance.shape), axis=1) >= near] += 10_000
    functions = [Function.from_array((w,), [0, int(cost)]) for w, cost in enumerate(opening)]
    functions += [Function.from_array((count + s,), distance[s]) for s in range(stores)]
    closed = [Constraint((w, count + s), [[0, w]]) for s in range(stores) for w in range(count)]
    sizes = [2] * count + [count] * stores
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    is_open = np.indices((2,) * count).reshape(count, -1).T[1:].astype(bool)
    costs = [opening[chosen].sum() + distance[:, chosen].min(axis=1).sum() for chosen in is_open]
    return Problem(variables, tuple(functions), tuple(closed)), int(min(costs))


@pytest.mark.parametrize("seed", range(3))
def test_supply_is_for_linear_programs_first(seed):
    problem, best = warehouses(7, 12, seed)
    rounds = Searches(problem, SolveOptions(), SharedBounds(problem, NO_GAP, lambda *_: None), Deadline())
    rounds.first(math.inf)
    assert rounds.seconds == 0
    rounds.open()
    assert rounds.seconds > 0, "small problems are searched before the linear program"
    assert rounds.first_seconds == FIRST_SECONDS, "elimination and mini-buckets come after a longer search"
    large, _ = warehouses(7, FEW_EXCLUDED // 7 + 1, seed)
    assert not RowProblem(large).goes_first
    assert not is_supply(conflicts(24, 0.6, seed))
    assert not is_supply(replace(problem, functions=(*problem.functions, Function((0, 1), [[0, 0]], [1], 0))))
    result = oocbe.solve(problem)
    assert (result.status, result.value) == ("optimal", best)


@pytest.mark.parametrize("seed", range(3))
def test_values_that_the_first_assignment_rules_out_leave_the_search(seed, monkeypatch):
    problem, best = warehouses(12, 24, seed, 4)
    nodes, waited, given = [], [0.0], depth_search.reduced

    def slowly(*arguments):
        waited[0] += 1000.0
        return given(*arguments)

    monkeypatch.setattr(depth_search, "reduced", slowly)
    monkeypatch.setattr(subsolver, "working_time", lambda: working_time() + waited[0])
    for share in (0.0, depth_search.NARROWER):
        monkeypatch.setattr(depth_search, "NARROWER", share)
        known = SharedBounds(problem, NO_GAP, lambda *_: None)
        made = DepthSearch(whole(problem), known, 1 << 30)
        made.work(math.inf, Deadline())
        assert (known.lower, known.value) == (best, best)
        nodes.append(made.nodes)
    assert made._reduction.before is not None
    assert nodes[1] < nodes[0]
    assert waited[0]
    assert made.seconds < 1000.0, "another reduction is no part of the head start, as the first"


def test_supply_of_few_near_stores_is_searched_before_linear_programs():
    for near, is_first in ((3, True), (None, False)):
        problem, _ = warehouses(10, FEW_EXCLUDED // 10 + 1, 1, near)
        known = SharedBounds(problem, NO_GAP, lambda *_: None)
        rounds = Searches(problem, SolveOptions(), known, Deadline())
        assert not rounds.form.goes_first
        found = find_incumbent(problem, math.inf, iterations=100)
        known.offer(found.value, found.assignment, "local search")
        rounds.join_bounds()
        assert rounds.waits_for_bounds != is_first


def test_supply_of_too_many_values_for_a_linear_program_of_values_is_searched_first(monkeypatch):
    """Warehouses of 72 places and 144 stores waited for dual ascent, and did not end in 20 s."""
    problem, best = warehouses(10, FEW_EXCLUDED // 10 + 1, 1)
    rounds = Searches(problem, SolveOptions(), SharedBounds(problem, NO_GAP, lambda *_: None), Deadline())
    assert rounds.waits_for_bounds
    monkeypatch.setattr(forbidden, "MOST_LITERALS", sum(problem.sizes) - 1)
    assert not rounds.waits_for_bounds
    assert oocbe.solve(problem).value == best


def test_supply_of_many_rows_is_not_eliminated_first():
    problem, _ = warehouses(7, 12, 1)
    choice = easy_orders(problem, SolveOptions())[0]
    most = tuning().searched_rows
    few, many = (replace(choice, predicted_rows=(rows,)) for rows in (most, most + 1))
    assert needs_no_bounds(problem, problem.semiring, few, SolveOptions())
    assert not needs_no_bounds(problem, problem.semiring, many, SolveOptions())
    other = conflicts(20, 0.5, 1)
    assert needs_no_bounds(other, other.semiring, many, SolveOptions())


def test_one_solve_makes_the_graph_of_a_problem_once(monkeypatch):
    made = []
    own = PrimalGraph.__init__

    def noted(graph, problem):
        made.append(problem)
        own(graph, problem)

    monkeypatch.setattr(PrimalGraph, "__init__", noted)
    problem, best = warehouses(12, 30, 1)
    assert oocbe.solve(problem).value == best
    assert made
    assert len(made) == len({id(each) for each in made})


def test_packing_is_for_linear_programs_first_unless_choices_forbid_most_others():
    for part, is_tried in ((0.08, False), (0.6, True)):
        problem = conflicts(24, part, seed=2)
        real = tuple(replace(f, values=f.values * 0.37) for f in problem.functions)  # no stable sets of integers
        problem = replace(problem, functions=real)
        known = SharedBounds(problem, NO_GAP, lambda *_: None)
        rounds = Searches(problem, SolveOptions(), known, Deadline())
        rounds.first(math.inf)
        assert (rounds.seconds > 0) == is_tried
        assert known.is_closed == is_tried
        rounds.lay_out()
        rounds.portfolio.run(partial(getattr, known, "is_closed"))
        assert known.is_closed
        assert rounds.seconds > 0


def cover(sets: int, elements: int, values: int, seed: int) -> Problem:
    """Which sets to take so that each element is in one; a set has so many ways to be left out."""
    random = np.random.default_rng(seed)
    costs = [[*range(values - 1), int(cost)] for cost in random.integers(10, 100, sets)]
    functions = [Function.from_array((s,), own) for s, own in enumerate(costs)]
    left_out = np.indices((values - 1,) * 3).reshape(3, -1).T
    scopes = [tuple(sorted(random.choice(sets, 3, replace=False).tolist())) for _ in range(elements)]
    variables = tuple(Variable(f"x{s}", values) for s in range(sets))
    return Problem(variables, tuple(functions), tuple(Constraint(scope, left_out) for scope in scopes))


def test_covers_are_searched_before_their_linear_program(monkeypatch):
    monkeypatch.setattr(searches, "HEAD_START", math.inf)
    problem = cover(14, 20, 2, 1)
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    Searches(problem, SolveOptions(), known, Deadline()).open()
    assert known.is_closed
    assert known.value == optimum(problem)
    wider = cover(40, 12, 3, 1)  # of more values, as photographs have
    rounds = Searches(wider, SolveOptions(), SharedBounds(wider, NO_GAP, lambda *_: None), Deadline())
    rounds.open()
    assert rounds.seconds == 0
