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
from oocbe.runtime.deadline import Deadline
from oocbe.search import beam_search_scheduler, reduced_elimination
from oocbe.search.beam_search_scheduler import BeamSearchScheduler
from oocbe.search.reduced_elimination import ReducedElimination
from oocbe.search.search_statistics import Statistics
from oocbe.search.shared_bounds import SharedBounds
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, photographs
from tests.helpers.effort import examples

OPTIONS = SolveOptions()
ROOM = 1 << 30


def knowledge_of(problem: Problem) -> SharedBounds:
    return SharedBounds(problem, OPTIONS.gap, lambda *_: None)


def elimination_of(problem: Problem, options: SolveOptions = OPTIONS) -> ReducedElimination:
    tables = ScopeTables.of(problem)
    assert tables is not None
    return ReducedElimination(reduced(tables), options)


@pytest.mark.parametrize("make", [anything, photographs, costly_photographs, hidden_solution])
def test_its_optimum_is_that_of_the_whole(make, monkeypatch):
    monkeypatch.setattr(row_reduction, "MOST_JOINED", 8)  # something is left to eliminate
    variables = 0
    for seed in range(examples(40)):
        problem = make(seed)
        elimination, known = elimination_of(problem), knowledge_of(problem)
        wanted = oocbe.solve(problem, bounds="none")
        if not elimination.is_open:
            assert wanted.status == "infeasible"
            continue
        assert elimination.is_due(0.0)
        elimination.run(known, ROOM, Deadline())
        assert known.is_closed
        assert known.value == pytest.approx(wanted.value)
        assert known.assignment is None or problem.evaluate(known.assignment) == pytest.approx(wanted.value)
        assert not elimination.is_due(math.inf)  # it is tried once
        statistics = Statistics()
        elimination.tell(statistics)
        assert "what reduction left was eliminated" in statistics.bounds
        variables = max(variables, len(elimination._problem.sizes))
    assert variables > 2


def test_it_waits_until_as_long_has_been_spent(monkeypatch):
    elimination = elimination_of(pedigree_like(30, 4))
    assert elimination.is_due(0.0)
    monkeypatch.setitem(vars(elimination), "expected", 3.0)
    assert not elimination.is_due(3.0)
    assert elimination.is_due(reduced_elimination.DUE * 3.0)


def test_what_is_out_of_reach_is_forgotten(monkeypatch):
    monkeypatch.setattr(reduced_elimination, "MOST_SECONDS", 1e-9)
    monkeypatch.setattr(row_reduction, "MOST_JOINED", 1)  # something is left
    elimination = elimination_of(pedigree_like(30, 4))
    assert not elimination.is_due(math.inf)
    assert not elimination.is_open and "_problem" not in vars(elimination)


def test_what_cannot_be_held_or_kept_is_not_tried(tmp_path):
    problem = pedigree_like(30, 4)
    assert not elimination_of(problem, SolveOptions(workdir=tmp_path)).is_open
    elimination, known = elimination_of(problem), knowledge_of(problem)
    elimination.run(known, 1, Deadline())
    assert known.lower is None and not elimination.is_open


def test_one_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(reduced_elimination, "ALLOWANCE", 0.0)
    monkeypatch.setattr(reduced_elimination, "LEAST_ALLOWANCE", 0.0)
    problem = pedigree_like(30, 4)
    elimination, known = elimination_of(problem), knowledge_of(problem)
    elimination.run(known, ROOM, Deadline())
    assert known.lower is None
    statistics = Statistics()
    elimination.tell(statistics)
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
    monkeypatch.setattr(beam_search_scheduler, "HEAD_START", 0.0)  # else a fast machine has searched it before
    problem = pedigree_like(60, 8)
    known, rounds = knowledge_of(problem), BeamSearchScheduler(problem, OPTIONS, Deadline())
    rounds.first(known, lambda: None)
    assert known.is_closed and not rounds.summary
    statistics = Statistics()
    rounds.tell(statistics)
    assert "what reduction left was eliminated" in statistics.bounds
    assert known.value == oocbe.solve(problem, bounds="none").value


def test_what_takes_too_much_memory_when_it_is_listed_is_not_tried():
    """Two tables of 2**15 cells over 15 variables: 8 MiB as rows, with less than a MiB for messages."""
    cells = np.random.default_rng(0).integers(0, 1000, (2, *(2,) * 15))
    functions = tuple(Function.from_array(tuple(range(v, v + 15)), own) for v, own in enumerate(cells))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(16)), functions)
    listed = sum(f.tuples.astype(np.int64).nbytes + f.values.nbytes for f in problem.functions)
    assert ScopeTables.of(problem).listed_bytes == listed
    assert elimination_of(problem).is_open
    assert not elimination_of(problem, SolveOptions(memory="4MiB")).is_open
