"""Agents find what brute force finds, whatever the pseudo-tree; bounds are bounds; messages go along the tree."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from oocbe.dcop import Dcop, adpop, dpop, pseudo_tree, pseudo_trees
from oocbe.dcop.protocol import forbidding, simulated_seconds
from oocbe.dcop.pseudo_trees import AUTO, HEURISTICS, SEARCHES
from oocbe.elimination.preparation.prepare import scopes_of
from oocbe.errors import ModelError, UnsupportedError, UsageError, ValueRangeError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, MIN_SUM
from tests.helpers.effort import examples, in_turns
from tests.helpers.small_problems import brute_force, check, forms_by_coin, make_problem, structures

PROBLEMS = structures((MIN_SUM, MAX_SUM))
QUICK = settings(max_examples=examples(120), suppress_health_check=list(HealthCheck), derandomize=True)


def ring(count: int, size: int = 3, seed: int = 0, semiring=MIN_SUM) -> Problem:
    random = np.random.default_rng(seed)
    functions = [
        Function.from_array((v, (v + 1) % count), random.integers(0, 100, size=(size, size))) for v in range(count)
    ]
    return Problem(tuple(Variable(f"x{v}", size) for v in range(count)), tuple(functions), semiring=semiring)


@QUICK
@given(PROBLEMS, st.sampled_from([AUTO, *HEURISTICS]), st.sampled_from(["auto", "incomplete", "complete"]))
def test_the_optimum_is_found(structure, heuristic, tables):
    problem = make_problem(structure)
    expected = brute_force(problem)
    with forms_by_coin(structure["seed"]):
        tree = pseudo_tree(problem, heuristic)
        result = dpop(problem, tree=tree, tables=tables)
    assert result.status == ("infeasible" if expected is None else "optimal")
    check(problem, result.value, result.assignment, expected)
    assert result.bound == result.value
    if result.assignment is not None:
        assert result.metrics.util_messages == result.metrics.value_messages
        assert result.metrics.util_messages == len(problem.variables) - len(tree.roots)


@QUICK
@given(PROBLEMS, st.integers(1, 5), st.sampled_from([AUTO, *HEURISTICS]))
def test_bounds_are_on_the_right_side(structure, z, heuristic):
    problem = make_problem(structure)
    expected = brute_force(problem)
    result = adpop(problem, z, tree=pseudo_tree(problem, heuristic))
    if result.status == "infeasible":
        assert expected is None
        return
    if expected is not None:
        sign = -1 if problem.semiring is MAX_SUM else 1
        assert sign * result.bound <= sign * expected
        if result.assignment is not None:
            reached = problem.evaluate(result.assignment)
            assert reached == result.value
            assert sign * reached >= sign * expected - 1e-9
    if result.status == "optimal":
        check(problem, result.value, result.assignment, expected)


@QUICK
@given(PROBLEMS, st.sampled_from([AUTO, *HEURISTICS]))
def test_what_shares_a_constraint_lies_on_one_branch(structure, heuristic):
    problem = make_problem(structure)
    tree = pseudo_tree(problem, heuristic)

    def ancestors(v: int) -> list[int]:
        found = []
        while (v := tree.parent[v]) is not None:
            found.append(v)
        return found

    above = [ancestors(v) for v in range(len(problem.variables))]
    for v, separator in enumerate(tree.separators):
        assert tree.depth[v] == len(above[v])
        assert [u for u in above[v] if u in separator] == list(separator)
    for scope in scopes_of(problem):
        deepest = max(scope, key=tree.depth.__getitem__, default=None)
        if deepest is not None:
            assert set(scope) - {deepest} <= set(tree.separators[deepest])
    if heuristic in SEARCHES:  # the edges of a search are edges of the graph
        pairs = {(u, v) for scope in scopes_of(problem) for u in scope for v in scope}
        assert all(up is None or (v, up) in pairs for v, up in enumerate(tree.parent))


def test_a_root_can_be_chosen():
    problem = ring(6)
    for root in (4, "x4"):
        tree = pseudo_tree(problem, root=root)
        assert tree.roots == (4,)
        assert tree.width == 2
    assert pseudo_tree(problem, "max-degree").heuristic == "max-degree"


@pytest.mark.parametrize(
    ("heuristic", "root", "message"),
    [
        ("widest", None, "unknown heuristic 'widest'.*known: auto, max-degree"),
        (AUTO, "y", r"the root: .*no variable 'y'"),
        (AUTO, 9, r"the root: .*no variable 9"),
        ("min-fill", "x0", "min-fill chooses the root by itself"),
    ],
)
def test_trees_that_cannot_be(heuristic, root, message):
    with pytest.raises(UsageError, match=message):
        pseudo_tree(ring(4), heuristic, root)


def test_messages_of_a_forest_and_of_agents_with_several_variables():
    one, other = ring(5, seed=1), ring(4, seed=2)
    moved = tuple(replace(f, scope=tuple(v + 5 for v in f.scope)) for f in other.functions)
    names = tuple(Variable(f"x{v}", 3) for v in range(10))
    problem = Problem(names, one.functions + moved, constant=7)  # x9 is about nothing
    result = dpop(Dcop(problem, ("a", "b", "idle"), (0, 0, 1, 1, 0, 1, 1, 0, 0, 1)))
    assert result.value == brute_force(problem)
    assert result.metrics.trees == 3
    assert result.metrics.util_messages == result.metrics.value_messages == 7
    assert 0 < result.metrics.messages_between_agents < 7
    between = {(m.sender, m.receiver) for m in result.metrics.messages}
    assert len(between) == 7


def test_each_message_is_measured():
    problem = ring(6, size=4)
    found = dpop(problem, tree=pseudo_tree(problem, "max-degree"), tables="complete").metrics
    largest = found.largest_message
    assert (largest.cells, largest.complete_bytes, largest.rows, largest.tables) == (16, 64, 16, 1)
    assert sum(m.cells for m in found.messages) == 4 * 16 + 4
    assert found.simulated_seconds <= found.work_seconds + 1e-9


def test_adpop_sends_one_message_an_edge_with_all_tables():
    random = np.random.default_rng(3)
    pairs = [(u, v) for u in range(6) for v in range(u)]
    functions = tuple(Function.from_array(pair, random.integers(0, 50, size=(3, 3))) for pair in pairs)
    problem = Problem(tuple(Variable(f"x{v}", 3) for v in range(6)), functions)
    best = brute_force(problem)
    bounds = []
    for z in (2, 3, 4, 6):
        result = adpop(problem, z)
        assert result.metrics.util_messages == 5
        assert result.bound <= best <= result.value
        bounds.append(result.bound)
        assert (max(m.tables for m in result.metrics.messages) > 1) == (z < 6)
        assert max(m.cells for m in result.metrics.messages) <= 3**5
    assert bounds[-1] == best > bounds[0]


def test_messages_go_to_disk_where_memory_is_short(tune, memory_folder):
    tune(message_bytes=1 << 10)
    problem = ring(9, size=12)
    result = dpop(problem, workdir=memory_folder, tree=pseudo_tree(problem, "max-degree"))
    assert result.value == dpop(problem).value
    assert list(memory_folder.iterdir()) == []


def test_simulated_time_is_that_of_the_longest_branch():
    star = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(4)),
        tuple(Function.from_array((0, v), np.arange(4).reshape(2, 2)) for v in (1, 2, 3)),
    )
    tree = pseudo_tree(star, root=0)
    util, value = [5.0, 1.0, 2.0, 3.0], [0.5, 0.25, 0.0, 0.0]
    assert simulated_seconds(tree, range(4), util, value) == 3 + 5 + 0.5 + 0.25
    # Two leaves of one agent are worked for one after the other.
    assert simulated_seconds(tree, [0, 1, 1, 2], util, value) == 3 + 5 + 0.5 + 0.25
    assert simulated_seconds(tree, [0, 1, 1, 1], util, value) == 6 + 5 + 0.5 + 0.25
    assert simulated_seconds(tree, [0, 0, 0, 0], util, value) == sum(util) + sum(value)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_cost_that_stands_for_infinity_is_forbidden(sign):
    semiring = MIN_SUM if sign == 1 else MAX_SUM
    table = np.array([[10000, 3], [5, 10000]]) * sign
    listed = Function((1, 2), [[0, 0], [1, 1]], np.array([10000, 10000]) * sign, default=2 * sign)
    default = Function((0, 2), [[0, 1], [1, 1]], np.array([1, 4]) * sign, default=10000 * sign)
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(3)),
        (Function.from_array((0, 1), table), listed, default),
        semiring=semiring,
    )
    changed, value = forbidding(problem)
    assert value == 10000 * sign
    assert brute_force(changed) == brute_force(problem) or brute_force(changed) is None
    result = dpop(problem)
    assert result.value == brute_force(problem)
    assert any("10000" in note for note in result.notes)


def test_costs_that_may_be_worth_their_price_are_not_forbidden():
    # Ten times 30 is more than 200: the largest cost can be part of the optimum.
    dear = Function.from_array((0,), [200, 0])
    rest = tuple(Function.from_array((0, v), [[0, 0], [20, 20]]) for v in range(1, 12))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(12)), (dear, *rest))
    assert forbidding(problem) is None
    assert dpop(problem).value == 200


@QUICK
@given(PROBLEMS)
def test_forbidding_keeps_the_optimum(structure):
    problem = make_problem(structure)
    dear = Function((0,), [[0]], np.array([1000 if problem.semiring is MIN_SUM else -1000]), default=0)
    assume(len(problem.variables) > 0)
    problem = replace(problem, functions=(*problem.functions, dear), upper_bound=None)
    found = forbidding(problem)
    if found is not None and (expected := brute_force(found[0])) is not None:
        assert math.isclose(brute_force(problem), expected, rel_tol=1e-9, abs_tol=1e-9)


def test_problems_that_agents_do_not_solve():
    with pytest.raises(UnsupportedError, match="agents minimise or maximise a sum, and its semiring is max-product"):
        dpop(ring(3, semiring=MAX_PRODUCT))
    with pytest.raises(ModelError, match="2 owners for 3 variables; each needs an agent"):
        Dcop(ring(3), ("a", "b"), (0, 1))
    with pytest.raises(ModelError, match="variable x2 belongs to agent 5; there are 2"):
        Dcop(ring(3), ("a", "b"), (0, 1, 5))
    with pytest.raises(ModelError, match="names of agents must be unique"):
        Dcop(ring(3), ("a", "a"), (0, 1, 1))
    with pytest.raises(UsageError, match="z: 0 is not an integer of at least 1"):
        adpop(ring(3), 0)
    with pytest.raises(UsageError, match="the pseudo-tree has 4 variables, problem 3"):
        dpop(ring(3), tree=pseudo_tree(ring(4)))
    with pytest.raises(UsageError, match="ub: agents have no use for it"):
        dpop(ring(3), ub=4)
    with pytest.raises(UsageError, match="workers: -1 is not an integer of at least 0"):
        dpop(ring(3), workers=-1)
    assert dpop(ring(3), workers="0").value == dpop(ring(3)).value  # type: ignore[arg-type]


@pytest.mark.parametrize("tables", ["auto", "incomplete"])
@pytest.mark.parametrize(("base", "room"), in_turns((2**53 + 2, 2**54 + 3, 2**56 + 1, 2**60 + 128), (1, 2, 60, None)))
def test_integers_beyond_float64_stay_exact(base, room, tables):
    costs = Function.from_array((0, 1), [[base, base + 1], [base + 7, base + 9]])
    limit = None if room is None else base + 1 + room
    problem = Problem((Variable("a", 2), Variable("b", 2)), (costs,), constant=1, upper_bound=limit)
    exact = dpop(problem, tables=tables)
    assert (exact.status, exact.value) == ("optimal", base + 1)
    bounded = adpop(problem, 1, tables=tables)
    assert isinstance(bounded.bound, int)
    assert bounded.bound <= base + 1 == bounded.value
    utilities = replace(problem, semiring=MAX_SUM, upper_bound=None)
    assert dpop(utilities, tables=tables).value == base + 10
    assert adpop(utilities, 1, tables=tables).bound >= base + 10


def test_complete_tables_are_refused_where_all_values_together_leave_no_room():
    far = 2**60 - 2  # the values of each agent leave room, their sum does not
    own = tuple(Function.from_array((v,), [far - 7 * v, far]) for v in range(2))
    problem = Problem((Variable("a", 2), Variable("b", 2)), own)
    with pytest.raises(ValueRangeError, match="use --tables auto"):
        dpop(problem, tables="complete")
    assert dpop(problem).value == 2 * far - 7


def test_nothing_is_feasible():
    impossible = Constraint((0, 1), np.zeros((0, 2), dtype=int), allowed=True)
    result = dpop(replace(ring(4), constraints=(impossible,)))
    assert (result.status, result.value, result.exit_code) == ("infeasible", None, 10)
    assert result.metrics.util_messages == 3


def test_a_time_limit_is_a_status():
    result = dpop(ring(6), time_limit=1e-9)
    assert (result.status, result.exit_code, result.value) == ("limit", 20, None)
    assert result.to_json(with_messages=True)["metrics"]["messages"] == []


def test_a_search_for_trees_is_linear_in_the_agents(monkeypatch):
    """Of many parts, each loop is over the variables of one part, and not over those of all."""
    count, vertices = 3000, []
    search = pseudo_trees.search_depth_first
    monkeypatch.setattr(
        pseudo_trees, "search_depth_first", lambda start, *rest: vertices.append(len(start) - 1) or search(start, *rest)
    )
    pairs = tuple(Function.from_array((v, count - 1 - v), [[0, 1], [1, 0]]) for v in range(0, count // 2, 2))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), pairs)
    tree = pseudo_tree(problem)
    assert sum(vertices) <= 2 * len(pairs) * 2 * len(SEARCHES)
    assert len(tree.roots) == count - len(pairs) and tree.width == 1
    for f in pairs:
        child, parent = sorted(f.scope, key=lambda v: -tree.depth[v])
        assert tree.parent[child] == parent and tree.separators[child] == (parent,)
    assert all(tree.parent[v] is None and tree.separators[v] == () for v in tree.roots)


@pytest.mark.parametrize("heuristic", [AUTO, *SEARCHES])
def test_trees_of_several_parts_begin_with_the_root_asked_for(heuristic):
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(6)),
        tuple(Function.from_array(scope, [[0, 1], [1, 0]]) for scope in ((0, 3), (3, 5), (5, 0), (2, 4))),
    )
    tree = pseudo_tree(problem, heuristic, root="x5")
    assert 5 in tree.roots and 1 in tree.roots and len(tree.roots) == 3
    assert {tree.depth[v] for v in (0, 3)} == {1, 2} and tree.depth[2] + tree.depth[4] == 1
