"""Components solved apart have the optimum of the whole, and bounds, assignments and ends of the whole."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from itertools import count, islice

import numpy as np
import pytest

import oocbe
from oocbe.api.solving import components as module
from oocbe.api.solving import strategies as solving
from oocbe.api.solving.components import Components, labels
from oocbe.errors import RequestedEndError, ResourceError, UnsupportedError
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.option_values import Gap
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime import interruption
from oocbe.search import bounded, incumbent_search
from oocbe.search.bounded import BoundedSolve
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, optimum, photographs
from tests.helpers.effort import examples

NOTE = "connected components were solved apart"


@pytest.fixture
def nothing_is_easy(monkeypatch):
    """Every component of two variables is a part of its own, and nothing is removed or searched before."""

    def is_easy(problem, graph=None):
        return len(problem.variables) < 2

    monkeypatch.setattr(module, "FEW_BITS", 0)
    monkeypatch.setattr(module, "is_easy", is_easy)
    monkeypatch.setattr(solving, "is_easy", is_easy)
    monkeypatch.setattr("oocbe.api.solving.solve.narrow_result", lambda *_: None)
    monkeypatch.setattr(solving, "presolve", lambda *_: None)


def side_by_side(problems: list[Problem], upper_bound: float | None = None) -> Problem:
    """One problem of several, whose variables take turns."""
    names = sorted((v, number) for number, p in enumerate(problems) for v in range(len(p.variables)))
    place = {name: index for index, name in enumerate(names)}

    def moved(parts, number):
        return [replace(part, scope=tuple(place[v, number] for v in part.scope)) for part in parts]

    return Problem(
        tuple(Variable(f"x{v}.{number}", problems[number].sizes[v]) for v, number in names),
        tuple(f for number, p in enumerate(problems) for f in moved(p.functions, number)),
        tuple(c for number, p in enumerate(problems) for c in moved(p.constraints, number)),
        tuple(c for number, p in enumerate(problems) for c in moved(p.linear_constraints, number)),
        constant=sum(p.constant for p in problems),
        upper_bound=upper_bound,
    )


def maximised(problem: Problem) -> Problem:
    functions = [
        Function(f.scope, f.tuples, -f.values, None if f.default is None else -f.default) for f in problem.functions
    ]
    return replace(problem, functions=tuple(functions), constant=-problem.constant, semiring=MAX_SUM)


class Listening(oocbe.Observer):
    def __init__(self):
        self.events = []

    def bounds_changed(self, lower, value, why, assignment):
        self.events.append((lower, value, assignment))


@pytest.mark.usefixtures("nothing_is_easy")
@pytest.mark.parametrize("make", [anything, photographs, costly_photographs, hidden_solution])
def test_the_optimum_is_that_of_enumeration(make):
    apart = 0
    for seed in range(examples(64)):
        random = np.random.default_rng(seed)
        parts = [make(3 * seed + k).below(None) for k in range(int(random.integers(2, 4)))]
        least = sum(optimum(part) for part in parts)
        limit = None if random.integers(2) or least == np.inf else least + int(random.integers(-1, 4))
        whole = side_by_side(parts, limit)
        expected = least if limit is None or least < limit else np.inf
        for problem, sign in ((whole, 1), (maximised(whole.below(None)), -1)):
            observer = Listening()
            result = oocbe.solve(problem, order_seconds=0, observer=observer)
            wanted = expected if sign > 0 else least
            assert result.status == ("infeasible" if wanted == np.inf else "optimal")
            if result.assignment is None:
                assert wanted == np.inf
            else:
                assert result.value == pytest.approx(sign * wanted, rel=1e-12, abs=1e-9)
                assert problem.evaluate(result.assignment) == result.value == result.bound
            for bound, value, assignment in observer.events:
                if assignment is not None and (problem.is_integral or limit is None):  # floats have room for rounding
                    assert problem.evaluate(assignment) == pytest.approx(value)
                assert bound is None or wanted == np.inf or sign * bound <= wanted + 1e-9
            apart += any(NOTE in note for note in result.notes)
    assert apart


def hard(seed: int, count: int = 24, size: int = 4) -> Problem:
    """A random network that depth-first search does not end at once."""
    random = np.random.default_rng(seed)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if random.random() < 8 / count]
    costs = [random.integers(0, 30, (size, size)) * (random.random((size, size)) < 0.6) for _ in pairs]
    functions = [Function.from_array(scope, table) for scope, table in zip(pairs, costs, strict=True)]
    return Problem(tuple(Variable(f"x{v}", size) for v in range(count)), tuple(functions), name="hard")


def test_each_component_is_solved_and_the_result_is_that_of_the_whole():
    parts = [hard(seed) for seed in range(3)]
    whole = side_by_side(parts)
    result = oocbe.solve(whole)
    assert result.status == "optimal"
    assert result.value == sum(oocbe.solve(part).value for part in parts) == whole.evaluate(result.assignment)
    assert any(note == f"3 {NOTE}" for note in result.notes)
    assert result.presolve
    assert {share.name for share in result.solvers} >= {"depth"}
    assert all(0 <= share.closed <= 1 for share in result.solvers)


def test_the_plan_names_the_parts():
    plan = oocbe.plan(side_by_side([hard(1), hard(2), hard(3)]))
    assert plan.headline == "3 parts of 3 connected components, one after another"


def test_a_limit_leaves_a_bound_and_an_assignment_of_all_parts(monkeypatch):
    whole, turns = side_by_side([hard(seed, 60, 5) for seed in range(4)]), Components.turns
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(Components, "turns", lambda *given: islice(turns(*given), 4))
    result = oocbe.solve(whole)
    assert result.status == "limit"
    assert result.bound <= whole.evaluate(result.assignment) == result.value
    assert any("4 of 4 parts not to the end" in note for note in result.notes)


@pytest.fixture
def short_turns(monkeypatch):
    """Turns of parts are a few steps each; returns all searches with bounds."""
    made = []

    class Search(BoundedSolve):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(bounded, "BoundedSolve", Search)
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(module, "LONGER", 1.0)
    monkeypatch.setattr(solving, "OVERTIME", 1e9)
    monkeypatch.setattr(solving, "needs_no_bounds", lambda *_: False)
    return made


def nodes_of(made):
    return sum(member.solver.nodes for search in made for member in search._searches.portfolio.members.values())


def test_the_search_of_a_part_continues_in_its_next_turn_and_its_work_counts_once(short_turns, monkeypatch):
    problems, continued, begun = [hard(seed, 36, 5) for seed in range(2)], [], []
    wanted = sum(oocbe.solve(own).value for own in problems)
    go_on, presolve = BoundedSolve.go_on, solving.presolve

    def going_on(self, *given):
        continued.append(nodes_of([self]))
        go_on(self, *given)

    def presolving(*given):
        begin = time.perf_counter()
        try:
            return presolve(*given)
        finally:
            begun.append(time.perf_counter() - begin)

    short_turns.clear()
    monkeypatch.setattr(BoundedSolve, "go_on", going_on)
    monkeypatch.setattr(solving, "presolve", presolving)
    result = oocbe.solve(side_by_side(problems))
    assert (result.status, result.value) == ("optimal", wanted)
    assert max(continued) > 0 and len(short_turns) == 2
    assert 0 < sum(share.closed for share in result.solvers) <= 1
    assert result.total_rows == nodes_of(short_turns) > 0
    assert sum(begun) <= result.seconds["order"]
    assert sum(result.seconds.values()) <= 2 * result.seconds["total"]


def test_an_end_in_a_later_turn_counts_work_once(short_turns, monkeypatch):
    monkeypatch.setattr(interruption, "GRACE_SECONDS", 60.0)
    own = BoundedSolve.go_on

    def go_on(self, *given):
        before = nodes_of([self])
        own(self, *given)
        if before:
            interruption.current().request(signal.SIGINT)
            raise RequestedEndError("in a later turn")

    monkeypatch.setattr(BoundedSolve, "go_on", go_on)
    with pytest.raises(oocbe.Interrupted) as stopped:
        oocbe.solve(side_by_side([hard(seed, 38, 5) for seed in range(2)]))
    result = stopped.value.result
    assert result.total_rows == nodes_of(short_turns) > 0
    assert {share.name for share in result.solvers} >= {"depth"}
    assert sum(result.seconds.values()) <= 2 * result.seconds["total"]


@pytest.mark.usefixtures("nothing_is_easy", "short_turns")
def test_a_relaxation_that_does_not_apply_in_a_later_turn_leaves_elimination(monkeypatch):
    def unsupported(*_):
        raise UnsupportedError("no relaxation, says a test")

    monkeypatch.setattr(BoundedSolve, "_bound", unsupported)
    monkeypatch.setattr(solving.Searches, "lay_out", lambda *_: None)
    parts = [hard(seed, 12, 3) for seed in range(2)]
    result = oocbe.solve(side_by_side(parts), order_seconds=0)
    assert (result.status, result.value) == ("optimal", sum(oocbe.solve(own, bounds="none").value for own in parts))


@pytest.mark.parametrize("gap", ["70%", 600])
def test_a_gap_is_that_of_the_whole(monkeypatch, gap):
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.02)
    whole = side_by_side([hard(seed, 60, 5) for seed in range(2)])  # no turn proves one by accident
    result = oocbe.solve(whole, gap=gap)
    assert result.bound < result.value <= result.bound + (600 if gap == 600 else 0.7 * result.value)
    assert any("ended within the gap" in note for note in result.notes)


def test_a_gap_counts_from_a_value_below_the_upper_bound():
    """Each part has a value below what the bounds of the others leave, but their sum does not count."""
    whole = side_by_side([hard(seed) for seed in range(2)], 1000)
    parts = Components.of(whole, SolveOptions(gap=Gap(absolute=50)))
    parts._values, parts._bounds = [510, 520], [495, 495]
    assert parts.bounds() == (990, None)
    assert not parts._is_near_enough
    assert parts.slack == [0, 0]
    parts._values = [500, 498]
    assert parts._is_near_enough
    assert parts.slack == [47, 45]


@pytest.fixture
def at_part(monkeypatch):
    """Sets a function to be called before each turn of a part: with its number, its solve, and the whole's deadline."""
    solve, turns = solving.Solving.solve, count(1)
    called, wholes = [], []

    def solve_part(self):
        if self.stack.entries and self.stack.entries[-1].name == "component":
            called[0](next(turns), self, wholes[-1].deadline)
        elif self.problem.variables:
            wholes.append(self)
        return solve(self)

    monkeypatch.setattr(solving.Solving, "solve", solve_part)
    return called.append


def request_end(number, *_):
    if number == 2:
        interruption.current().request(signal.SIGINT)


def end_time(_, __, deadline):
    deadline.end = 0.0
    deadline.interrupt()


@pytest.mark.parametrize(("event", "limit"), [(request_end, None), (end_time, 1000.0)])
def test_parts_without_a_turn_have_an_assignment_and_a_bound(at_part, monkeypatch, event, limit):
    monkeypatch.setattr(interruption, "GRACE_SECONDS", 60.0)
    monkeypatch.setattr(incumbent_search, "MOST_SECONDS", 60.0)
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.1)
    whole = side_by_side([hard(seed, 60, 5) for seed in range(3)])
    at_part(event)
    try:
        result = oocbe.solve(whole, time_limit=limit)
    except oocbe.Interrupted as stopped:
        result = stopped.result
    assert result.status == ("limit" if limit else "interrupted")
    assert result.bound <= whole.evaluate(result.assignment) == result.value
    assert any(NOTE in note for note in result.notes)
    assert any("time limit" in note for note in result.notes) is bool(limit)  # not that of a turn


def no_memory(number, *_):
    if number > 1:
        raise ResourceError("no memory, says a test")


def test_parts_that_end_without_a_proof_have_no_further_turn(at_part):
    whole = side_by_side([hard(seed) for seed in range(3)])
    at_part(no_memory)
    result = oocbe.solve(whole)
    assert result.status == "limit"
    assert (result.value, result.assignment) == (None, None)
    assert "no memory, says a test" in result.notes


def test_a_solve_without_memory_for_any_part_raises(at_part):
    at_part(lambda *_: no_memory(2))
    with pytest.raises(ResourceError, match="says a test"):
        oocbe.solve(side_by_side([hard(seed) for seed in range(3)]))


def test_a_hint_is_the_first_assignment_of_all_parts():
    whole, observer = side_by_side([hard(seed) for seed in range(3)]), Listening()
    oocbe.solve(whole, hint={v.name: "0" for v in whole.variables}, observer=observer)
    values = [value for _, value, _ in observer.events]
    assert values[0] == whole.evaluate([0] * len(whole.variables))
    assert values == sorted(values, reverse=True)


def planted(seed: int) -> tuple[Problem, dict[str, str]]:
    """A network with an assignment without costs, which a hint names."""
    problem, random = hard(seed), np.random.default_rng(seed)
    chosen = random.integers(0, 4, len(problem.variables))
    functions = []
    for f in problem.functions:
        costs = random.integers(1, 30, (4, 4))
        costs[tuple(chosen[list(f.scope)])] = 0
        functions.append(Function.from_array(f.scope, costs))
    return replace(problem, functions=tuple(functions)), dict(enumerate(map(str, chosen)))


@pytest.mark.parametrize(("gap", "status"), [(0, "optimal"), (10**6, "limit")])
def test_a_hint_that_leaves_nothing_to_prove_of_a_part(gap, status):
    """A part's hint meets its first bound, or the gap of the whole is reached, before the part's first turn."""
    (middle, values), others = planted(1), [hard(2), hard(3)]
    whole = side_by_side([others[0], middle, others[1]])
    best = [oocbe.solve(other).assignment for other in others]
    hint = {f"x{v}.{2 * n}": str(x) for n, own in enumerate(best) for v, x in enumerate(own)}
    result = oocbe.solve(whole, gap=gap, hint=hint | {f"x{v}.1": x for v, x in values.items()})
    assert (result.status, result.value) == (status, sum(oocbe.solve(other).value for other in others))


def raise_late(number, solve, _):
    """Raise after the second part has found an assignment."""
    if number == 2:
        assignment = (0,) * len(solve.problem.variables)
        solve._knowledge_of([]).offer(solve.problem.evaluate(assignment), assignment, "a test")
        solve._knowledge_of([]).raise_lower(1, "a test")
        raise ResourceError("no memory, says a test")


def test_what_a_part_found_before_it_ran_out_of_memory_counts(at_part):
    parts, observer = [hard(seed) for seed in range(3)], Listening()
    at_part(raise_late)
    whole = side_by_side(parts)
    result = oocbe.solve(whole, observer=observer)
    assert result.status == "limit"
    assert result.value == whole.evaluate(result.assignment)
    best = [oocbe.solve(part).value for part in parts]
    assert result.value > sum(best)
    assert result.bound - 1 in [sum(best) - own for own in best]


def test_a_result_has_the_best_of_all_that_was_reported():
    problem, events = hard(0, 6, 3), Listening()
    history = solving.History(events, 0.0, problem)
    zeros, best = (0,) * 6, oocbe.solve(problem)
    history.bounds_changed(3, problem.evaluate(zeros), "one", zeros)
    history.bounds_changed(None, best.value, "another", best.assignment)
    history.bounds_changed(1, None, "a third", None)
    assert events.events == [(3, problem.evaluate(zeros), zeros), (3, best.value, best.assignment)]
    result = replace(best, status="limit", bound=2, value=problem.evaluate(zeros), assignment=zeros)
    found = history.attach_history(result, problem, SolveOptions())
    assert (found.bound, found.value, found.assignment) == (3, best.value, best.assignment)


def test_components_of_many_assignments():
    """More of them than floats represent."""
    whole = side_by_side([hard(seed, 520, 4) for seed in range(2)])
    assert len(Components.of(whole, SolveOptions()).assignment) == 1040


def test_labels_are_the_least_variables_of_connected_components():
    for seed in range(examples(200)):
        problem = anything(seed)
        label = np.arange(len(problem.variables))
        scopes = [part.scope for part in (*problem.functions, *problem.constraints)]
        scopes += [c.scope for c in problem.linear_constraints if c.can_bind]
        for _ in problem.variables:
            for scope in scopes:
                label[list(scope)] = min(label[list(scope)], default=0)
        assert (labels(problem) == label).all()
