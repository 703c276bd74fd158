"""Searches near assignments: what they find is worth what they say, and they come to optima."""

from __future__ import annotations

import math
from itertools import combinations, count

import numpy as np
import pytest

from oocbe.bounds.cliques import with_clique_variables
from oocbe.bounds.row_reduction import reduced
from oocbe.bounds.row_tables import ScopeTables
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search import depth_search, depth_tree
from oocbe.search.depth_search import DepthSearch
from oocbe.search.depth_tree import kept_bytes
from oocbe.search.kernels.cpu.depth_first import VALUE, VARIABLE
from oocbe.search.neighbourhoods import LEAST_BITS, MORE_BITS, MOST_BITS, Neighbourhood, Neighbourhoods
from oocbe.search.searches import Searches
from oocbe.search.subsolver import SharedBounds
from oocbe.stress import random_network
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, optimum, photographs
from tests.helpers.depth_searches import NO_GAP, begun, check_solved, search, whole
from tests.helpers.effort import examples, in_turns

ENDLESS = 1e9
"""Seconds in which no test ends a search."""


@pytest.fixture(autouse=True)
def _beside_the_search_from_its_first_node(monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", "1")
    monkeypatch.setattr(depth_search, "ALONE_SECONDS", 0.0)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)  # no assignment to begin with
    monkeypatch.setattr(depth_search, "CALL_SECONDS", 1e-4)
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", 2)


def with_an_assignment(problem):
    """A search that has just found its first assignment."""
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    made = DepthSearch(whole(problem), known, 1 << 30)
    while made.shared is None or (made.shared.wanted < 0).all():
        assert not made.is_over
        made.work(0.0, Deadline())
    return known, made


def one_beside(made):
    """The neighbourhood search of one thread beside a search."""
    (one,) = Neighbourhoods(made, made._known).prepared(1)
    return one


def until(made, count):
    """Have one thread search so many neighbourhoods; returns that search."""
    one = one_beside(made)
    while one.tried < count:
        one.work(working_time() + 1e-4, Deadline(math.inf))
    return one


@pytest.mark.parametrize(
    ("make", "how"), in_turns((anything, photographs, costly_photographs, hidden_solution), (("1", False), ("4", True)))
)
def test_the_optimum_and_bounds_with_neighbourhoods_beside(make, how, monkeypatch):
    threads, is_reduced = how
    monkeypatch.setenv("OOCBE_THREADS", threads)
    monkeypatch.setattr(depth_search, "ROUND_SECONDS", 1e-3)
    monkeypatch.setattr(depth_search, "BESIDE_SECONDS", 1e-4)
    for seed in range(examples(30)):
        problem = make(seed)
        known, made = begun(problem, is_reduced=is_reduced)  # whatever they report is checked
        near = Neighbourhoods(made, known)
        assert not near.is_available, "there is no assignment"
        for turn in count():
            made.work(0.0, Deadline())
            if made.is_over:
                break
            if near.is_available and turn < 200:  # later ones took minutes on a loaded machine: threads wait in turn
                near.work(1e-4, Deadline())
        check_solved(problem, known, made)
        assert not near.is_available


def test_the_searches_of_a_problem_have_them_once_there_is_an_assignment():
    random = np.random.default_rng(1)
    costs = [Function.from_array(pair, random.integers(0, 20, (4, 4))) for pair in combinations(range(11), 2)]
    problem = Problem(tuple(Variable(f"x{v}", 4) for v in range(11)), tuple(costs))
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    made = Searches(problem, SolveOptions(), known, Deadline())
    made.lay_out()
    depth, near = (made.portfolio.members[name].solver for name in ("depth", "neighbourhoods"))
    while not near.is_available:
        depth.work(0.0, Deadline())
    while not near.nodes:
        near.work(1e-3, Deadline())
    assert " neighbourhoods in " in made.summary


def test_they_come_to_optima_by_themselves():
    better = 0
    for seed in range(5):
        problem = random_network(9, 4, 0.6, tightness=0.1, seed=seed)
        _, made = with_an_assignment(problem)
        begin = made.shared.upper
        until(made, 300)
        assert made.shared.upper == optimum(problem)
        better += made.shared.upper < begin
        made._tell()
        assert made._known.value == problem.evaluate(made._known.assignment)
    assert better


def test_variables_that_are_not_free_keep_their_values_and_sizes_grow(monkeypatch):
    sizes, shaken = [], []
    own = Neighbourhood.begin

    def noted(one, root, path, upper):
        assert (one._values[path[:, VARIABLE]] == path[:, VALUE]).all()
        free = 20 - len(path)
        bits = free * math.log2(4)
        if one._is_shaken:
            shaken.append(free)
            assert upper == root.threshold
        else:
            sizes.append(bits)
            assert one._bits <= bits < one._bits + math.log2(4) or free >= 15  # nearly all
            assert upper == one._worth
        return own(one, root, path, upper)

    monkeypatch.setattr(Neighbourhood, "begin", noted)
    _, made = with_an_assignment(random_network(20, 4, 0.3, tightness=0.0, seed=1))
    until(made, 400)
    assert min(sizes) < LEAST_BITS + MORE_BITS
    assert max(sizes) >= min(MOST_BITS, 40) - MORE_BITS
    assert min(shaken) >= 20 // 3


def test_a_value_that_reduction_has_removed_is_free():
    for seed in range(examples(40)):
        problem = anything(seed)
        tables = ScopeTables.of(problem)
        random = np.random.default_rng(seed)
        for reduction in (reduced(tables), with_clique_variables(reduced(tables))):
            given = tuple(int(random.integers(size)) for size in problem.sizes)
            left = reduction.restricted(given)
            assert len(left) == len(reduction.tables.problem.sizes)
            assert all(-1 <= value < size for value, size in zip(left, reduction.tables.problem.sizes, strict=True))
            back = reduction.complete([max(value, 0) for value in left])
            for v, value in zip(reduction.variables, left, strict=False):
                assert value < 0 or back[v] == given[v]


def test_what_is_found_elsewhere_is_where_they_go_on():
    problem = random_network(10, 4, 0.5, tightness=0.0, seed=4)
    known, made = with_an_assignment(problem)
    other, found = search(problem)
    assert found.is_over
    known.offer(other.value, other.assignment, "another search")
    made.work(0.0, Deadline())
    assert tuple(made.shared.wanted.tolist()) == other.assignment


def test_without_memory_there_are_none_and_the_search_goes_on():
    problem = random_network(9, 4, 0.6, tightness=0.1, seed=2)
    _, made = with_an_assignment(problem)
    known, made = with_an_assignment(problem)
    made.shared.memory = kept_bytes(made._workers[0].node)
    near = Neighbourhoods(made, known)
    near.work(math.inf, Deadline())
    assert near.is_over and near.nodes == 0
    made.work(math.inf, Deadline())
    check_solved(problem, known, made)


def test_values_beyond_floating_point_are_no_thresholds():
    known, made = with_an_assignment(random_network(8, 3, 0.5, tightness=0.0, seed=4))
    made.shared.upper, known.lower = 1.7e308, -1.7e308
    one = one_beside(made)
    assert one.next_root.threshold == 1.7e308


def test_a_deadline_ends_them():
    _, made = with_an_assignment(random_network(12, 4, 0.5, tightness=0.0, seed=4))
    one = one_beside(made)
    deadline = Deadline(0.0)
    one.work(working_time() + ENDLESS, deadline)
    made.shared.is_stopped = True
    one.work(working_time() + ENDLESS, Deadline(math.inf))
    assert one.tried == 0


@pytest.mark.parametrize("shape", ["star", "path", "apart"])
def test_any_number_of_variables_is_free_whatever_ties_them(shape):
    count = 600
    ties = {
        "star": [(0, v) for v in range(1, count)],
        "path": [(v, v + 1) for v in range(count - 1)],
        "apart": [(v, v + 1) for v in range(0, count, 2)],
    }[shape]
    costs = [Function.from_array(pair, [[0, 1], [2, 0]]) for pair in ties]
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), tuple(costs))
    _, made = with_an_assignment(problem)
    one = one_beside(made)
    for most in (1, 200, count // 2, count // 2 + 1, count):
        assert one._near(most, math.inf).sum() == most
    for bits in (22.0, 66.0):
        assert one._near(count, bits).sum() == bits
    if shape == "path":
        free = np.flatnonzero(one._near(count, 22.0))
        assert free[-1] - free[0] == 21  # in one piece
