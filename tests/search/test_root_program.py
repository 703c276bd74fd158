"""The linear program of a depth-first search's root: exact shares and multipliers, and searches that begin anew."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest

from oocbe.bounds import row_tables
from oocbe.bounds.row_reduction import Reduction, with_joint_tables
from oocbe.bounds.row_tables import ScopeTables
from oocbe.kernels.cpu.projection import REMOVED
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import Deadline
from oocbe.search import depth_search
from oocbe.search.depth_search import DepthSearch
from oocbe.search.depth_tree import Root, laid_out
from oocbe.search.root_program import RootProgram
from oocbe.search.subsolver import SharedBounds
from tests.helpers.bound_problems import anything, hidden_solution, optimum
from tests.helpers.depth_searches import NO_GAP, begun, blank, check_solved, search, whole
from tests.helpers.effort import examples, in_turns
from tests.search.test_depth_search import left_of_functions, network
from tests.search.test_linear_in_search import limited

pytest.importorskip("highspy")


def raised(problem: Problem) -> tuple[Root, bool] | None:
    """A root that its linear program may have raised, and whether it did; None where no function is left."""
    tables = ScopeTables.of(problem, keeps_linear=True)
    best = optimum(problem)
    threshold = best + max(1, abs(best) // 2) if math.isfinite(best) else 1000
    root, linear = Root(tables, threshold), laid_out(tables)
    if root.bound >= root.need or not len(root.network.tables):
        return None
    root.ascend(linear, blank(root))
    program = RootProgram(root, linear)
    if root.bound >= root.need or not program.solve(root, 10.0):
        return None
    before = root.bound
    has_risen = program.raise_root(root)
    assert has_risen == (root.bound > before)
    return root, has_risen


def check_costs(root: Root) -> None:
    """The bound, the values' costs and what is left of functions cost no more than any assignment that counts."""
    net, state, own = root.network, root.state, np.diff(root.network.value_start)
    fresh = Root(root.tables, root.threshold)
    left, whole = [*left_of_functions(net, state)], [*left_of_functions(net, np.zeros_like(state))]
    for _, table, live in left:
        assert table[live].min(initial=0) >= 0
    for values in product(*map(range, own.tolist())):
        places = net.value_start[:-1] + values
        value = root.tables.evaluate(values)
        if value is None or value >= root.threshold:
            continue
        assert (state[places] != REMOVED).all()
        now, before = root.bound + int(state[places].sum()), int(fresh.state[places].sum())
        for (uses, table, _), (_, full, _) in zip(left, whole, strict=True):
            cell = tuple(np.array(values)[net.variable[[*uses]]])
            now, before = now + int(table[cell]), before + int(full[cell])
        assert now <= before
        assert now == before or root.tables.linear


@pytest.mark.parametrize(
    ("make", "are_joined"),
    in_turns((anything, limited, partial(network, arity=2), partial(network, arity=3)), (False, True)),
)
def test_shares_and_multipliers_only_move_costs(make, are_joined, monkeypatch):
    monkeypatch.setattr(row_tables, "LARGEST_LINEAR", 4)
    rises = 0
    for seed in range(examples(60)):
        problem = make(seed)
        tables = ScopeTables.of(problem, keeps_linear=True)
        if are_joined and not tables.linear:
            names = tuple(range(len(problem.sizes)))
            tables = with_joint_tables(Reduction(tables, names, (), problem.sizes)).tables
            problem = tables.as_problem()
        found = raised(problem)
        if found is not None:
            check_costs(found[0])
            rises += found[1]
    assert rises or make in (anything, limited)


@pytest.mark.parametrize(("make", "least_joined"), in_turns((anything, hidden_solution, limited), (0.0, 1.0)))
def test_searches_go_on_from_the_program_of_their_root(make, least_joined, monkeypatch):
    """Also with functions joined, where they begin anew."""
    monkeypatch.setattr(row_tables, "LARGEST_LINEAR", 4)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(depth_search, "CALL_SECONDS", 1e-12)  # a node a call
    monkeypatch.setattr(depth_search, "PROGRAM_SECONDS", 0.0)
    monkeypatch.setattr(depth_search, "PROGRAM_CELL_SECONDS", 0.0)
    monkeypatch.setattr(depth_search, "PROGRAM_COLUMN_SECONDS", 0.0)
    monkeypatch.setattr(depth_search, "LEAST_JOINED", least_joined)
    monkeypatch.setattr(depth_search, "LEAST_NEARER", -np.inf)
    solved = 0
    given = RootProgram.solve
    monkeypatch.setattr(RootProgram, "solve", lambda *given_to: made.append(given(*given_to)) or made[-1])
    for seed in range(examples(60)):
        made: list[bool] = []
        problem = make(seed)
        known, searched = search(problem)
        check_solved(problem, known, searched)
        solved += sum(made)
    assert solved > examples(60) // 10


def pixels(seed: int) -> tuple[Problem, tuple[int, ...]]:
    """A grid of 64 pixels with three labels, and the assignment of the dearest ones."""
    costs = np.random.default_rng(seed).integers(0, 100, size=(64, 3))
    pairs = [(v, v + 1) for v in range(64) if v % 8 < 7] + [(v, v + 8) for v in range(56)]
    functions = [Function.from_array((v,), own) for v, own in enumerate(costs)]
    functions += [Function.from_array(pair, 40 * (1 - np.eye(3, dtype=np.int64))) for pair in pairs]
    problem = Problem(tuple(Variable(f"x{v}", 3) for v in range(64)), tuple(functions))
    return problem, tuple(costs.argmax(axis=1).tolist())


def test_an_exact_program_closes_a_search_below_a_poor_incumbent(monkeypatch):
    """Its gain is small beside the distance of the incumbent, and its solution is the optimum."""
    monkeypatch.setattr(depth_search, "PROGRAM_COLUMN_SECONDS", 0.0)
    monkeypatch.setattr(depth_search, "MANY_FUNCTIONS", np.inf)
    closed = 0
    for seed in range(5):
        problem, dearest = pixels(seed)
        known = SharedBounds(problem, NO_GAP, lambda *_: None)
        known.offer(problem.evaluate(dearest), dearest, "the dearest values")
        made = DepthSearch(whole(problem), known, 1 << 30)
        made.work(0.0, Deadline())
        is_open = not known.is_closed
        made._solve_program(Deadline())
        closed += is_open and known.is_closed
    assert closed


def test_the_root_of_a_search_gives_a_near_assignment():
    for seed in range(5):
        problem, dearest = pixels(seed)
        known = SharedBounds(problem, NO_GAP, lambda *_: None)
        known.offer(problem.evaluate(dearest), dearest, "the dearest values")
        DepthSearch(whole(problem), known, 1 << 30).work(0.0, Deadline())
        assert known.value <= 1.1 * known.lower, "the dearest values cost more than twice as much"


@pytest.mark.parametrize("make", [anything, hidden_solution, limited, partial(network, arity=3)])
def test_searches_that_begin_below_the_nearest_assignment_of_their_root(make, monkeypatch):
    monkeypatch.setattr(depth_search, "MANY_FUNCTIONS", 0)
    for seed in range(examples(60)):
        problem = make(seed)
        known, made = begun(problem)
        made.work(math.inf, Deadline())
        check_solved(problem, known, made)


def test_the_nearest_values_of_a_root_are_the_cheapest_beside_those_before():
    for seed in range(examples(60)):
        problem = anything(seed)
        tables = ScopeTables.of(problem)
        root = Root(tables, 1000)
        if root.bound >= root.need:
            continue
        net, state, chosen = root.network, root.state.tolist(), []
        for v, (start, end) in enumerate(pairwise(net.value_start.tolist())):
            costs = state[start:end]
            for own in (part for part in tables.parts if len(part.scope) == 2 and max(part.scope) == v):
                table = np.where(own.permitted, own.values - own.least, root.need >> max(root.scale.bits, 0))
                beside = np.moveaxis(table, own.scope.index(v), -1)[chosen[min(own.scope)]]
                costs = [cost + int(more) * (1 << root.scale.bits) for cost, more in zip(costs, beside, strict=True)]
            chosen.append(int(np.argmin(costs)))
        assert root.nearest() == chosen
