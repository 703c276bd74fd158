"""Bounds from subproblems: never above the optimum, the optimum where a part is all, and of disjoint parts the sum."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from oocbe.bounds.row_reduction import reduced
from oocbe.bounds.row_tables import ScopeTables
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import Deadline
from oocbe.search import subproblems
from oocbe.search.subproblems import SubproblemSearch
from oocbe.search.subsolver import SharedBounds
from oocbe.stress import random_network
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, optimum, photographs
from tests.helpers.depth_searches import NO_GAP
from tests.helpers.effort import examples, in_turns

MOST_STEPS = 2000


def searched(problem, is_reduced=False, memory=1 << 30):
    """The search at its end, and what was known then; whatever it reports is compared with the optimum."""
    best = optimum(problem)
    tables = ScopeTables.of(problem)
    tables = reduced(tables).tables if is_reduced else tables
    tolerance = 4 * tables.rounding
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    ceiling = known.upper_bound
    lows = []

    def check(lower, value, why, assignment):
        assert value is None  # it looks for none
        assert lower <= min(best, ceiling) + tolerance, (problem.name, why, lower, best)
        assert not lows or lower >= lows[-1]
        lows.append(lower)

    known.report = check
    made = SubproblemSearch(tables, known, memory)
    for _ in range(MOST_STEPS):
        if made.is_over:
            break
        made.work(0.0, Deadline())
    return known, made, lows


@pytest.fixture
def small(monkeypatch):
    """Subproblems of a variable or two, which grow by as much."""
    monkeypatch.setattr(subproblems, "FIRST_BITS", 2.0)
    monkeypatch.setattr(subproblems, "MORE_BITS", 1.5)


@pytest.mark.parametrize(
    ("make", "is_reduced"), in_turns((anything, photographs, costly_photographs, hidden_solution), (False, True))
)
def test_no_bound_is_above_the_optimum(make, is_reduced, small):
    raised = 0
    for seed in range(examples(40)):
        _, made, lows = searched(make(seed), is_reduced)
        assert made.is_over
        raised += len(lows)
    assert raised or is_reduced  # which leaves nothing of some


def test_below_a_good_assignment_as_well(small):
    """What is asked of a subproblem depends on what is known; negative, float and huge costs among them."""
    closed = 0
    for seed in range(examples(60)):
        problem = anything(seed)
        best = optimum(problem)
        if best == math.inf or problem.upper_bound is not None:
            continue
        for more in (0, 1):
            limited = replace(problem, upper_bound=best + more * max(1, abs(best)))
            known, _, _ = searched(limited)
            closed += known.is_closed
    assert closed


def two_hard_places(link: int) -> Problem:
    """Two cliques of colours too few, each costs at least 20, and functions between them that cost little."""
    variables = tuple(Variable(f"x{v}", 3) for v in range(10))
    differ = [
        Function.from_array(pair, 10 * np.eye(3, dtype=np.int64))
        for first in (0, 5)
        for pair in combinations(range(first, first + 5), 2)
    ]
    links = [Function.from_array((v, v + 5), link * np.eye(3, dtype=np.int64)) for v in range(5)]
    return Problem(variables, (*differ, *links), name="two hard places")


@pytest.mark.parametrize("link", [0, 1])
def test_what_two_places_cost_is_added(link, monkeypatch):
    monkeypatch.setattr(subproblems, "FIRST_BITS", 7.0)  # a clique
    monkeypatch.setattr(subproblems, "MORE_BITS", 100.0)
    problem = two_hard_places(link)
    known, made, lows = searched(problem)
    assert 40 in lows
    assert known.lower == optimum(problem) == made.lower


def test_a_line_begins_with_what_those_before_it_lack(monkeypatch):
    """Where one subproblem is left, the functions of the other clique are a line of their own."""
    monkeypatch.setattr(subproblems, "FIRST_BITS", 7.0)
    monkeypatch.setattr(subproblems, "MOST_STARTS", 1)
    known = SharedBounds(two_hard_places(0), NO_GAP, lambda *_: None)
    made = SubproblemSearch(ScopeTables.of(known.problem), known, 1 << 30)
    made._begin()
    made._open_line()
    first = made._lines[0]
    own = first.only
    own.lower = own.least + 1
    made._open_line()
    second = made._lines[1]
    assert second.taken == own.functions
    assert all(own.functions.isdisjoint(one.functions) for one in second.waiting)
    assert all(one.functions for one in second.waiting)


def test_the_whole_is_the_last_subproblem(small):
    problem = random_network(7, 3, 0.7, tightness=0.2, seed=3)
    known, made, _ = searched(problem)
    assert known.lower == optimum(problem)
    assert "subproblems" in made.summary
    assert made._widest == 7


def test_problems_without_functions_are_none_for_it():
    problem = Problem((Variable("a", 3),), (), constant=4)
    _, made, lows = searched(problem)
    assert made.is_over
    assert not lows


def test_little_memory_ends_searches_and_not_the_truth(small):
    problem = random_network(7, 3, 0.7, tightness=0.2, seed=3)
    known, made, _ = searched(problem, memory=1)
    assert made.is_over
    assert known.lower is None or known.lower <= optimum(problem)


def test_components_have_lines_of_their_own_once_the_first_is_done(monkeypatch):
    """One line at a time: the second clique has none before the first has filled what it is tied to."""
    monkeypatch.setattr(subproblems, "FIRST_BITS", 7.0)
    monkeypatch.setattr(subproblems, "MOST_STARTS", 1)
    monkeypatch.setattr(subproblems, "MOST_LINES", 1)
    whole = two_hard_places(0)
    apart = replace(whole, functions=tuple(f for f in whole.functions if f.scope[1] - f.scope[0] < 5))
    known, made, _ = searched(apart)
    assert made.is_over
    assert known.lower == 40 == optimum(apart)


def test_a_part_without_an_assignment_leaves_the_whole_none(monkeypatch):
    """Three variables that differ and have two values each, among others that cost something."""
    monkeypatch.setattr(subproblems, "FIRST_BITS", 3.0)
    differ = [Constraint(pair, np.array([[0, 0], [1, 1]])) for pair in combinations(range(3), 2)]
    costs = [Function.from_array((v, v + 1), [[0, 3], [2, 5]]) for v in range(2, 6)]
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(7)), tuple(costs), tuple(differ))
    known, _, _ = searched(problem)
    assert known.is_closed
    assert known.value is None


def test_few_are_remembered(monkeypatch, small):
    monkeypatch.setattr(subproblems, "MOST_KEPT", 4)
    for seed in range(examples(10)):
        _, made, _ = searched(random_network(8, 3, 0.7, tightness=0.2, seed=seed))
        assert made.is_over
