"""CPMpy's solver: every constraint and function of CPMpy against brute force, in all contexts, and what is refused."""

from __future__ import annotations

import importlib.util
import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

# OR-tools, which CPMpy brings, and a later HiGHS than 1.14 cannot be loaded by one process.
cp = pytest.importorskip("cpmpy", exc_type=ImportError)

from cpmpy.exceptions import NotSupportedError  # noqa: E402
from cpmpy.expressions import globalconstraints, globalfunctions  # noqa: E402
from cpmpy.expressions.core import Operator  # noqa: E402
from cpmpy.expressions.utils import argval, argvals  # noqa: E402
from cpmpy.solvers.solver_interface import ExitStatus  # noqa: E402

from oocbe.api.cpmpy import CPM_oocbe  # noqa: E402  (which CPMpy then knows)
from oocbe.errors import TimeLimitError, UnsupportedError  # noqa: E402
from oocbe.formats import xcsp_relations  # noqa: E402
from oocbe.model.problem import Problem  # noqa: E402
from oocbe.model.settings.options import SolveOptions  # noqa: E402
from oocbe.propagation.propagated import propagated  # noqa: E402
from oocbe.runtime.deadline import Deadline, current  # noqa: E402
from oocbe.search import depth_search  # noqa: E402
from oocbe.search.depth_search import DepthSearch  # noqa: E402
from oocbe.search.depth_tree import FIRST_NODES  # noqa: E402
from oocbe.search.searches import RowProblem  # noqa: E402
from oocbe.search.subsolver import SharedBounds  # noqa: E402
from tests.helpers.fake_clock import Clock  # noqa: E402

Make = Callable[[random.Random], Any]


def numbers(low: int, high: int, count: int) -> list[Any]:
    return [cp.intvar(low, high) for _ in range(count)]


def truths(count: int) -> list[Any]:
    return [cp.boolvar() for _ in range(count)]


def rows(rng: random.Random, width: int, symbols: str | tuple[Any, ...] = (0, 1, 2)) -> list[list[Any]]:
    return [[rng.choice(symbols) for _ in range(width)] for _ in range(rng.randint(1, 6))]


def tasks(rng: random.Random, count: int = 3) -> tuple[list[Any], list[int], list[Any]]:
    lengths = [rng.randint(0, 2) for _ in range(count)]
    return numbers(0, 2, count), lengths, numbers(0, 2, count) if rng.random() < 0.3 else []


def cumulative(rng: random.Random) -> Any:
    starts, lengths, ends = tasks(rng)
    heights = [rng.randint(0, 2) for _ in starts]
    return cp.Cumulative(starts, lengths, ends or None, heights, rng.choice([2, cp.intvar(1, 2)]))


def no_overlap(rng: random.Random) -> Any:
    starts, lengths, ends = tasks(rng)
    return cp.NoOverlap(starts, lengths, ends or None)


def automaton(rng: random.Random) -> Any:
    moves = [(a, v, rng.choice("abc")) for a in "abc" for v in range(3) if rng.random() < 0.6]
    return cp.Regular(numbers(0, 2, 4), moves or [("a", 0, "a")], "a", rng.sample("abc", 2))


def diagram(rng: random.Random) -> Any:
    listed = rows(rng, 3)
    moves = {
        (str(row[:place]), row[place], str(row[: place + 1]) if place < 2 else "end")
        for row in listed
        for place in range(3)
    }
    return cp.MDD(numbers(0, 2, 3), sorted(moves), start="[]")


def element(rng: random.Random) -> Any:
    cells = [rng.randint(-2, 3) for _ in range(4)] if rng.random() < 0.5 else numbers(-1, 2, 3)
    return cp.Element(cells, cp.intvar(-1, 4))


CONSTRAINTS: dict[str, Make] = {
    "AllDifferent": lambda rng: cp.AllDifferent(numbers(0, 3, 4)),
    "AllDifferentExceptN": lambda rng: cp.AllDifferentExceptN(numbers(0, 3, 4), rng.choice([0, [1, 2]])),
    "AllDifferentExcept0": lambda rng: cp.AllDifferentExcept0(numbers(0, 3, 4)),
    "AllEqual": lambda rng: cp.AllEqual([*numbers(0, 3, 3), cp.boolvar()]),
    "AllEqualExceptN": lambda rng: cp.AllEqualExceptN(numbers(0, 3, 3), rng.choice([2, [0, 3]])),
    "Circuit": lambda rng: cp.Circuit(numbers(rng.choice([-1, 0]), rng.choice([2, 3]), 3)),
    "Inverse": lambda rng: cp.Inverse(numbers(0, 2, 3), numbers(0, rng.choice([2, 3]), 3)),
    "Table": lambda rng: cp.Table(numbers(0, 2, 3), rows(rng, 3)),
    "ShortTable": lambda rng: cp.ShortTable(numbers(0, 3, 3), rows(rng, 3, (0, 1, 2, "*"))),
    "NegativeTable": lambda rng: cp.NegativeTable(numbers(0, 2, 3), rows(rng, 3)),
    "Regular": automaton,
    "MDD": diagram,
    "IfThenElse": lambda rng: cp.IfThenElse(*truths(2), cp.intvar(0, 2) > 1),
    "InDomain": lambda rng: cp.InDomain(cp.intvar(0, 6), rng.sample(range(-1, 9), 4)),
    "Xor": lambda rng: cp.Xor([*truths(3), cp.intvar(0, 2) == 1]),
    "Cumulative": cumulative,
    "CumulativeOptional": lambda rng: cp.CumulativeOptional(
        *tasks(rng)[:2], demand=[1, 2, 1], capacity=2, is_present=truths(3)
    ),
    "NoOverlap": no_overlap,
    "NoOverlapOptional": lambda rng: cp.NoOverlapOptional(*tasks(rng)[:2], is_present=truths(3)),
    "Precedence": lambda rng: cp.Precedence(numbers(0, 3, 4), [0, 2, 1][: rng.randint(2, 3)]),
    "GlobalCardinalityCount": lambda rng: cp.GlobalCardinalityCount(
        numbers(0, 3, 3), [1, 3], [cp.intvar(0, 2), rng.randint(0, 2)], closed=rng.random() < 0.5
    ),
    "Increasing": lambda rng: cp.Increasing(numbers(0, 3, 3)),
    "IncreasingStrict": lambda rng: cp.IncreasingStrict(numbers(0, 3, 3)),
    "Decreasing": lambda rng: cp.Decreasing(numbers(0, 3, 3)),
    "DecreasingStrict": lambda rng: cp.DecreasingStrict(numbers(0, 3, 3)),
    "LexLess": lambda rng: cp.LexLess(numbers(0, 1, 3), numbers(0, 1, 3)),
    "LexLessEq": lambda rng: cp.LexLessEq(numbers(0, 1, 3), numbers(0, 1, 3)),
    "LexChainLess": lambda rng: cp.LexChainLess([numbers(0, 1, 2) for _ in range(3)]),
    "LexChainLessEq": lambda rng: cp.LexChainLessEq([numbers(0, 1, 2) for _ in range(3)]),
    "Reservoir": lambda rng: cp.Reservoir(numbers(0, 2, 3), [1, rng.choice([-1, -2]), 1], 0, 2),
    "ReservoirOptional": lambda rng: cp.ReservoirOptional(numbers(0, 2, 3), [1, -1, 2], 0, 2, is_present=truths(3)),
}
"""Of each global constraint one over a few variables."""

FUNCTIONS: dict[str, Make] = {
    "Minimum": lambda rng: cp.min(numbers(-1, 2, 3)),
    "Maximum": lambda rng: cp.max([*numbers(-1, 2, 2), rng.randint(-1, 2)]),
    "Abs": lambda rng: cp.abs(cp.intvar(-2, 3) - cp.intvar(0, 3)),
    "Multiplication": lambda rng: cp.intvar(-2, 2) * cp.intvar(-2, 2) * rng.randint(-2, 2),
    "Division": lambda rng: cp.intvar(-5, 5) // cp.intvar(rng.choice([-2, 0, 1]), 2),
    "Modulo": lambda rng: cp.intvar(-5, 5) % cp.intvar(rng.choice([-2, 0, 1]), 3),
    "Power": lambda rng: cp.intvar(-2, 3) ** rng.randint(0, 3),
    "Element": element,
    "NDElement": lambda rng: cp.cpm_array([[1, 2, -1], [0, 3, 2]])[cp.intvar(-1, 1), cp.intvar(0, 3)],
    "Count": lambda rng: cp.Count(numbers(0, 2, 3), rng.choice([1, cp.intvar(0, 3)])),
    "Among": lambda rng: cp.Among(numbers(0, 3, 3), [0, 3]),
    "NValue": lambda rng: cp.NValue(numbers(0, 2, 3)),
    "NValueExcept": lambda rng: cp.NValueExcept(numbers(0, 2, 3), 1),
}
"""Of each global function one over a few variables."""


def test_no_constraint_is_missing() -> None:
    known = {
        name
        for module, base in ((globalconstraints, "GlobalConstraint"), (globalfunctions, "GlobalFunction"))
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, getattr(module, base)) and name != base
    }
    assert known == CONSTRAINTS.keys() | FUNCTIONS.keys()


def in_context(own: Any, rng: random.Random) -> Any:
    """The constraint alone, negated, or within another one."""
    return rng.choice(
        [
            lambda: own,
            lambda: ~own,
            lambda: cp.boolvar() == own,
            lambda: cp.boolvar().implies(own),
            lambda: own.implies(cp.boolvar()),
            lambda: own | (cp.intvar(0, 2) > 1),
            lambda: cp.boolvar() + own >= 1,
            lambda: cp.intvar(0, 2) != cp.boolvar() + own,
        ]
    )()


def compared(own: Any, rng: random.Random) -> Any:
    low, high = own.get_bounds()
    right = rng.choice([rng.randint(low, high), cp.intvar(max(low, -2), min(high, 3))])
    return rng.choice(
        [
            lambda: own == right,
            lambda: own != right,
            lambda: own <= right,
            lambda: own > right,
            lambda: own + right >= 2,
        ]
    )()


def solutions_of(constraint: Any) -> tuple[list[Any], set[tuple[int, ...]]]:
    """Variables, and all assignments that make a constraint true, by trying all."""
    scope = sorted(cp.transformations.get_variables.get_variables(constraint), key=str)
    found = set()
    for values in itertools.product(*(range(int(v.lb), int(v.ub) + 1) for v in scope)):
        for v, value in zip(scope, values, strict=True):
            v._value = bool(value) if v.is_bool() else value
        if argval(constraint):
            found.add(values)
    return scope, found


def listed_by(model: Any, scope: list[Any], **more: Any) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    count = model.solveAll(solver="oocbe", display=lambda: found.append(tuple(map(int, argvals(scope)))), **more)
    assert count == len(found)
    return found


@pytest.mark.parametrize("name", [*CONSTRAINTS, *FUNCTIONS])
def test_solutions_are_those_of_brute_force(name: str) -> None:
    rng = random.Random(name)
    for number in range(2):
        own = CONSTRAINTS[name](rng) if name in CONSTRAINTS else compared(FUNCTIONS[name](rng), rng)
        constraint = own if number == 0 else in_context(own, rng)
        scope, expected = solutions_of(constraint)
        model = cp.Model(constraint)
        found = listed_by(model, scope)
        assert len(found) == len(set(found)), constraint
        assert set(found) == expected, constraint
        wanted = ExitStatus.OPTIMAL if expected else ExitStatus.UNSATISFIABLE
        assert model.status().exitstatus == wanted
        assert cp.SolverLookup.get("oocbe", model).count() == len(expected), constraint
        if number == 0:  # what is within others is optimised as well
            continue
        weights = [rng.randint(-3, 3) for _ in scope]
        total = sum(w * v for w, v in zip(weights, scope, strict=True)) + own
        model = cp.Model(constraint, **{rng.choice(["minimize", "maximize"]): total})
        values = {}
        for row in expected:
            for v, value in zip(scope, row, strict=True):
                v._value = bool(value) if v.is_bool() else value
            values[row] = argval(total)
        best = (min if model.objective_is_min else max)(values.values(), default=None)
        ties = {row for row, value in values.items() if value == best}
        solver = cp.SolverLookup.get("oocbe", model)
        assert solver.solve() == bool(expected)
        assert solver.objective_value() == best
        if expected:
            assert tuple(map(int, argvals(scope))) in ties
        assert set(listed_by(model, scope)) == ties
        assert solver.count() == len(ties)


def test_an_index_with_loose_bounds_stays_within_its_array() -> None:
    after = cp.intvar(0, 3, shape=3)
    constraint = cp.Circuit(*after, cp.NValue(after[:2]))  # 1 or 2; its decomposition has bounds 0 and 4
    scope, expected = solutions_of(constraint)
    assert expected
    assert set(listed_by(cp.Model(constraint), scope)) == expected


def test_random_models_have_ortools_optima(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    for number in range(12):
        if number == 10:  # from here on, what is no small table is linear or of parts
            for name in ("SMALL_TABLE", "SHORT_TABLE", "DENSE_TABLE"):
                monkeypatch.setattr(xcsp_relations, name, 16)
        made = [in_context(make(rng), rng) for make in rng.sample(list(CONSTRAINTS.values()), 2)]
        made += [compared(make(rng), rng) for make in rng.sample(list(FUNCTIONS.values()), 2)]
        scope = sorted(cp.transformations.get_variables.get_variables(made), key=str)
        joined = [a + b <= 3 for a, b in itertools.pairwise(rng.sample(scope, 4))]
        total = sum(rng.randint(-3, 3) * v for v in scope)
        model = cp.Model([*made, *joined], maximize=total)
        answers = []
        for solver in ("ortools", "oocbe"):
            is_solved = model.solve(solver=solver)
            answers.append((is_solved, model.objective_value() if is_solved else None))
            assert model.status().exitstatus in (ExitStatus.OPTIMAL, ExitStatus.UNSATISFIABLE)
        assert answers[0] == answers[1], model
        if answers[1][0]:
            assert all(argval(own) for own in made)


def ruler(marks: int, longest: int) -> Any:
    """A Golomb ruler: differences of marks are distinct, and the last mark is small."""
    x = cp.intvar(0, longest, shape=marks)
    gaps = [b - a for a, b in itertools.combinations(x, 2)]
    return cp.Model(x[0] == 0, cp.IncreasingStrict(x), cp.AllDifferent(gaps), minimize=x[-1])


def latest(tasks: int) -> Any:
    """The end of the last of some tasks, one after another."""
    start = cp.intvar(0, 60, shape=tasks)
    model = cp.Model([a != b for a, b in itertools.combinations(start, 2)])
    model.minimize(cp.max(start + np.arange(tasks)))
    return model


def sidelobes(bits: int) -> Any:
    """Squares of sums of truths over many bits."""
    x, sums = cp.boolvar(shape=bits), cp.intvar(-bits, bits, shape=bits)
    gaps = [sums[k] == bits - k - 2 * cp.sum(x[i] != x[i + k] for i in range(bits - k)) for k in range(1, bits)]
    return cp.Model(sums[0] == 0, gaps, minimize=cp.sum(own * own for own in sums))


@pytest.mark.parametrize("model", [ruler(6, 25), latest(5), sidelobes(17)], ids=["ruler", "latest", "sidelobes"])
def test_a_first_dive_has_an_assignment(model: Any) -> None:
    """Searches take the tables of the model, and few decisions determine the other variables."""
    problem = propagated(CPM_oocbe(model).native_model, SolveOptions()).problem
    reduction, known = RowProblem(problem).reduction, SharedBounds(problem, SolveOptions().gap, lambda *_: None)
    assert reduction is not None
    search = DepthSearch(reduction, known, 1 << 28)
    with mock.patch.object(depth_search, "find_incumbent", return_value=None):
        while known.value is None and search.nodes < FIRST_NODES:
            search.work(0.0, Deadline())
    assert known.value is not None


def test_counts_have_tables_of_few_variables() -> None:
    """Differences of marks as variables of their own would take elimination long."""
    solver = CPM_oocbe(ruler(5, 17))
    assert len(solver.native_model.variables) > 5
    assert solver.count() == 4  # the best rulers
    assert len(solver.native_model.variables) == 5
    assert solver.solve() and solver.objective_value() == 11 and len(solver.native_model.variables) > 5


def test_what_is_refused_changes_no_later_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts translate the model again: a solve after them had lost the constraints behind a refused one."""
    x, y = cp.intvar(0, 1100, shape=4), cp.intvar(0, 3, shape=2)
    solver = CPM_oocbe(cp.Model(y[0] > y[1]))
    with pytest.raises(NotSupportedError):
        solver.add(x[0] * x[1] == x[2] * x[3])
    solver.add(y[1] >= 2)
    assert solver.solve() and y.value().tolist() == [3, 2]
    assert solver.count() == 1
    assert solver.solve() and y.value().tolist() == [3, 2]
    monkeypatch.setattr(xcsp_relations, "MOST_EVALUATED", 2**17)
    z = cp.intvar(0, 19, shape=4)
    solver = CPM_oocbe(cp.Model(z[0] < z[1]))
    assert solver.count() == 190
    solver += z[1] - z[0] != z[3] - z[2]  # more assignments than a count may evaluate
    assert solver.solve() and z[1].value() - z[0].value() != z[3].value() - z[2].value()


def test_sums_of_too_many_values_for_a_variable_are_tables() -> None:
    x = cp.intvar(1, 10, shape=5)
    sums = 1000 * (x[0] * x[1]) + x[2], 999 * (x[3] * x[4])
    for own in (sums[0] + 777 * sums[1] != 5001, cp.max(sums) + abs(x[2] - 4) <= 15000):
        solver = CPM_oocbe(cp.Model(own))
        assert solver.solve() and argval(own)
    assert solver.count() == sum(
        max(1000 * a * b + c, 999 * d * e) + abs(c - 4) <= 15000
        for a, b, c, d, e in itertools.product(range(1, 11), repeat=5)
    )


def test_a_maximum_over_too_many_values_for_a_search_is_a_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such models were refused, and then accepted with a variable of any value in place of the maximum."""
    x = cp.intvar(0, 20, shape=4)
    best = cp.max([126 * x[0] - x[1], 675 * x[0] - 1000 * x[1] - 1000 * x[2] + 851 * x[3]])
    solver = CPM_oocbe(cp.Model(cp.sum(x) <= 5))
    solver.maximize(best)
    solver += x[3] <= 4
    assert solver.solve() and solver.objective_value() == argval(best) == 4 * 851 + 675
    assert solver.count() == 1
    monkeypatch.setattr(xcsp_relations, "MOST_EVALUATED", 21**4)
    y = cp.intvar(0, 24, shape=4)
    parts = y[1] - y[0] != y[3] - y[2]  # more assignments than a whole table may have
    with pytest.raises(NotSupportedError):
        solver.add(parts)
    solver.minimize(x[0])
    solver.add(parts)
    assert solver.solve() and solver.objective_value() == 0 and argval(parts)


def test_what_is_refused_leaves_nothing_behind() -> None:
    """A second call took variables made for the first, whose constraints were missing; a large domain spoiled all."""
    x, y = cp.intvar(0, 40, shape=8), cp.intvar(0, 10**8)
    best = cp.max([1000 * cp.sum(x[:4]) - x[4], 999 * cp.sum(x[4:]) - x[0]])
    solver = CPM_oocbe(cp.Model(x <= 3))
    solver.minimize(x[0])
    for _ in range(2):
        with pytest.raises(NotSupportedError):
            solver.add([x[0] >= 1, best >= 1])
        with pytest.raises(NotSupportedError):
            solver.maximize(best)
        with pytest.raises(NotSupportedError):
            solver.add(y >= x[0])
    with pytest.raises(KeyboardInterrupt), mock.patch.object(solver, "_post", side_effect=KeyboardInterrupt):
        solver.add([x[0] >= 1, x[1] >= 1])
    assert solver.solve() and solver.objective_value() == 0
    assert solver.count() == 4**7


def test_a_time_limit_includes_the_walks_of_wide_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []

    def walks(problem: Problem) -> Problem:
        deadline = current()
        left.append(0.0 if deadline is None else deadline.remaining)
        raise TimeLimitError("the time limit was reached")

    monkeypatch.setattr("oocbe.api.cpmpy.with_walks", walks)
    for name in ("count", "k_best"):
        monkeypatch.setattr(f"oocbe.api.cpmpy.{name}", mock.Mock(side_effect=UnsupportedError("wide sums")))
    solver = CPM_oocbe(cp.Model(cp.sum(cp.intvar(0, 40, shape=5)) <= 2))
    with pytest.raises(TimeLimitError):
        solver.count(time_limit=50)
    assert solver.solveAll(time_limit=50) == 0 and solver.status().exitstatus is ExitStatus.UNKNOWN
    assert len(left) == 2 and all(0 < own <= 50 for own in left)


def test_it_is_among_the_solvers_of_cpmpy() -> None:
    x = cp.intvar(0, 9)
    model = cp.Model(x > 3, minimize=x)
    solver = cp.SolverLookup.get("oocbe", model)
    assert isinstance(solver, CPM_oocbe)
    assert "oocbe" in cp.SolverLookup.supported()
    assert solver.solve()
    assert (x.value(), solver.objective_value(), solver.status().exitstatus) == (4, 4, ExitStatus.OPTIMAL)
    assert solver.native_model.number_by_name == {x.name: 0}
    solver.maximize(2 * x)  # in place of the earlier objective
    solver += x != 9
    assert solver.solve()
    assert (x.value(), solver.objective_value()) == (8, 16)


def test_arrays_among_arguments_are_read() -> None:
    x = cp.intvar(0, 2, shape=2)
    own = cp.max(x)
    own._args = (x, 1)  # as models stored by older versions of CPMpy have it
    assert len(listed_by(cp.Model(own == 1), list(x))) == 4


def test_names_of_variables_in_between_stay_apart() -> None:
    names = ("expression.1", "state.1.1", "cpmpy.expression.1", "x")
    listed = [cp.intvar(0, 40, name=name) for name in names]
    a, b, c, d = listed
    model = cp.Model(a * b == c + d, cp.Regular(listed, [("s", 0, "s"), ("s", 2, "e"), ("e", 4, "e")], "s", ["e"]))
    assert listed_by(model, listed) == [(2, 4, 4, 4)]
    assert {v.name for v in cp.SolverLookup.get("oocbe", model).native_model.variables} > {"cpmpy.expression.1", "x"}


def test_hints_are_taken_first_and_bound_the_optimum() -> None:
    a, b = cp.boolvar(shape=2)
    solver = cp.SolverLookup.get("oocbe", cp.Model(a | b))
    for values in ([True, False], [False, True]):
        solver.solution_hint([a, ~b], [values[0], not values[1]])
        assert solver.solve()
        assert [a.value(), b.value()] == values
    solver.solution_hint([a, b], [False, False])
    assert solver.solve()
    for sense, best in (("minimize", 1), ("maximize", 4)):
        x = cp.intvar(0, 9, shape=2)
        model = cp.Model(x[0] + x[1] >= 1, x[0] < 3, x[1] < 3, **{sense: x[0] + x[1]})
        for hint in ([2, 2], [0, 1], [9, 0], [12, 0]):
            solver = cp.SolverLookup.get("oocbe", model)
            solver.solution_hint(x, hint)
            assert solver.solve()
            assert (solver.objective_value(), sum(x.value())) == (best, best)
            assert solver.status().exitstatus == ExitStatus.OPTIMAL


def test_arguments_that_are_no_limits_hints_or_options_are_refused() -> None:
    """Some ended in a TypeError of Python; a semiring or a limit of 0 made a model without a solution."""
    x = cp.intvar(1, 4, shape=2, name="x")
    solver = CPM_oocbe(cp.Model(x[0] < x[1]))
    for limit in ("3", 0, -1, 2.5, float("nan"), float("inf"), []):
        with pytest.raises(ValueError, match=r"solution_limit: .* is not a whole number"):
            solver.solveAll(solution_limit=limit)
    assert solver.solveAll(solution_limit=np.int8(2)) == 2
    for option in (
        {"semiring": "counting"},
        {"evidence": {"x[0]": "2"}},
        {"hint": {"x[0]": 1}},
        {"ub": 1},
        {"k": 3},
        {"problem": 4},
    ):
        for ask in (solver.solve, solver.solveAll, solver.count):
            with pytest.raises(NotSupportedError, match="is no option here"):
                ask(**option)
    for listed, values in (([x[0]], [1, 2]), (x, ["a", "b"]), (x, [1.5, 2]), (x, [None, 1]), (["x"], [3]), (x, 3)):
        with pytest.raises(ValueError, match="not variables and a whole number for each"):
            solver.solution_hint(listed, values)


def test_a_hint_adds_no_variable_and_warns_of_no_label(caplog: pytest.LogCaptureFixture) -> None:
    """One of a variable that the model lacks multiplied its number of solutions."""
    x, other = cp.intvar(1, 4, shape=2, name="x"), cp.intvar(0, 3, name="other")
    solver = CPM_oocbe(cp.Model(x[0] < x[1]))
    solver.solution_hint([x[0], x[1], other], [2, 3, 1])
    assert solver.solve()
    assert (x.value().tolist(), solver.count(), solver.solveAll()) == ([2, 3], 6, 6)
    assert not caplog.records


def test_sums_of_floats_are_optimised() -> None:
    x = cp.intvar(0, 3, shape=2)
    solver = CPM_oocbe(cp.Model(x[0] + x[1] == 3))
    solver.minimize(cp.FloatSum([0.5, 0.25], x, 1.0))
    assert solver.solve()
    assert x.value().tolist() == [0, 3]
    assert solver.objective_value() is None


def test_coefficients_of_an_objective_that_are_not_whole_are_kept() -> None:
    """They were cut to integers: 0.3, 0.5 and 0.6 added up to 0."""
    x, y, n = cp.boolvar(), cp.boolvar(), cp.intvar(0, 3)
    weighted = Operator("wsum", [[0.3, -0.5, 0.25], [x, y, n * n - 4 * n]])
    # Sums that CPMpy leaves within sums and products were refused.
    for own, (sense, best) in itertools.product(
        (weighted, weighted + 3, 2 * weighted + 1, 4 * weighted - 2),
        (("minimize", (0, 1, 2)), ("maximize", (1, 0, 0))),
    ):
        solver = CPM_oocbe(cp.Model(**{sense: own}))
        assert solver.solve()
        assert (int(x.value()), int(y.value()), n.value()) == best
    with pytest.raises(NotSupportedError, match="coefficients that are not whole"):
        CPM_oocbe(cp.Model(weighted >= 1))


def test_an_objective_that_is_a_variable_may_have_any_name() -> None:
    """A variable called wsum was taken for a sum."""
    for name in ("wsum", "sum", "mul"):
        x = cp.intvar(1, 3, name=name)
        solver = CPM_oocbe(cp.Model(x >= 2, minimize=x))
        assert solver.solve()
        assert x.value() == solver.objective_value() == 2


def test_solutions_are_limited_by_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over once the first ones are there: a short limit was over before, on a busy machine."""
    x = cp.boolvar(shape=32)
    model = cp.Model(cp.any(x))
    assert model.solveAll(solver="oocbe", solution_limit=10) == 10
    assert model.status().exitstatus == ExitStatus.FEASIBLE
    clock = Clock()
    monkeypatch.setattr("oocbe.api.cpmpy.time", clock)
    assert model.solveAll(solver="oocbe", time_limit=1000, display=lambda: setattr(clock, "now", 2000.0)) == 1024
    assert model.status().exitstatus == ExitStatus.FEASIBLE
    assert CPM_oocbe(model).count() == 2**32 - 1


def test_solutions_of_wide_sums_are_listed() -> None:
    x = cp.intvar(0, 60, shape=8)
    weights = np.array([1009, 3001, 4999, 7001, 8999, 11003, 13001, 15013])
    model = cp.Model(cp.sum(weights * x) == 1009 * 2 + 15013 + 3001, cp.max(x) <= 2)
    found = listed_by(model, list(x))
    brute = [row for row in itertools.product(range(3), repeat=8) if np.dot(row, weights) == 1009 * 2 + 15013 + 3001]
    assert sorted(found) == sorted(brute)


def test_tables_of_long_horizons_stay_small() -> None:
    starts, ends = cp.intvar(0, 50, shape=6), cp.intvar(0, 50, shape=6)
    problem = CPM_oocbe(cp.Model(cp.Cumulative(starts, [1, 2, 3, 4, 2, 3], ends, [2, 1, 2, 1, 2, 1], 3))).native_model
    assert max(len(own.tuples) for own in problem.constraints) <= 51 * 51


def test_half_reified_tables_have_each_solution_once() -> None:
    x, p = cp.intvar(-1, 2, shape=3), cp.boolvar()
    own = p.implies(cp.Table(x, [[0, 1, 2], [1, 2, 0], [1, 0, 2]]))
    assert CPM_oocbe(cp.Model(own)).count() == 4**3 + 3


def test_what_is_refused_names_itself() -> None:
    x = cp.intvar(0, 10**5, shape=4, name="x")
    with pytest.raises(NotSupportedError, match=r"x\[0\]\) \* \(x\[1\].*assignments"):
        cp.Model(x[0] * x[1] == x[2] * x[3]).solve(solver="oocbe")
    with pytest.raises(NotSupportedError, match="variable y has 100,000,001 values"):
        cp.Model(cp.intvar(0, 10**8, name="y") > 3).solve(solver="oocbe")
    solver = CPM_oocbe(cp.Model(x[0] > 3))
    with pytest.raises(NotSupportedError, match="assumptions"):
        solver.solve(assumptions=[cp.boolvar()])
    with pytest.raises(NotSupportedError, match="core"):
        solver.get_core()
    with pytest.raises(NotSupportedError, match="no subsolver"):
        cp.Model(x[0] > 3).solve(solver="oocbe:fast")
    for wrong in (-1, "abc", float("nan")):
        with pytest.raises(ValueError, match=f"time_limit: {wrong!r} is not a number of seconds"):
            solver.solve(time_limit=wrong)
    assert solver.solve(time_limit=np.int64(20))
    with mock.patch("oocbe.api.cpmpy.MOST_LISTED", 5), pytest.raises(NotSupportedError, match="solution_limit"):
        cp.Model(cp.any(cp.boolvar(shape=4))).solveAll(solver="oocbe")


def test_the_example_of_the_page_prints_what_is_shown(capsys):
    page = (Path(__file__).parents[2] / "docs" / "cpmpy.md").read_text()
    code, shown = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)[0]
    exec(code, {})
    assert capsys.readouterr().out == shown


def test_the_file_for_cpmpy_makes_the_solver(monkeypatch):
    """What a pull request would add: it knows oocbe without importing it, as oocbe imports CPMpy."""
    path = Path(__file__).parents[2] / "packaging" / "cpmpy" / "oocbe.py"
    spec = importlib.util.spec_from_file_location("cpmpy.solvers.oocbe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known = [("oocbe", module.CPM_oocbe)]
    monkeypatch.setattr(cp.SolverLookup, "base_solvers", classmethod(lambda cls: known))
    x = cp.intvar(1, 3, name="x")
    model = cp.Model(x > 1, minimize=x)
    assert model.solve(solver="oocbe") and model.objective_value() == 2
    assert isinstance(cp.SolverLookup.get("oocbe", model), CPM_oocbe)
    monkeypatch.setattr(module.CPM_oocbe, "version", classmethod(lambda cls: None))
    assert "oocbe" not in cp.SolverLookup.supported()
    with pytest.raises(ModuleNotFoundError, match="Install the python package 'oocbe'"):
        module.CPM_oocbe(model)
