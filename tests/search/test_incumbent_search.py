"""Local search as one of the solvers of a portfolio: its budget, what it takes in, and where it has nothing to do."""

from __future__ import annotations

import math
import sys
import threading

import pytest

import oocbe
from oocbe.bounds import incumbent
from oocbe.errors import UnsupportedError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.memory import MemoryLimit
from oocbe.search.incumbent_search import IncumbentSearch, SearchBeside
from oocbe.search.subsolver import SharedBounds
from oocbe.stress import random_network

OPTIONS = SolveOptions(incumbent_seconds=0.02)


def search_of(problem: Problem) -> tuple[SharedBounds, IncumbentSearch]:
    known = SharedBounds(problem, OPTIONS.gap, lambda *_: None)
    return known, IncumbentSearch(problem, OPTIONS, known)


def test_it_comes_to_optima_in_slices_and_its_budget_ends_it():
    problem = random_network(9, 4, 0.6, tightness=0.1, seed=2)
    best = oocbe.solve(problem).value
    known, made = search_of(problem)
    while made.is_available:
        made.work(1e-3, Deadline())
    assert made.seconds >= made.budget and not made.is_over
    made.budget = math.inf
    while known.value != best:
        assert made.is_available
        made.work(1e-3, Deadline())
    assert problem.evaluate(known.assignment) == best


def test_it_continues_from_what_others_have_found():
    problem = random_network(9, 4, 0.6, tightness=0.1, seed=2)
    best = oocbe.solve(problem)
    known, made = search_of(problem)
    made.work(0.0, Deadline())
    known.offer(best.value, best.assignment, "another solver")
    made.work(1e-3, Deadline())
    assert (made._search.best.value, made._search.best.assignment) == (best.value, best.assignment)
    assert made._search._state.totals[1] == pytest.approx(best.value - problem.constant)


def test_what_it_cannot_search_is_over(monkeypatch):
    cost, forbidden = Function.from_array((0,), [1, 2]), Constraint((0,), [[0], [1]])
    known, made = search_of(Problem((Variable("x", 2),), (cost,), (forbidden,)))
    made.work(1e-3, Deadline())
    assert made.is_over and known.value is None

    def refuse(*_):
        raise UnsupportedError("no such search")

    monkeypatch.setattr(incumbent, "LocalSearch", refuse)
    known, made = search_of(random_network(5, 3, 0.6, seed=1))
    made.work(1e-3, Deadline())
    assert made.is_over


def test_want_of_memory_on_its_thread_costs_no_answer(monkeypatch):
    def fail(*_):
        raise error

    problem, shown = random_network(5, 3, 0.6, seed=1), []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    monkeypatch.setattr(incumbent, "find_incumbent", fail)
    error: Exception = MemoryError()
    with SearchBeside(problem, 0.1, 0) as search:
        assert search.best is None
    assert oocbe.solve(problem, time_limit=60, bounds="none").status == "optimal"
    error = KeyError("lost")
    with SearchBeside(problem, 0.1, 0) as search, pytest.raises(KeyError):
        assert search.best
    assert not shown


def test_without_an_assignment_there_is_a_brief_search_on_request():
    """Elimination that ends before the search begins does not need it, unless its memory ran out."""
    problem = random_network(5, 3, 0.6, seed=1)
    with SearchBeside(problem, 5.0, 0, delay=1e6) as search:
        assert search.best is None
    with SearchBeside(problem, 5.0, 0, delay=1e6) as search:
        with MemoryLimit(1), Deadline(0.0):  # those of the caller, which have passed
            search.search_briefly()
        assert problem.evaluate(search.best.assignment) == search.best.value


def test_its_thread_imports_nothing(monkeypatch):
    """Without memory an import may fail there, or leave a lock of the module that others wait for."""
    monkeypatch.setitem(sys.modules, "oocbe.bounds.incumbent", None)
    with pytest.raises(ImportError):
        SearchBeside(random_network(5, 3, 0.6, seed=1), 0.1, 0)
