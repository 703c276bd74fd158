"""What is left of a problem has its optimum, and is told about as the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import oocbe
from oocbe.elimination.preparation import packing
from oocbe.elimination.preparation.packing import is_packing
from oocbe.errors import RequestedEndError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime import interruption
from oocbe.search import bounded
from oocbe.search import presolve as module
from oocbe.search.presolve import is_easy, presolve
from oocbe.stress import random_network
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, optimum, photographs
from tests.helpers.effort import examples

AUTO = SolveOptions()


@pytest.fixture
def always(monkeypatch):
    """Reduce whatever an order promises."""
    monkeypatch.setattr(module, "FEW_ROWS", -1.0)


@pytest.fixture
def only_what_costs_nothing(monkeypatch):
    """Eliminate no variable whose neighbours' tables would grow."""
    monkeypatch.setattr(module, "LARGEST", 0)


def maximised(problem: Problem) -> Problem:
    """The same with all values negated."""
    functions = [
        Function(f.scope, f.tuples, -f.values, None if f.default is None else -f.default) for f in problem.functions
    ]
    return replace(problem, functions=tuple(functions), constant=-problem.constant, semiring=MAX_SUM, upper_bound=None)


@pytest.mark.parametrize("make", [anything, photographs, costly_photographs, hidden_solution])
def test_what_is_left_has_the_optimum(make, monkeypatch):
    monkeypatch.setattr("oocbe.elimination.preparation.packing.is_packing", lambda *_, **__: False)
    made = 0
    for seed in range(examples(120)):
        problem = make(seed)
        for whole, sign in ((problem, 1), (maximised(problem), -1)):
            left = presolve(whole, AUTO)
            if left is None:
                continue
            made += 1
            assert left.problem.upper_bound == whole.upper_bound
            assert left.problem.semiring == whole.semiring
            expected = optimum(problem if sign > 0 else problem.below(None))
            least = optimum(left.problem if sign > 0 else maximised(left.problem).in_semiring(problem.semiring))
            assert least == pytest.approx(expected, rel=1e-12, abs=1e-12)
            result = oocbe.solve(left.problem, bounds="none", order_seconds=0)
            lifted = left.result(result)
            assert lifted.variables == whole.variables
            assert lifted.order == () or sorted(lifted.order) == list(range(len(whole.variables)))
            assert (lifted.assignment is None) == (expected == np.inf)
            if lifted.assignment is not None:
                assert whole.evaluate(lifted.assignment) == lifted.value
                assert lifted.value == pytest.approx(sign * expected, rel=1e-12, abs=1e-12)
    assert made > examples(50)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("semiring", ["min", "max"])
@pytest.mark.parametrize("make", [anything, hidden_solution])
def test_a_solve_by_what_is_left_has_the_value_of_elimination(make, semiring):
    reduced = 0
    for seed in range(examples(80)):
        problem = make(seed) if semiring == "min" else maximised(make(seed))
        told = Listening()
        result = oocbe.solve(problem, order_seconds=0, observer=told)
        plain = oocbe.solve(problem, order_seconds=0, bounds="none")
        assert result.status == plain.status
        assert result.value == (plain.value if problem.is_integral else pytest.approx(plain.value))
        assert told.result == result
        for value, assignment in told.known:
            assert problem.evaluate(assignment) == pytest.approx(value)
        reduced += any(note.startswith("reduced to ") for note in result.notes)
    assert reduced >= examples(8)


class Listening(oocbe.Observer):
    def __init__(self):
        self.known, self.result = [], None

    def bounds_changed(self, lower, value, why, assignment):
        if assignment is not None:
            self.known.append((value, assignment))

    def finished(self, result):
        self.result = result


def chain(size: int = 4) -> Problem:
    """Values that nobody needs, and a variable that is eliminated."""
    costs = np.add.outer(np.arange(size), np.arange(size)) ** 2
    variables = tuple(Variable(f"x{v}", size) for v in range(3))
    return Problem(variables, (Function.from_array((0, 1), costs), Function.from_array((1, 2), costs)), name="chain")


def test_only_where_it_is_worth_it_and_nothing_else_is_asked_for(tmp_path):
    problem = chain()
    assert presolve(problem, AUTO) is not None
    for changed in ({"order": "min-fill"}, {"dominance": False}, {"workdir": tmp_path}):
        assert presolve(problem, SolveOptions(**changed)) is None
    capacity = LinearConstraint((0, 1), (np.arange(4), np.arange(4)), 3)
    assert presolve(replace(problem, linear_constraints=(capacity,)), AUTO) is None
    assert presolve(random_network(9, 9, 1.0, tightness=0.0, seed=1), AUTO) is None  # nothing goes


def test_easy_is_what_makes_few_rows_with_complete_tables():
    assert is_easy(Problem((), ()))
    assert is_easy(chain())
    assert is_easy(random_network(6, 9, 1.0, tightness=0.0, seed=1))  # 9**5 rows and fewer, by less than a tenth
    assert not is_easy(random_network(7, 9, 1.0, tightness=0.0, seed=1))
    many = tuple(Variable(f"x{v}", 1) for v in range(module.MANY_VARIABLES))
    assert is_easy(Problem(many[1:], ()))
    assert not is_easy(Problem(many, ()))


def test_a_plan_is_that_of_what_is_left(monkeypatch):
    problem = chain()
    assert len(oocbe.plan(problem, order_seconds=0).order) == 3
    for name in ("oocbe.api.solving.outlook.FEW_ROWS", "oocbe.search.presolve.FEW_ROWS"):
        monkeypatch.setattr(name, 0.0)
    made = oocbe.plan(problem, order_seconds=0)
    assert made.propagation == "reduced to 1 of 3 variables and 1 of 12 values before the search"
    assert len(made.order) == 1
    assert made.propagation in str(made)
    assert made.to_json()["propagation"] == made.propagation


def test_packing_stays_as_it_is():
    free = tuple(Variable(f"x{v}", 3) for v in range(3))
    weights = tuple(Function((v,), [[0]], [5], 0) for v in range(3))
    conflicts = tuple(Constraint((v, v + 1), [[1, 1], [2, 2]]) for v in range(2))
    penalties = tuple(Function(c.scope, c.tuples, [100, 100], 0) for c in conflicts)
    hard, soft = Problem(free, weights, conflicts), Problem(free, (*weights, *penalties))
    assert is_packing(hard)
    assert not is_packing(soft)
    assert is_packing(soft, are_penalties_hard=True)
    assert presolve(hard, AUTO) is presolve(soft, AUTO) is None
    everywhere = Function((0, 1), [[0, 0], [1, 1], [2, 2]], [100, 100, 100], 0)
    both = Function((1, 2), [[0, 0], [1, 1], [2, 2]], [100, 100, 100], 0)
    assert not is_packing(Problem(free, (*weights, everywhere, both)), are_penalties_hard=True)
    gains = replace(soft, functions=(*soft.functions, Function((0, 2), [[0, 0]], [-1], 0)))
    assert not packing.is_packing(gains, are_penalties_hard=True)


@pytest.mark.usefixtures("always", "only_what_costs_nothing")
def test_what_is_known_of_what_is_left_is_known_where_a_signal_ends_it(monkeypatch):
    core = random_network(5, 4, 1.0, tightness=0.0, seed=1)
    pendant = Function.from_array((0, 5), np.arange(16).reshape(4, 4) * 7 % 16)
    problem = replace(core, variables=(*core.variables, Variable("x5", 4)), functions=(*core.functions, pendant))
    found = oocbe.solve(problem, bounds="none", order_seconds=0)

    def ended(search):
        left = search._problem
        assert len(left.variables) == 5
        best = oocbe.solve(left, bounds="none", order_seconds=0)
        search._known.offer(best.value, best.assignment, "a test")
        raise RequestedEndError("ended")

    monkeypatch.setattr(bounded.BoundedSolve, "run", ended)
    for name in ("needs_no_bounds", "opening_result"):
        monkeypatch.setattr(f"oocbe.api.solving.strategies.{name}", lambda *_: None)
    monkeypatch.setattr(interruption.Interruption, "caused", lambda *_: True)
    monkeypatch.setattr(interruption.Interruption, "reason", "ended by a test")
    result = oocbe.solve(problem, order_seconds=0)
    assert result.status == "interrupted"
    assert result.value == found.value == problem.evaluate(result.assignment)


@pytest.mark.usefixtures("only_what_costs_nothing")
def test_what_takes_too_much_memory_when_it_is_listed_stays_as_it_is():
    """A table of 2**15 cells over 15 variables is 4 MiB as rows, and one variable more is eliminated."""
    cells = np.random.default_rng(0).integers(0, 1000, (2,) * 15)
    functions = (Function.from_array(tuple(range(15)), cells), Function.from_array((14, 15), [[0, 3], [4, 1]]))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(16)), functions)
    assert presolve(problem, AUTO) is not None
    assert presolve(problem, replace(AUTO, memory="4MiB")) is None
