"""Propagation before the search for an order changes no answer: every task and the solve, with it and without."""

from __future__ import annotations

import math
import signal
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.api.solving.outlook import plan_solve
from oocbe.api.tasks.questions import TASKS
from oocbe.api.tasks.verbs import run_task
from oocbe.elimination.observer import Observer
from oocbe.errors import InternalError, OocbeError, TimeLimitError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.run_verb import Interrupted
from oocbe.model.semiring import MAX_PRODUCT, MIN_SUM, SUM_PRODUCT
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuned
from oocbe.propagation import propagated
from oocbe.propagation.value_removal import remove_values
from oocbe.runtime.deadline import Deadline, current
from tests.helpers.effort import examples
from tests.helpers.small_problems import make_problem, structures, without_bound

OPTIONS = SolveOptions(order_seconds=0.0, backend="cpu")


def answer(task: str, problem: Problem, propagates: bool):
    """The task's result, or what kind of error there was."""
    with tuned(propagates=propagates):
        try:
            return run_task(task, problem, OPTIONS, k=7)
        except OocbeError as error:
            return type(error)


def close(found: float | None, expected: float | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return found == expected or (found != found and expected != expected) or math.isclose(found, expected, rel_tol=1e-9)


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=examples(50))
@given(structures())
def test_tasks_have_the_same_answers(task, structure):
    problem = make_problem(structure)
    problem = problem if task == "kbest" else without_bound(problem)
    found, expected = answer(task, problem, True), answer(task, problem, False)
    if isinstance(expected, type):
        # What cannot be computed with all values may be with those left; nothing is refused that was not before.
        return
    assert not isinstance(found, type)
    assert found.status == expected.status
    assert found.variables == problem.variables
    if found.status != "infeasible" and expected.order:  # a search has none
        assert sorted(found.order) == list(range(len(problem.variables)))
    assert close(found.value, expected.value) and close(found.optimum, expected.optimum)
    assert isinstance(found.value, type(expected.value))
    assert [round(v, 9) for v, _ in found.assignments] == [round(v, 9) for v, _ in expected.assignments]
    for value, assignment in found.assignments if task == "kbest" else ():
        assert close(problem.evaluate(assignment), value)
    assert len(found.marginals) == len(expected.marginals)
    for own, other in zip(found.marginals, expected.marginals, strict=True):
        assert own.dtype == other.dtype
        assert all(close(a, b) or abs(a - b) < 1e-9 for a, b in zip(own.tolist(), other.tolist(), strict=True))


@settings(max_examples=examples(120))
@given(structures(), st.sampled_from(["auto", "none"]))
def test_solve_has_the_same_value(structure, bounds):
    problem = make_problem(structure)
    options = replace(OPTIONS, bounds=bounds, order_seconds=0.0, bound_seconds=0.1, incumbent_seconds=0.0)
    results = []
    for propagates in (True, False):
        with tuned(propagates=propagates):
            try:
                results.append(oocbe.solve(problem, options))
            except OocbeError as error:
                results.append(error)
    found, expected = results
    if isinstance(expected, OocbeError):
        return
    assert found.status == expected.status
    assert close(found.value, expected.value)
    if found.assignment is not None:
        assert close(problem.evaluate(found.assignment), found.value)


def day(capacity: int = 5) -> Problem:
    """Three variables; a sum leaves no third value of the first, and then a table fixes the second."""
    table = Constraint((0, 1), np.array([[0, 1], [1, 1], [2, 0]]), allowed=True)
    coefficients = tuple(np.array([0, 3, 6]) for _ in range(3))
    functions = (Function.from_array((0, 2), np.arange(9).reshape(3, 3)),)
    return Problem(
        tuple(Variable(name, 3, ("a", "b", "c")) for name in "xyz"),
        functions,
        (table,),
        (LinearConstraint((0, 1, 2), coefficients, capacity, "room"),),
    )


class Listener(Observer):
    def __init__(self) -> None:
        self.finished_with, self.planned = None, []

    def started(self, plan) -> None:
        self.planned.append(plan)

    def finished(self, result) -> None:
        self.finished_with = result


def test_what_went_is_told():
    listener = Listener()
    result = oocbe.solve(day(), OPTIONS, observer=listener)
    assert (result.value, result.assignment) == (0, (0, 1, 0))
    # y is 1, which takes 3 of 5 and leaves the others 0.
    assert any("propagation removed 6 of 9 values" in note and "3 variables" in note for note in result.notes)
    assert listener.finished_with == result
    plan = plan_solve(day(), OPTIONS)
    assert "propagation removed 6 of 9 values" in str(plan)
    assert plan.to_json()["propagation"] == plan.propagation
    with tuned(propagates=False):
        assert oocbe.solve(day(), OPTIONS).notes != result.notes
        assert plan_solve(day(), OPTIONS).propagation == ""


def test_an_observer_may_get_its_methods_later():
    """The plan went only to observers whose class receives it."""
    plans, listener = [], type("Silent", (Observer,), {})()
    listener.started = plans.append
    oocbe.solve(day(9), OPTIONS, observer=listener)
    assert len(plans) == 1


def test_infeasible_problems_are_told_at_once():
    result = oocbe.solve(day(2), OPTIONS)
    assert result.status == "infeasible"
    assert any("nothing is feasible" in note for note in result.notes)
    assert run_task("count", day(2), OPTIONS).value == 0


def test_an_order_file_names_all_variables(tmp_path):
    path = tmp_path / "order.txt"
    path.write_text("x\ny\nz\n")
    result = oocbe.solve(day(), replace(OPTIONS, order=str(path)))
    assert result.order == (0, 1, 2)
    assert result.value == 0


@pytest.mark.parametrize("semiring", [SUM_PRODUCT, MAX_PRODUCT])
def test_what_is_fixed_keeps_its_factor(semiring):
    """Thousands of factors beyond the range of float64 together, all of variables that are fixed."""
    count = 600
    evidence = dict.fromkeys(range(count), 0)
    functions = tuple(Function.from_array((v,), [1e-3, 1.0]) for v in range(count))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), functions, semiring=semiring)
    found = run_task("logz", problem.with_evidence(evidence), OPTIONS)
    assert found.value == pytest.approx(count * math.log(1e-3))


def test_a_run_directory_goes_on(tmp_path):
    options = replace(OPTIONS, workdir=tmp_path / "run")
    first = oocbe.solve(day(), options)
    again = oocbe.solve(day(), replace(options, resume=True))
    assert (again.value, again.assignment, again.order) == (first.value, first.assignment, first.order)
    assert again.variables == first.variables == day().variables
    assert oocbe.solve(day().in_semiring(MIN_SUM), replace(options, resume=True)).value == first.value


@pytest.mark.parametrize("place", ["propagation.propagated.remove_values", "api.solving.strategies.easy_orders"])
def test_a_signal_before_anything_is_known_ends_a_solve_with_a_result(place, interrupts_heard, monkeypatch):
    problem = replace(day(), functions=(Function.from_array((0, 2), np.ones((3, 3)) / 2),), semiring=MAX_PRODUCT)

    def ended(*_):
        signal.raise_signal(signal.SIGINT)
        with Deadline() as deadline:
            deadline.check()

    monkeypatch.setattr(f"oocbe.{place}", ended)
    with pytest.raises(Interrupted) as caught, tuned(propagates=place.startswith("propagation")):
        oocbe.solve(replace(problem, linear_constraints=()) if "easy" in place else problem, OPTIONS)
    assert caught.value.result.status == "interrupted"
    assert caught.value.result.variables == problem.variables


def test_a_time_limit_after_the_removal_of_values_ends_a_solve_with_a_result(monkeypatch):
    def late(*_):
        raise TimeLimitError("the time limit was reached")

    monkeypatch.setattr(propagated, "_without_enforced", late)
    result = oocbe.solve(day(), OPTIONS)
    assert (result.status, result.value) == ("optimal", 0)
    assert result.propagation.values_removed == 6


def test_the_whole_problem_confirms_what_is_lifted(monkeypatch):
    def wrong(self, assignment):
        values = [int(k[0]) for k in self.kept]
        return (values[0] + 1, *values[1:])

    monkeypatch.setattr("oocbe.propagation.value_removal.ReducedProblem.lift", wrong)
    with pytest.raises(InternalError, match="postsolve of propagation"):
        oocbe.solve(day(), OPTIONS)


@pytest.mark.parametrize(("capacity", "status"), [(5, "optimal"), (2, "infeasible")])
def test_a_constraint_that_propagation_enforces_is_not_said_to_be_idle(capacity, status):
    result = oocbe.solve(day(capacity), OPTIONS)
    assert (result.status, result.linear_constraints) == (status, "enforced")
    assert "cannot bind" not in " ".join(result.notes)


def test_a_constraint_that_was_idle_before_is_said_to_be():
    problem = replace(day(), linear_constraints=(*day().linear_constraints, *day(100).linear_constraints))
    for bounds in ("auto", "none"):
        result = oocbe.solve(problem, OPTIONS, bounds=bounds)
        with tuned(propagates=False):
            assert result.linear_constraints == oocbe.solve(problem, OPTIONS, bounds=bounds).linear_constraints


def test_what_is_used_of_a_capacity_counts_variables_that_are_gone():
    """x is fixed and takes 3 of 1000; each of the others takes 250 at most."""
    fixed = Constraint((0,), np.array([[1]]), allowed=True)
    coefficients = (np.array([0, 3]), *(np.array([0, 250]) for _ in range(5)))
    capacity = LinearConstraint(tuple(range(6)), coefficients, 1000, "memory")
    gains = tuple(Function((v,), [[0]], [v], 0) for v in range(1, 6))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(6)), gains, (fixed,), (capacity,))
    left = remove_values(problem, ())
    (linear,) = left.problem.linear_constraints
    assert (linear.capacity, linear.taken) == (997, 3)
    assert linear.usage((0, 1, 1, 1, 0)) == "753 of 1000" == capacity.usage(left.lift((0, 1, 1, 1, 0)))


def test_an_answer_that_propagation_has_found_survives_the_time_limit(monkeypatch):
    def slow(problem, removed):
        left = remove_values(problem, removed)
        limit = current()
        assert limit is not None
        limit.interrupt()
        return left

    monkeypatch.setattr("oocbe.propagation.propagated.remove_values", slow)
    for bounds in ("auto", "none"):
        result = oocbe.solve(day(), OPTIONS, bounds=bounds, time_limit=1000.0)
        assert (result.status, result.value, result.assignment) == ("optimal", 0, (0, 1, 0))
