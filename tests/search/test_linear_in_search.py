"""Linear constraints over many variables in the depth-first search: values excluded, multipliers, what goes before."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import oocbe
from oocbe.bounds import row_tables
from oocbe.bounds.row_reduction import Reduction, reduced
from oocbe.bounds.row_tables import ScopeTables
from oocbe.elimination.plan.plan import easy_orders, needs_no_bounds
from oocbe.elimination.preparation.packing import is_packing
from oocbe.kernels.cpu.projection import REMOVED
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search import depth_search, depth_tree
from oocbe.search.depth_search import DepthSearch
from oocbe.search.depth_tree import Root, laid_out
from oocbe.search.kernels.cpu.depth_first import DEPTH
from oocbe.search.presolve import is_easy
from oocbe.search.searches import Searches
from oocbe.search.subsolver import SharedBounds
from tests.helpers.bound_problems import optimum
from tests.helpers.effort import examples
from tests.helpers.small_problems import all_values

NO_GAP = SolveOptions().gap


@pytest.fixture(autouse=True)
def _kept_from_four_cells(monkeypatch):
    """Small constraints are kept as they are, too, as brute force has an end; no assignment is known at first."""
    monkeypatch.setattr(row_tables, "LARGEST_LINEAR", 4)
    monkeypatch.setattr(row_tables, "LARGEST_CLAUSE", 4)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)


def limited(seed: int) -> Problem:
    """Costs of any kind under a few linear constraints: capacities, demands, equations, of any sign and size."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 4, size=int(random.integers(3, 8))).tolist()
    count = len(sizes)
    is_real = random.random() < 0.25
    functions, constraints = [], []
    for arity in (1, 1, 2, 2, 2, 3):
        for _ in range(2):
            scope = tuple(random.choice(count, size=min(arity, count), replace=False).tolist())
            shape = [sizes[v] for v in scope]
            costs = random.integers(-5, 15, size=shape)
            functions.append(Function.from_array(scope, costs * 0.37 if is_real else costs))
            if random.random() < 0.2:
                constraints.append(Constraint(scope, np.argwhere(random.random(shape) < 0.15)))
    linear = []
    for _ in range(int(random.integers(1, 4))):
        scope = tuple(random.choice(count, size=int(random.integers(2, count + 1)), replace=False).tolist())
        large = int(random.choice([2, 10, 10**6]))
        own = tuple(random.integers(-large, large + 1, size=sizes[v]) for v in scope)
        middle = sum(int(c.mean()) for c in own)
        linear.append(LinearConstraint(scope, own, middle + int(random.integers(-large, large + 1))))
        if random.random() < 0.2:  # an equation that some assignment satisfies
            value = sum(int(random.choice(c)) for c in own)
            linear[-1] = replace(linear[-1], capacity=value)
            linear.append(LinearConstraint(scope, tuple(-c for c in own), -value))
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    return Problem(variables, tuple(functions), tuple(constraints), tuple(linear), name=f"limited {seed}")


def searched(problem: Problem, is_reduced: bool) -> tuple[SharedBounds, DepthSearch]:
    """Run a search to its end; every bound on the way is checked."""
    best = optimum(problem)
    tables = ScopeTables.of(problem, keeps_linear=True)
    assert tables is not None
    reduction = (
        reduced(tables) if is_reduced else Reduction(tables, tuple(range(len(problem.sizes))), (), problem.sizes)
    )
    tolerance = 4 * tables.rounding

    def check(lower, value, why, assignment):
        assert value is None or value >= best - tolerance, (problem.name, why, value, best)
        assert lower is None or lower <= best + tolerance, (problem.name, why, lower, best)

    known = SharedBounds(problem, NO_GAP, check)
    made = DepthSearch(reduction, known, 1 << 30)
    made.work(math.inf, Deadline())
    return known, made


@pytest.mark.parametrize(("pause", "is_reduced"), [(1, False), (3, True), (10**6, False)])
def test_the_optimum_under_linear_constraints(pause, is_reduced, monkeypatch):
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", pause)
    nodes = kept = infeasible = 0
    for seed in range(examples(200)):
        problem = limited(seed)
        best = optimum(problem)
        known, made = searched(problem, is_reduced)
        assert known.is_closed, problem.name
        if best == math.inf:
            infeasible += 1
            assert known.value is None
        else:
            assert known.value == pytest.approx(best, rel=1e-9, abs=1e-9), problem.name
            assert problem.evaluate(known.assignment) == pytest.approx(best, rel=1e-9, abs=1e-9)
        nodes += made.nodes
        kept += len(made._tables.linear)
    assert nodes > examples(200) or is_reduced
    assert kept > examples(100) or is_reduced
    assert infeasible


def check_assignments(made: DepthSearch, lows: list[list[int]]) -> None:
    """That no permitted assignment of the values left costs more by the node's state than by the functions."""
    worker = made._workers[0]
    network, node, search = made.shared.root.network, worker.node, worker.search
    linear = laid_out(made._tables)
    for values in np.ndindex(*map(len, lows)):
        assignment = [low[a] for low, a in zip(lows, values, strict=True)]
        if not all(c.permits(assignment) for c in made._tables.linear):
            continue
        cost = int(search.bounds[search.counts[DEPTH]])
        cost += sum(int(node.state[network.value_start[v] + a]) for v, a in enumerate(assignment))
        for f in range(len(network.function_start) - 1):
            uses = range(network.function_start[f], network.function_start[f + 1])
            sizes = [int(np.diff(network.value_start)[network.variable[use]]) for use in uses]
            own = [assignment[network.variable[use]] for use in uses]
            table = network.tables[network.table_start[uses[0]] :][: math.prod(sizes)]
            table = table.reshape(sizes[::-1]).T if len(sizes) == 2 else table.reshape(sizes)
            cost += int(table[tuple(own)])
            cost -= sum(int(node.state[network.message_start[use] + a]) for use, a in zip(uses, own, strict=True))
        fresh = Root(made._tables, made.shared.root.threshold)
        true = sum(int(fresh.state[network.value_start[v] + a]) for v, a in enumerate(assignment))
        for f in range(len(network.function_start) - 1):
            uses = range(network.function_start[f], network.function_start[f + 1])
            sizes = [int(np.diff(network.value_start)[network.variable[use]]) for use in uses]
            table = network.tables[network.table_start[uses[0]] :][: math.prod(sizes)]
            table = table.reshape(sizes[::-1]).T if len(sizes) == 2 else table.reshape(sizes)
            true += int(table[tuple(assignment[network.variable[use]] for use in uses)])
        assert cost <= true
        # Nothing is lost but what rounding takes, and what is left of capacities is worth.
        slack = sum(
            int(node.state[linear.place[c]]) * (own.capacity - own.consumption(assignment)) / 2 ** int(linear.bits[c])
            for c, own in enumerate(made._tables.linear)
        )
        assert cost >= true - slack - len(assignment) * len(made._tables.linear) - 1


def test_at_every_node_multipliers_make_nothing_dearer(monkeypatch):
    monkeypatch.setattr(depth_search, "NARROWER", 0.0)
    monkeypatch.setattr(depth_search, "CALL_SECONDS", 1e-12)  # a node a call
    nodes = charged = 0
    for problem in (*map(limited, range(examples(50))), *(knapsack(8, seed) for seed in range(examples(30)))):
        tables = ScopeTables.of(problem, keeps_linear=True)
        if tables is None or not tables.linear or tables.is_impossible:
            continue
        whole = Reduction(tables, tuple(range(len(problem.sizes))), (), problem.sizes)
        made = DepthSearch(whole, SharedBounds(problem, NO_GAP, lambda *_: None), 1 << 20)
        while not made.is_over:
            made.work(0.0, Deadline())
            if any(worker.is_at_node and not worker.is_refuted for worker in made._workers):
                start = made.shared.root.network.value_start
                lows = [
                    np.flatnonzero(made._workers[0].node.state[start[v] : start[v + 1]] != REMOVED).tolist()
                    for v in range(len(start) - 1)
                ]
                check_assignments(made, lows)
                nodes += 1
                charged += bool((made._workers[0].node.state[laid_out(made.shared.tables).place] > 0).any())
    assert nodes > 20
    assert charged > 5


def knapsack(items: int, seed: int) -> Problem:
    """Items of which some pairs are worth less together."""
    random = np.random.default_rng(seed)
    functions = [Function((v,), [[0]], [int(gain)], 0) for v, gain in enumerate(random.integers(20, 100, items))]
    pairs = [pair for pair in combinations(range(items), 2) if random.random() < 2 / items]
    functions += [Function(pair, [[1, 1]], [int(random.integers(5, 60))], 0) for pair in pairs]
    weights = random.integers(5, 50, items)
    limit = LinearConstraint(tuple(range(items)), tuple(np.array([0, w]) for w in weights), int(weights.sum() // 3))
    variables = tuple(Variable(f"x{v}", 2) for v in range(items))
    return Problem(variables, tuple(functions), linear_constraints=(limit,))


def test_constraints_that_forbid_one_tuple_are_kept_as_linear_ones():
    nodes = 0
    for seed in range(examples(20)):
        random = np.random.default_rng(seed)
        sizes = random.integers(2, 4, size=8).tolist()
        functions = [Function.from_array((v,), random.integers(0, 30, size)) for v, size in enumerate(sizes)]
        functions += [Function((v, v + 1), [[1, 1]], [int(random.integers(1, 20))], 0) for v in range(7)]
        constraints = []
        for _ in range(30):
            scope = tuple(random.choice(8, size=int(random.integers(3, 6)), replace=False).tolist())
            constraints.append(Constraint(scope, [[int(random.integers(sizes[v])) for v in scope]]))
        constraints.append(Constraint((0, 1, 2), [[0, 0, 0], [1, 1, 1]]))  # another one is written out
        problem = Problem(
            tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes)), tuple(functions), tuple(constraints)
        )
        known, made = searched(problem, is_reduced=False)
        assert known.value == optimum(problem)
        assert len(made._tables.linear) == 30
        assert all(part.permitted.all() or part.scope == (0, 1, 2) for part in made._tables.parts)
        assert ScopeTables.of(problem).linear == ()
        nodes += made.nodes
    assert nodes > 20


def test_a_problem_with_a_wide_constraint_is_solved_whole():
    """Of which writing one out takes 2**18 cells."""
    cover = Constraint(tuple(range(18)), [[0] * 18])
    costs = tuple(Function.from_array((v,), [0, 20 + v]) for v in range(18))
    pairs = tuple(Function((v, v + 3), [[0, 1]], [9], 0) for v in range(15))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(18)), (*costs, *pairs), (cover,))
    result = oocbe.solve(problem)
    # Any set taken costs its own and 9 where its own predecessor is not.
    assert (result.status, result.value) == ("optimal", 20)
    assert result.assignment[0] == 1


def test_a_multiplier_raises_the_bound_of_the_root():
    problem = knapsack(14, 1)
    tables = ScopeTables.of(problem, keeps_linear=True)
    without = replace(tables, linear=())
    bounds = []
    for each in (tables, without):
        whole = Reduction(each, tuple(range(14)), (), problem.sizes)
        known = SharedBounds(problem, NO_GAP, lambda *_: None)
        known.offer(optimum(problem), best_assignment(problem), "brute force")
        made = DepthSearch(whole, known, 1 << 30)
        made._root()
        bounds.append(made.shared.root.bound)
    assert bounds[0] > 1.3 * bounds[1]


def best_assignment(problem: Problem) -> tuple[int, ...]:
    """An optimal assignment, by brute force."""
    total, feasible = all_values(problem)
    place = np.where(feasible, total, np.inf).argmin()
    return tuple(int(value) for value in np.unravel_index(place, problem.sizes))


def test_values_that_take_more_do_not_replace_others_in_a_reduction():
    linear = LinearConstraint((0, 1), (np.array([3, 0]), np.array([3, 0])), 3)
    functions = (Function.from_array((0,), [0, 5]), Function.from_array((1,), [0, 7]))
    problem = Problem((Variable("a", 2), Variable("b", 2)), functions, linear_constraints=(linear,))
    tables = replace(ScopeTables.of(replace(problem, linear_constraints=())), linear=(linear,))
    left = reduced(tables)
    assert left.tables.problem.sizes == (2, 2)
    easier = replace(tables, linear=(replace(linear, coefficients=(np.array([0, 3]), np.array([0, 3]))),))
    assert reduced(easier).tables.linear == ()


def test_problems_with_wide_linear_constraints_are_searched_depth_first_and_not_easy():
    problem = knapsack(14, 2)
    assert not is_easy(problem)
    assert is_easy(replace(problem, linear_constraints=()))
    assert not is_packing(problem)
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    rounds = Searches(problem, SolveOptions(), known, Deadline())
    rounds.open()
    assert {*rounds.portfolio.members} == {"depth", "neighbourhoods"}
    rounds.first(math.inf)
    assert known.value == optimum(problem)
    result = oocbe.solve(problem)
    assert (result.status, result.value) == ("optimal", known.value)


@pytest.mark.parametrize("conflicts", [0, 8])
def test_several_knapsacks_are_searched_and_not_eliminated(conflicts):
    """Elimination would carry the four amounts in its rows: nobody foresees how many these are."""
    random = np.random.default_rng(1)
    weights, gains = random.integers(10, 60, (4, 22)), random.integers(20, 60, 22).tolist()
    functions = tuple(Function.from_array((v,), [gain, 0]) for v, gain in enumerate(gains))
    rows = [
        LinearConstraint(tuple(range(22)), tuple(np.array([0, w]) for w in own), int(own.sum() * 0.4))
        for own in weights
    ]
    hard = tuple(Constraint((v, v + 7), [[1, 1]]) for v in range(conflicts))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(22)), functions, hard, tuple(rows))
    result = oocbe.solve(problem, backend="cpu")
    expected = oocbe.solve(problem, bounds="none", backend="cpu")
    assert (result.status, result.value) == ("optimal", expected.value)
    assert [share.name for share in result.solvers] == ["depth"]
    few = easy_orders(problem, SolveOptions())[0]
    assert not needs_no_bounds(problem, problem.semiring, few, SolveOptions())


@pytest.mark.parametrize("bits", [34, 55])
def test_amounts_of_many_bits_are_searched_exactly(bits):
    """Elimination cannot carry them; their prices are rounded, their capacity is not."""
    random = np.random.default_rng(1)
    weights, gains = random.integers(1, 1 << bits, (6, 22)), random.integers(0, 100, 22)
    limits = weights.sum(axis=1) // random.integers(2, 6, 6)

    def sums(of: np.ndarray) -> np.ndarray:
        total = np.zeros(1, dtype=np.int64)
        for own in of:
            total = np.concatenate([total, total + own])
        return total

    fits = np.all([sums(own) <= limit for own, limit in zip(weights, limits, strict=True)], axis=0)
    functions = tuple(Function.from_array((v,), [gain, 0]) for v, gain in enumerate(gains.tolist()))
    rows = [
        LinearConstraint(tuple(range(22)), tuple(np.array([0, w]) for w in own), int(limit))
        for own, limit in zip(weights, limits, strict=True)
    ]
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(22)), functions, linear_constraints=tuple(rows))
    result = oocbe.solve(problem, backend="cpu")
    assert (result.status, result.value) == ("optimal", gains.sum() - sums(gains)[fits].max())
    assert [share.name for share in result.solvers] == ["depth"]


def test_values_that_take_nothing_are_free_in_packing():
    def of(lows: list[int]) -> Problem:
        functions = tuple(Function.from_array((v,), [5, 0]) for v in range(4))
        limit = LinearConstraint((0, 1, 2, 3), tuple(np.array([low, 2]) for low in lows), 4)
        return Problem(tuple(Variable(f"x{v}", 2) for v in range(4)), functions, linear_constraints=(limit,))

    assert is_packing(of([0, 0, 0, 0]))
    choices = (
        LinearConstraint((0, 1, 2, 3), (np.array([0, 3]),) * 4, 6),
        LinearConstraint((0, 1, 2, 3), (np.array([3, 0]),) * 4, 6),
    )
    assert not is_packing(replace(of([0, 0, 0, 0]), linear_constraints=choices))


def test_a_large_root_gets_few_rounds_in_one_compiled_call(monkeypatch):
    rounds = []
    own = depth_tree.restore
    monkeypatch.setattr(depth_tree, "restore", lambda *given: rounds.append(given[-2]) or own(*given))
    for work in (depth_tree.ROOT_WORK, 1):
        monkeypatch.setattr(depth_tree, "ROOT_WORK", work)
        problem = knapsack(10, 3)
        known, _ = searched(problem, is_reduced=False)
        assert known.value == optimum(problem)
        # The calls before are without linear constraints.
        assert next(filter(None, rounds)) == (1 if work == 1 else depth_tree.ROOT_ROUNDS)
        rounds.clear()
