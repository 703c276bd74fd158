"""What is eliminated and removed before rows are made leaves what the others' assignments can cost, and an optimum."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from oocbe.bounds import row_reduction, row_tables
from oocbe.bounds.kernels.cpu.table_elimination import mark_divisible
from oocbe.bounds.row_reduction import Elimination, Removal, pieces_of, reduced, values_needed
from oocbe.bounds.row_tables import ScopeTables
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.stress import random_network
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, kept_of, photographs
from tests.helpers.effort import examples, in_turns
from tests.helpers.small_problems import all_values

NOTHING = np.zeros((0, 0), dtype=bool)
"""No linear constraint."""


def least_of_rest(problem: Problem, variables: tuple[int, ...]) -> np.ndarray:
    """What each assignment of some variables costs at least, infinite where it is infeasible."""
    total, feasible = all_values(problem.below(None))
    values = np.where(feasible, total.astype(np.float64), np.inf)
    return values.min(axis=tuple(v for v in range(len(problem.sizes)) if v not in variables))


def costs_of(tables: ScopeTables) -> np.ndarray:
    """What the tables say that each assignment costs, an axis a variable."""
    sizes = tables.problem.sizes
    total = np.full(sizes, np.inf if tables.is_impossible else tables.constant, dtype=np.float64)
    for part in tables.parts:
        shape = [n if v in part.scope else 1 for v, n in enumerate(sizes)]
        total = total + np.where(part.permitted, part.values, np.inf).reshape(shape)
    return total


def determined(seed: int) -> Problem:
    """Random costs between all pairs of variables, some of which a neighbour determines, by a function or a copy."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 4, 6).tolist()
    functions = [
        Function.from_array((u, v), random.integers(-9, 9, (sizes[u], sizes[v]))) for u in range(6) for v in range(u)
    ]
    constraints = []
    for v in range(1, 6):
        if random.random() < 0.5:
            u = int(random.integers(v))
            allowed = np.column_stack([np.arange(sizes[u]), random.integers(0, sizes[v], sizes[u])])
            constraints.append(Constraint((u, v), allowed, allowed=True))
    return Problem(tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes)), tuple(functions), tuple(constraints))


def test_a_fixed_distance_leaves_one_of_two_variables(monkeypatch):
    """Eight links there and back: each pair has one frequency to choose, and no elimination is small enough."""
    monkeypatch.setattr(row_reduction, "MOST_JOINED", 1)
    random = np.random.default_rng(0)
    far = np.argwhere(np.abs(np.arange(6)[:, None] - np.arange(6)[None]) == 3)
    constraints = [Constraint((v, v + 1), far, allowed=True) for v in range(0, 8, 2)]
    functions = [Function.from_array((u, v), random.integers(0, 9, (6, 6))) for u in range(8) for v in range(u)]
    problem = Problem(tuple(Variable(f"x{v}", 6) for v in range(8)), tuple(functions), tuple(constraints))
    made = reduced(ScopeTables.of(problem))
    assert len(made.variables) == 4
    assert max(len(part.scope) for part in made.tables.parts) == 2
    for _ in range(20):
        rest = [int(random.integers(size)) for size in made.tables.problem.sizes]
        assignment = made.complete(rest)
        assert problem.evaluate(assignment) == made.tables.evaluate(rest)
        assert made.restricted(assignment) == tuple(rest)


@pytest.mark.parametrize(
    ("make", "joined"),
    in_turns((anything, photographs, costly_photographs, hidden_solution, determined), (1 << 12, 1 << 4)),
)
def test_what_is_left_costs_what_its_best_completion_does(make, joined, monkeypatch):
    monkeypatch.setattr(row_reduction, "MOST_JOINED", joined)
    gone = values_gone = 0
    for seed in range(examples(150)):
        problem = make(seed)
        tables = ScopeTables.of(problem)
        made = reduced(tables)
        eliminated = [step.variable for step in made.steps if isinstance(step, Elimination)]
        assert sorted([*made.variables, *eliminated]) == list(range(len(problem.sizes)))
        assert (made.tables.grid, made.tables.rounding) == (tables.grid, tables.rounding)
        kept = kept_of(made)
        assert made.tables.problem.sizes == tuple(map(len, kept))
        whole, found = least_of_rest(problem, made.variables), costs_of(made.tables)
        least = np.inf if made.tables.is_impossible else whole[np.ix_(*kept)]
        assert found == pytest.approx(least, rel=1e-12, abs=1e-12)
        assert found.min() == pytest.approx(whole.min(), rel=1e-12, abs=1e-12)
        for part in made.tables.parts:
            assert part.values[~part.permitted].sum() == 0
            assert part.least == (part.values[part.permitted].min() if part.permitted.any() else 0)
        best = np.unravel_index(found.argmin(), found.shape)
        if np.isfinite(found[best]):
            assignment = made.complete([int(value) for value in best])
            assert problem.below(None).evaluate(assignment) == pytest.approx(found[best], rel=1e-12, abs=1e-12)
        gone += len(eliminated)
        values_gone += sum(isinstance(step, Removal) for step in made.steps)
    assert gone > examples(100)
    assert values_gone > examples(10)


def test_a_tree_leaves_one_variable():
    functions = tuple(Function.from_array((v // 2, v), np.arange(9).reshape(3, 3) * v % 5) for v in range(1, 30))
    made = reduced(ScopeTables.of(Problem(tuple(Variable(f"x{v}", 3) for v in range(30)), functions)))
    assert len(made.variables) == 1


def test_nothing_goes_where_all_would_grow():
    tables = ScopeTables.of(random_network(8, 4, 1.0, tightness=0.0, seed=0))
    made = reduced(tables)
    assert not made.steps
    assert [part.scope for part in made.tables.parts] == [part.scope for part in tables.parts]


def small(random, sizes, count, largest) -> Problem:
    """Functions over one to four variables, dense, too large to be eliminated at once."""
    functions = []
    for _ in range(count):
        scope = tuple(random.choice(len(sizes), size=int(random.integers(1, 5)), replace=False).tolist())
        functions.append(Function.from_array(scope, random.integers(-largest, largest, [sizes[v] for v in scope])))
    return Problem(tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), tuple(functions))


@pytest.mark.parametrize(("largest", "cells"), [(2, 1), (10, 30), (2**40, 1 << 18)])
def test_values_alone(largest, cells, monkeypatch):
    """Without eliminating variables that have several left: the optimum stays, and values do go."""
    monkeypatch.setattr(row_reduction, "MOST_JOINED", 0)
    monkeypatch.setattr(row_reduction, "BATCH_CELLS", cells)
    monkeypatch.setattr(row_reduction._Reducing, "_split", lambda _: False)
    gone = 0
    for seed in range(examples(200)):
        problem = small(np.random.default_rng(seed), (3, 4, 2, 5, 3), 5, largest)
        made = reduced(ScopeTables.of(problem))
        assert all(step.scope == () for step in made.steps if isinstance(step, Elimination))
        assert costs_of(made.tables).min() == least_of_rest(problem, ()).min()
        gone += sum(made.sizes) - sum(made.tables.problem.sizes)
    assert gone > 20


def test_a_forbidden_value_goes_and_what_needs_all_stays():
    """Values that exclude each other's support: none can be put in the place of another."""
    equal = Constraint((0, 1), [[0, 0], [1, 1], [2, 2]], allowed=True)
    never = Constraint((0,), [[1]])
    variables = (Variable("a", 3), Variable("b", 3))
    tables = ScopeTables.of(Problem(variables, (), (equal,)))
    (part,) = tables.parts
    for axis in range(2):
        assert values_needed([3], [[(part.values, part.permitted, axis)]], [NOTHING])[0].tolist() == [0, 1, 2]
    assert kept_of(reduced(ScopeTables.of(Problem(variables, (), (equal, never)))))[0].tolist() in ([0], [2])
    empty = Constraint((0,), [[0], [1], [2]])
    assert reduced(ScopeTables.of(Problem(variables, (), (equal, empty)))).tables.is_impossible


def test_a_gain_within_rounding_counts_only_where_no_function_loses():
    loses, gains = np.array([[0.3], [0.4]]), np.array([[0.7], [0.6]])
    everything = np.ones((2, 1), dtype=bool)

    def needed(rounding, *functions):
        (kept,) = values_needed([2], [[(values, everything, 0) for values in functions]], [NOTHING], rounding)
        return kept.tolist()

    assert needed(1e-9, loses, gains) == [0, 1]
    assert needed(1e-9, loses, gains - [[0], [0.1]]) == [1]
    assert needed(1.0, loses) == [0]


def test_comparing_values_ends_with_its_share(monkeypatch):
    problem = small(np.random.default_rng(1), (3, 4, 2, 5, 3), 5, 3)
    assert any(isinstance(step, Removal) for step in reduced(ScopeTables.of(problem)).steps)
    for name, value in (("MOST_COMPARED", 0), ("MOST_VALUES", 1)):
        with monkeypatch.context() as patched:
            patched.setattr(row_reduction, name, value)
            assert not any(isinstance(step, Removal) for step in reduced(ScopeTables.of(problem)).steps)


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_pieces_add_up(dtype):
    random = np.random.default_rng(0)
    split = 0
    for _ in range(200):
        sizes = random.integers(1, 4, int(random.integers(1, 5)))
        scope = tuple(range(3, 3 + len(sizes)))
        values = np.zeros(sizes, dtype=dtype)
        for axes in random.integers(0, 2, (2, len(sizes))):
            values += random.integers(-9, 9, np.where(axes, sizes, 1)).astype(dtype)
        permitted = np.ones(sizes, dtype=bool) if random.integers(2) else random.random(sizes) < 0.9
        values[~permitted] = 0
        pieces = pieces_of(scope, (values, permitted))
        total, allowed = np.zeros(sizes, dtype=dtype), np.ones(sizes, dtype=bool)
        for own, (costs, mask) in pieces:
            shape = [n if v in own else 1 for v, n in zip(scope, sizes, strict=True)]
            assert costs.shape == mask.shape == tuple(sizes[v - 3] for v in own)
            total, allowed = total + costs.reshape(shape), allowed & mask.reshape(shape)
        assert (allowed == permitted).all()
        assert (total[permitted] == values[permitted]).all()
        split += len(pieces) > 1
    assert (split > 0) == (dtype is np.int64)


@pytest.mark.parametrize(
    ("scopes", "pieces"),
    [
        ([(0, 1), (1, 2), (2, 3)], [(0, 1), (1, 2), (2, 3)]),
        ([(0, 1, 2), (2, 3)], [(0, 1, 2), (2, 3)]),
        ([(0, 1), (2, 3)], [(0, 1), (2, 3)]),
        ([(0, 1, 2), (1, 2, 3)], [(0, 1, 2, 3)]),
        ([(0, 1), (1, 2), (2, 3), (0, 3)], [(0, 1, 2, 3)]),
        ([(0, 1), (1, 2), (0, 2), (3,)], [(0, 1, 2), (3,)]),
    ],
)
def test_summands_form_a_forest(scopes, pieces):
    """Two summands with two variables in common, or a cycle, have a weaker relaxation than their sum."""
    random = np.random.default_rng(0)
    values = np.zeros((3, 3, 3, 3), dtype=np.int64)
    for scope in scopes:
        values += random.integers(0, 1000, [3 if v in scope else 1 for v in range(4)])
    found = pieces_of((0, 1, 2, 3), (values, np.ones_like(values, dtype=bool)))
    assert sorted(scope for scope, _ in found if scope) == pieces


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_functions_that_can_be_split_are_marked(dtype):
    """Those that are not marked are not looked at."""
    random = np.random.default_rng(1)
    functions = []
    for _ in range(300):
        sizes = random.integers(1, 4, int(random.integers(1, 5)))
        values = np.zeros(sizes, dtype=dtype)
        for axes in random.integers(0, 2, (int(random.integers(1, 4)), len(sizes))):
            values += random.integers(-9, 9, np.where(axes, sizes, 1)).astype(dtype)
        permitted = np.ones(sizes, dtype=bool) if random.integers(2) else random.random(sizes) < 0.9
        functions.append((np.where(permitted, values, 0), permitted))
    is_marked = np.zeros(len(functions), dtype=bool)
    shapes = [values.shape for values, _ in functions]
    axes = np.cumsum([0, *map(len, shapes)])
    sizes = np.array([size for shape in shapes for size in shape])
    mark_divisible(*row_reduction._end_to_end(functions), sizes, axes, is_marked)
    scopes = [tuple(range(len(shape))) for shape in shapes]
    can_split = [pieces_of(scope, function)[0][0] != scope for scope, function in zip(scopes, functions, strict=True)]
    assert 0 < sum(can_split) < len(functions)
    assert not (np.array(can_split) & ~is_marked).any()


def test_values_go_only_where_no_linear_constraint_takes_more(monkeypatch):
    """Against enumeration; constraints that stay linear are no tables."""
    monkeypatch.setattr(row_tables, "LARGEST_LINEAR", 4)
    monkeypatch.setattr(row_reduction, "MOST_JOINED", 0)
    gone = kept_linear = 0
    for seed in range(examples(150)):
        random = np.random.default_rng(seed)
        sizes = (3, 2, 4, 3)
        linear = tuple(
            LinearConstraint(
                scope := tuple(random.choice(4, 3, replace=False).tolist()),
                tuple(random.integers(0, 5, sizes[v]) for v in scope),
                int(random.integers(2, 9)),
            )
            for _ in range(2)
        )
        functions = tuple(Function.from_array((v,), random.integers(0, 9, size)) for v, size in enumerate(sizes))
        problem = Problem(tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), functions, (), linear)
        made = reduced(ScopeTables.of(problem, keeps_linear=True))
        kept_linear += len(made.tables.linear)
        gone += sum(sizes) - sum(made.tables.problem.sizes)
        least = least_of_rest(problem, ()).min()
        best = min(
            (value for a in np.ndindex(*made.tables.problem.sizes) if (value := made.tables.evaluate(a)) is not None),
            default=np.inf,
        )
        assert made.tables.is_impossible or best == least
        assert not made.tables.is_impossible or least == np.inf
    assert gone
    assert kept_linear


def test_wide_domains_in_many_linear_constraints_end_in_time():
    """Their pairs of values count: in one call they took 10 s and 0.8 GiB."""
    variables = tuple(Variable(f"x{v}", 200) for v in range(30))
    columns = [tuple(np.arange(200) * k for _ in variables) for k in range(1, 21)]
    linear = tuple(LinearConstraint(tuple(range(30)), own, 1000 * k) for k, own in enumerate(columns, 1))
    functions = tuple(Function.from_array((v,), -np.arange(200)) for v in range(30))
    tables = ScopeTables.of(Problem(variables, functions, (), linear), keeps_linear=True)
    tracemalloc.start()
    made = reduced(tables)
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()
    assert made.tables.problem.sizes == tables.problem.sizes


def test_huge_costs_are_not_split():
    sum_of_two = np.array([[0, 1], [2, 3]]) * 2**40
    everything = np.ones((2, 2), dtype=bool)
    assert len(pieces_of((0, 1), (sum_of_two, everything))) == 1
    assert [scope for scope, _ in pieces_of((0, 1), (sum_of_two >> 40, everything))] == [(0,), (1,)]


def test_a_result_says_what_was_left():
    made = reduced(ScopeTables.of(small(np.random.default_rng(1), (3, 4, 2, 5, 3), 5, 3)))
    left = made.tables.problem.sizes
    assert made.summary == f"{len(left)} of 5 variables and {sum(left)} of 17 values"


def test_variables_with_one_value_leave_their_functions():
    """However many there are around a variable: joining their functions would take more axes than NumPy has."""
    variables = (Variable("hub", 3), *(Variable(f"x{i}", 1) for i in range(70)))
    functions = tuple(Function.from_array((0, i), np.array([[i % 5], [7 - i % 7], [3]])) for i in range(1, 71))
    problem = Problem(variables, functions)
    tables = ScopeTables.of(problem)
    assert tables is not None
    reduction = reduced(tables)
    totals = [problem.evaluate((value, *[0] * 70)) for value in range(3)]
    assert len(reduction.variables) == 1
    assert reduction.tables.least == min(totals)
    assert problem.evaluate(reduction.complete([0])) == min(totals)


def test_what_is_forbidden_goes_before_variables_are_eliminated():
    """A chain of equal values whose end is fixed: each step follows from the one before."""
    equal = np.array([[value, value] for value in range(3)])
    variables = tuple(Variable(f"x{i}", 3) for i in range(30))
    constraints = [Constraint((i, i + 1), equal, allowed=True) for i in range(29)]
    fixed = Constraint((29,), np.array([[2]]), allowed=True)
    cube = np.arange(27).reshape(3, 3, 3)
    functions = [Function.from_array(scope, cube) for scope in ((0, 9, 19), (3, 14, 28))]
    problem = Problem(variables, tuple(functions), (*constraints, fixed))
    tables = ScopeTables.of(problem)
    assert tables is not None
    reduction = reduced(tables)
    assert all(isinstance(step, Removal) for step in reduction.steps[:30])
    assert reduction.complete([0] * len(reduction.variables)) == (2,) * 30
    assert reduction.tables.least == problem.evaluate((2,) * 30)
