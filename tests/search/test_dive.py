"""A first assignment by a dive, beside all assignments of small problems, and where local search finds none."""

from __future__ import annotations

import signal
import time

import numpy as np
import pytest

import oocbe
from oocbe.bounds import row_tables
from oocbe.bounds.incumbent import LocalSearch
from oocbe.bounds.row_tables import ScopeTables
from oocbe.errors import TimeLimitError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline, check_deadline
from oocbe.runtime.interruption import listening
from oocbe.search import incumbent_search
from oocbe.search.incumbent_search import Dive, IncumbentSearch, offer_first, offer_greedy
from oocbe.search.subsolver import SharedBounds
from tests.helpers.effort import examples


def parities(count: int) -> Problem:
    """Binary variables of which each three neighbours have a given parity: four assignments, far from each other."""
    random = np.random.default_rng(1)
    costs = [Function.from_array((v,), random.integers(0, 9, 2)) for v in range(count)]
    rows = np.array(list(np.ndindex(2, 2, 2)))
    odd = [rows[rows.sum(axis=1) % 2 == parity] for parity in (0, 1)]
    tables = [Constraint((v, v + 1, v + 2), odd[random.integers(2)], allowed=True) for v in range(count - 2)]
    return Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), tuple(costs), tuple(tables))


@pytest.mark.parametrize("keeps_linear", [False, True])
def test_it_finds_an_assignment_where_there_is_one(random_problem, evaluate_all, keeps_linear):
    outcomes = set()
    for seed in range(examples(240)):
        problem = random_problem(seed)
        tables = ScopeTables.of(problem, keeps_linear)
        found = Dive(tables).run()
        assert (found is None) == all(value is None for value in evaluate_all(problem))
        assert found is None or problem.evaluate(found) == tables.evaluate(found)
        outcomes.add(found is None)
    assert outcomes == {False, True}


def test_linear_constraints_leave_room_for_the_others():
    random = np.random.default_rng(3)
    variables = tuple(Variable(f"x{v}", 3) for v in range(14))
    scope = tuple(range(14))
    costs = tuple(Function.from_array((v,), random.integers(0, 9, 3)) for v in scope)
    amounts = tuple(random.integers(-9, 10, 3) for _ in scope)
    total = sum(int(a[1]) for a in amounts)
    sums = (LinearConstraint(scope, amounts, total), LinearConstraint(scope, tuple(-a for a in amounts), -total))
    problem = Problem(variables, costs, linear_constraints=sums)
    tables = ScopeTables.of(problem, keeps_linear=True)
    assert len(tables.linear) == 2
    assert problem.evaluate(Dive(tables).run()) is not None


@pytest.fixture
def time_to_choose(monkeypatch):
    """A loaded machine may take long for a dive or a greedy choice."""
    monkeypatch.setattr(incumbent_search, "MOST_SECONDS", 60.0)


@pytest.mark.usefixtures("time_to_choose")
def test_a_search_after_the_time_limit_satisfies_hard_tables():
    problem, options = parities(90), SolveOptions(incumbent_seconds=1)
    assert LocalSearch(problem).run(0.05) is None
    known = SharedBounds(problem, options.gap, lambda *_: None)
    IncumbentSearch(problem, options, known).search_a_moment()
    assert known.value == problem.evaluate(known.assignment)


def test_it_ends_at_the_deadline():
    dive = Dive(ScopeTables.of(parities(90)))
    with Deadline(0.0), pytest.raises(TimeLimitError):
        dive.run()


def test_each_decision_keeps_a_value_that_is_left(monkeypatch):
    """Costs of an earlier propagation may be infinite for all values that are left now."""
    keep, left = Dive._keep, []

    def watched(dive: Dive, v: int, kept: np.ndarray) -> bool:
        left.append((kept & (dive._own[v] == 0)).any() or np.count_nonzero(kept) != 1)
        return keep(dive, v, kept)

    monkeypatch.setattr(Dive, "_keep", watched)
    for seed in range(examples(240)):
        random = np.random.default_rng(seed)
        scopes = [tuple(map(int, random.choice(14, 2, replace=False))) for _ in range(34)]
        hard = [Constraint(scope, np.argwhere(random.random((4, 4)) < 0.33), allowed=False) for scope in scopes]
        Dive(ScopeTables.of(Problem(tuple(Variable(f"x{v}", 4) for v in range(14)), (), tuple(hard)))).run()
    assert all(left)


def test_it_ends_soon_without_a_deadline():
    """Unsatisfiable clauses, whose refuted decisions come late."""
    random = np.random.default_rng(0)
    clauses = [
        (tuple(map(int, random.choice(1200, 3, replace=False))), random.integers(0, 2, (1, 3))) for _ in range(5400)
    ]
    hard = tuple(Constraint(scope, row, allowed=False) for scope, row in clauses)
    dive = Dive(ScopeTables.of(Problem(tuple(Variable(f"x{v}", 2) for v in range(1200)), (), hard)))
    begin = time.process_time()
    assert dive.run() is None
    assert time.process_time() - begin < 1.0


def test_an_equality_of_one_variable_determines_no_other():
    """Two linear constraints over one variable of more values than a table takes: no variable was left to compare."""
    values = np.arange(row_tables.LARGEST_LINEAR + 1)
    equal = tuple(LinearConstraint((0,), (sign * values,), sign * 40, "equal") for sign in (1, -1))
    tables = ScopeTables.of(Problem((Variable("x", len(values)),), (), (), equal), keeps_linear=True)
    assert tables is not None and len(tables.linear) == 2
    assert tables.influence.tolist() == [0]


def packing(seed: int, count: int, size: int, arity: int, conflicts: int) -> Problem:
    """Variables with a dear value 0 that nothing forbids, and conflicts of random values."""
    random = np.random.default_rng(seed)
    functions = [Function.from_array((v,), np.append(99, random.integers(0, 9, size - 1))) for v in range(count)]
    constraints = []
    for _ in range(conflicts):
        scope = tuple(random.choice(count, arity, replace=False).tolist())
        tuples = np.unique(random.integers(1, size, (3 * size, arity)), axis=0)
        constraints.append(Constraint(scope, tuples))
    row = LinearConstraint((0, 1), (np.array([1] * (size - 1) + [2]),) * 2, 3)
    return Problem(tuple(Variable(f"x{v}", size) for v in range(count)), functions, constraints, (row,))


def known_of(problem):
    return SharedBounds(problem, SolveOptions().gap, lambda *_: None)


@pytest.mark.parametrize("arity", [1, 2, 3])
def test_a_greedy_choice_has_no_conflict_and_no_value_that_could_be_added(arity):
    for seed in range(examples(20)):
        problem = packing(seed, 8, 5, arity, 6)
        known = known_of(problem)
        offer_greedy(known)
        assert known.value == problem.evaluate(known.assignment)
        for v, chosen in enumerate(known.assignment):
            for value in range(1, 4) if chosen == 0 and arity < 3 else ():
                assert problem.evaluate((*known.assignment[:v], value, *known.assignment[v + 1 :])) is None


def test_a_greedy_choice_needs_a_value_without_a_conflict():
    problem = Problem((Variable("a", 2), Variable("b", 2)), (), (Constraint((0, 1), [[0, 0], [1, 1]]),))
    known = known_of(problem)
    offer_greedy(known)
    assert known.value is None


@pytest.mark.usefixtures("time_to_choose")
def test_a_limit_before_any_search_leaves_a_greedy_choice():
    problem = packing(0, 300, 40, 2, 4000)
    result = oocbe.solve(problem, time_limit=0.05)
    assert (result.status, result.value) == ("limit", problem.evaluate(result.assignment))
    assert result.value < 99 * 300


@pytest.mark.usefixtures("time_to_choose")
def test_a_signal_at_the_start_leaves_a_greedy_choice():
    known = known_of(packing(0, 100, 40, 2, 1000))
    with listening() as interruption:
        interruption.number = signal.SIGINT
        offer_first(known)
    assert known.value == known.problem.evaluate(known.assignment)


@pytest.mark.usefixtures("time_to_choose")
def test_a_signal_during_propagation_leaves_a_greedy_choice(interrupts_heard, monkeypatch):
    def interrupted(*_):
        signal.raise_signal(signal.SIGINT)
        check_deadline()

    problem = packing(0, 100, 40, 2, 1000)
    monkeypatch.setattr("oocbe.propagation.propagated.presolved", interrupted)
    with pytest.raises(oocbe.Interrupted) as caught:
        oocbe.solve(problem)
    assert caught.value.result.value == problem.evaluate(caught.value.result.assignment)
