"""What reduction leaves is eliminated where that is quick, and its optimum is the whole problem's."""

from __future__ import annotations

import math

import numpy as np
import pytest

import oocbe
from oocbe.bounds import row_reduction
from oocbe.bounds.row_reduction import reduced
from oocbe.bounds.row_tables import ScopeTables
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuned, tuning
from oocbe.runtime.deadline import Deadline
from oocbe.search import elimination_attempts, portfolio, searches
from oocbe.search.elimination_attempts import ReducedElimination
from oocbe.search.portfolio import Terms
from oocbe.search.searches import Searches
from oocbe.search.shared_bounds import SharedBounds
from oocbe.search.subsolver import Statistics
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, photographs
from tests.helpers.effort import examples

OPTIONS = SolveOptions()


def knowledge_of(problem: Problem) -> SharedBounds:
    return SharedBounds(problem, OPTIONS.gap, lambda *_: None)


def elimination_of(problem: Problem, options: SolveOptions = OPTIONS) -> tuple[SharedBounds, ReducedElimination]:
    tables, known = ScopeTables.of(problem), knowledge_of(problem)
    assert tables is not None
    return known, ReducedElimination(reduced(tables), options, known)


@pytest.mark.parametrize("make", [anything, photographs, costly_photographs, hidden_solution])
def test_its_optimum_is_that_of_the_whole(make, monkeypatch):
    monkeypatch.setattr(row_reduction, "MOST_JOINED", 8)  # something is left to eliminate
    variables = 0
    for seed in range(examples(40)):
        problem = make(seed)
        known, elimination = elimination_of(problem)
        wanted = oocbe.solve(problem, bounds="none")
        if elimination.is_over:
            assert wanted.status == "infeasible"
            continue
        elimination.work(math.inf, Deadline())
        assert known.is_closed
        assert known.value == pytest.approx(wanted.value)
        assert known.assignment is None or problem.evaluate(known.assignment) == pytest.approx(wanted.value)
        assert elimination.is_over  # it is tried once
        statistics = Statistics()
        elimination.report(statistics)
        assert "what reduction left was eliminated" in statistics.bounds
        variables = max(variables, len(elimination._problem.sizes))
    assert variables > 2


def test_orders_come_first_and_the_attempt_costs_their_estimate():
    known, elimination = elimination_of(pedigree_like(30, 4))
    assert elimination.cost == 0.0
    with tuned(least_attempt_seconds=0.0, attempt_allowance=1e9):  # the greedy orders are not enough
        elimination.work(0.0, Deadline())
        assert elimination.cost == tuning().search_share * elimination._estimate
        elimination.work(0.0, Deadline())
        assert 0.0 < elimination.cost < 0.1
        assert not known.is_closed
        elimination.work(0.0, Deadline())
        assert known.is_closed and elimination.is_over


def test_what_is_out_of_reach_is_forgotten(monkeypatch):
    monkeypatch.setattr(row_reduction, "MOST_JOINED", 1)  # something is left
    known, elimination = elimination_of(pedigree_like(30, 4))
    with tuned(attempt_reach_seconds=1e-9):
        elimination.work(math.inf, Deadline())
    assert elimination.is_over and "_problem" not in vars(elimination)
    assert known.lower is None


def test_what_cannot_be_held_or_kept_is_not_tried(tmp_path, monkeypatch):
    problem = pedigree_like(30, 4)
    assert elimination_of(problem, SolveOptions(workdir=tmp_path))[1].is_over
    known, elimination = elimination_of(problem)
    monkeypatch.setattr(elimination_attempts, "message_memory", lambda options: 1)
    elimination.work(math.inf, Deadline())
    assert known.lower is None and elimination.is_over


def test_one_that_takes_too_long_is_given_up_until_there_is_more_time():
    known, elimination = elimination_of(pedigree_like(30, 4))
    with tuned(attempt_allowance=0.0):
        while not elimination.given_up_seconds:
            elimination.work(0.0, Deadline())
    assert known.lower is None and elimination.is_available
    statistics = Statistics()
    elimination.report(statistics)
    assert not statistics.bounds


def pedigree_like(people: int, alleles: int) -> Problem:
    """Everybody is tied to two others over large domains, of which evidence leaves each two values."""
    random = np.random.default_rng(5)
    variables = tuple(Variable(f"x{i}", alleles) for i in range(people))
    functions, constraints = [], []
    for i in range(people):
        gone = random.permutation(alleles)[2:]
        constraints.append(Constraint((i,), gone[:, None]))
        if i > 1:
            scope = (*random.choice(np.arange(max(0, i - 8), i), 2, replace=False).tolist(), i)
            functions.append(Function.from_array(scope, random.integers(0, 50, (alleles,) * 3)))
    return Problem(variables, tuple(functions), tuple(constraints))


def test_rows_have_it_tried_first_where_it_is_quick(monkeypatch):
    monkeypatch.setattr(searches, "HEAD_START", 0.0)
    monkeypatch.setitem(portfolio.TERMS, "depth", Terms(after=1.0))  # else a fast machine has searched it before
    problem = pedigree_like(60, 8)
    known = knowledge_of(problem)
    rounds = Searches(problem, OPTIONS, known, Deadline())
    rounds.first(2.0)
    assert known.is_closed and not rounds.summary
    statistics = Statistics()
    rounds.report(statistics)
    assert "what reduction left was eliminated" in statistics.bounds
    assert known.value == oocbe.solve(problem, bounds="none").value


def test_what_takes_too_much_memory_when_it_is_listed_is_not_tried():
    """Two tables of 2**15 cells over 15 variables: 8 MiB as rows, with less than a MiB for messages."""
    cells = np.random.default_rng(0).integers(0, 1000, (2, *(2,) * 15))
    functions = tuple(Function.from_array(tuple(range(v, v + 15)), own) for v, own in enumerate(cells))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(16)), functions)
    listed = sum(f.tuples.astype(np.int64).nbytes + f.values.nbytes for f in problem.functions)
    assert ScopeTables.of(problem).listed_bytes == listed
    assert not elimination_of(problem)[1].is_over
    assert elimination_of(problem, SolveOptions(memory="4MiB"))[1].is_over
