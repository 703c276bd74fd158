"""Bounds of problems with numbers at the ends of what integers, floating point and the solver can take."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import oocbe
from oocbe.bounds import forbidden as forbidden_module
from oocbe.bounds.forbidden import CostlyTuples, Row, forbidden_sets
from oocbe.bounds.incumbent import LocalSearch
from oocbe.bounds.relaxation import row_terms
from oocbe.elimination.row_pruning.row_bounds import LARGEST, FixedPoint
from oocbe.errors import ValueRangeError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.model.settings.option_values import Gap
from oocbe.model.settings.options import SolveOptions
from oocbe.search.subsolver import SharedBounds
from tests.helpers.bound_sources import bound_sources

OPTIONS = SolveOptions(order_seconds=0.0, incumbent_seconds=0.0, bound_seconds=0.3, backend="cpu")


def triangle(scale: int) -> Problem:
    """Three values that exclude one another, and a knapsack whose numbers are multiplied."""
    variables = tuple(Variable(f"x{i}", 2) for i in range(4))
    functions = tuple(Function.from_array((i,), [7 + i, 0]) for i in range(4))
    constraints = tuple(Constraint((i, j), [[1, 1]]) for i in range(3) for j in range(i))
    coefficients = tuple(np.array([0, (3 + i) * scale]) for i in range(4))
    knapsack = LinearConstraint((0, 1, 2, 3), coefficients, 9 * scale)
    return Problem(variables, functions, constraints, (knapsack,), name="triangle")


def best_value(problem: Problem) -> float:
    values = [problem.evaluate(a) for a in itertools.product(*(range(size) for size in problem.sizes))]
    return min(value for value in values if value is not None)


@pytest.mark.parametrize("scale", [1, 10**13, 10**15, 2**52, 2**59])
def test_linear_constraints_with_large_numbers(scale):
    """Numbers that the solver refuses leave the other rows their multipliers."""
    problem = triangle(scale)
    best = best_value(problem)
    for source in bound_sources(problem, 0.3):
        assert source.root <= best
        if source.name == "lp" and scale in (1, 10**15, 2**52, 2**59):
            assert source.root >= 7 + 8  # what the clique says by itself
    assert oocbe.solve(problem, OPTIONS, bounds="lp").value == best


def test_the_program_leaves_rows_out_that_the_solver_refuses():
    linear_program = pytest.importorskip("oocbe.bounds.linear_program")
    owner, default = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 2, 4])
    costs = np.array([5.0, 0.0, 6.0, 0.0, 7.0, 0.0])
    program = linear_program.LinearProgram(costs, owner, default, np.zeros(6, dtype=np.uint8))
    refused = Row(np.array([1, 3]), np.array([10**15, 10**16]), 10**16, "linear", 0)
    clique = Row.of([1, 3], 1, "clique")
    other = Row.of([3, 5], 1, "clique")
    assert program.add([refused, clique]) == 1
    assert program.add([refused]) == 0
    assert program.add([other]) == 1
    assert program.solve(10.0)
    assert program.rows == [clique, other]
    assert program.bound == pytest.approx(6.0)
    assert program.multipliers() == pytest.approx([5.0, 7.0])
    assert program.drop_idle(1) == 0


@pytest.mark.parametrize("multiplier", [1 << 40, 1 << 62])
def test_products_of_rows_and_multipliers_beyond_64_bits_are_left_out(multiplier):
    problem = triangle(1)
    forbidden = forbidden_sets(problem)
    rows = [
        Row(np.array([1, 3]), np.array([2**40, 2**41]), 2**41, "linear", 0),
        Row.of([1, 3], 2**50, "clique"),
        Row.of([1, 3], 1, "clique"),
    ]
    terms = row_terms(rows, np.array([multiplier, multiplier, 3]), forbidden, CostlyTuples())
    assert terms.constant.tolist() == [-3]
    assert terms.entries.tolist() == [0, 3, 0, 3]
    assert terms.linear == ()
    kept = row_terms(rows, np.array([1 << 20, 1, 0]), forbidden, CostlyTuples())
    assert kept.constant.tolist() == [-LARGEST, -(2**50)]
    assert kept.entries.tolist() == [0, 2**60, 0, 2**61, 0, 1, 0, 1]


@pytest.mark.parametrize("scale", [1e-200, 1e-297, 1e-307, 1e-322])
@pytest.mark.parametrize("bounds", ["constant", "local-polytope"])
def test_tiny_costs(scale, bounds):
    values = np.array([[3.0, 2.0], [1.0, 4.0]]) * scale
    problem = Problem(
        tuple(Variable(f"x{i}", 2) for i in range(3)),
        tuple(Function.from_array((i, (i + 1) % 3), values) for i in range(3)),
        name="tiny",
    )
    assert FixedPoint.of(problem).scale < np.inf
    assert oocbe.solve(problem, OPTIONS, bounds=bounds).value == pytest.approx(best_value(problem), rel=1e-9, abs=0)


def test_costs_that_stand_for_infeasible_in_64_bits_are_refused():
    """The largest integer is what a forbidden tuple costs in a dual ascent: a value that cost as much was removed."""
    functions = (Function.from_array((0, 1), np.array([[0], [2**63 - 1]])),)
    with pytest.raises(ValueRangeError, match="scale the costs down"):
        bound_sources(Problem((Variable("x", 2), Variable("y", 1)), functions), 0.3)


def colouring(scale: float) -> Problem:
    """Costs of single values, and neighbours that may not have the same one: cuts raise the bound for some rounds."""
    random = np.random.default_rng(1)
    functions = tuple(Function.from_array((v,), random.random(3) * scale) for v in range(10))
    same = [[a, a] for a in range(3)]
    pairs = [pair for pair in itertools.combinations(range(10), 2) if random.random() < 0.35]
    constraints = tuple(Constraint(pair, same) for pair in pairs)
    return Problem(tuple(Variable(f"x{v}", 3) for v in range(10)), functions, constraints, name="colouring")


@pytest.mark.parametrize("scale", [1e-3, 1e-7, 1e-12, 1e-100])
def test_the_linear_program_is_the_same_for_costs_of_any_size(scale):
    """The solver's tolerances are absolute: costs below them once let its bound rise and fall until time was up."""
    linear_program = pytest.importorskip("oocbe.bounds.linear_program")
    sources = {}
    for factor in (1.0, scale):
        found = {source.name: source for source in bound_sources(colouring(factor), 1e9)}
        assert found["lp"].root > found["constant"].root
        sources[factor] = found["lp"].root / factor
    assert sources[scale] == pytest.approx(sources[1.0], rel=1e-4)
    costs = np.array([1.0, 0.0, 3.0, 0.0]) * scale
    program = linear_program.LinearProgram(costs, np.array([0, 0, 1, 1]), np.array([0, 2]), np.zeros(4, dtype=np.uint8))
    assert program.add([Row.of([1, 3], 1, "clique")]) == 1
    assert program.solve(10.0)
    assert program.bound == pytest.approx(scale, rel=1e-6, abs=0)
    assert program.drop_idle(1) == 0


@pytest.mark.parametrize("scale", [1e300, 1e307])
@pytest.mark.parametrize("bounds", ["constant", "local-polytope"])
def test_costs_near_the_largest_float(scale, bounds):
    """What forbidden tuples and removed values cost, and sums of terms, are some times as large as all costs."""
    values = np.array([[3.0, 2.5], [-1.0, np.inf], [2.0, 1.5]]) * scale
    functions = tuple(Function.from_array((i, (i + 1) % 3), values[:, [0, 1, 0]]) for i in range(3))
    gone = tuple(Constraint((i,), [[1]]) for i in range(2))
    problem = Problem(tuple(Variable(f"x{i}", 3) for i in range(3)), functions, gone, name="large")
    best = best_value(problem)
    if scale < 1e301:
        (source,) = (source for source in bound_sources(problem, 0.3) if source.name == bounds)
        assert -2 * best < source.root <= best
        assert np.isfinite(source.for_message(1 << 2, (0, 1)).tables[0]).all()
    result = oocbe.solve(problem, OPTIONS, bounds=bounds)
    assert (result.status, result.value) == ("optimal", best)


@pytest.mark.parametrize("scale", [1.0, 1e-7, 1e-200, 0.0])
def test_the_ceiling_of_values_is_near_them(scale):
    functions = (Function.from_array((0,), [3 * scale, scale]), Function.from_array((0,), [2 * scale, scale]))
    ceiling = SharedBounds(Problem((Variable("x", 2),), functions), Gap(), lambda *told: None).upper_bound
    assert 5 * scale < ceiling <= (5 * scale * (1 + 1e-6) if scale else 1.0)


@pytest.mark.parametrize("semiring", [MIN_SUM, MAX_SUM])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("bounds", ["constant", "local-polytope", "lp", "auto"])
def test_costs_whose_sums_leave_floating_point(semiring, sign, bounds):
    """There is no bound on such sums, and the solve goes on without: the same optimum as with none."""
    first = sign * np.array([[1e308, 2.5], [1e308, 1e307]])
    functions = (Function.from_array((0, 1), first), Function.from_array((0,), [sign * 1.5e308, 2.0]))
    problem = Problem((Variable("x", 2), Variable("y", 2)), functions, semiring=semiring, name="huge")
    result = oocbe.solve(problem, OPTIONS, bounds=bounds, incumbent_seconds=0.05)
    expected = 1e307 if semiring is MIN_SUM else np.inf
    assert result.value == (expected if sign > 0 else -1e307 if semiring is MAX_SUM else -np.inf)
    assert bounds == "auto" or "without bounds" in result.notes[-1]


def test_an_interpreted_search_adds_costs_beyond_floats_without_a_warning():
    """As compiled; warnings are errors here. It is what searches on a machine's first run."""
    functions = (Function.from_array((0, 1), [[1e308, 2.5], [1e308, 1e307]]), Function.from_array((0,), [1.5e308, 2.0]))
    problem = Problem((Variable("x", 2), Variable("y", 2)), functions)
    assert LocalSearch(problem).run(1.0, 20, is_interpreted=True).value <= 1e308


def test_the_ceiling_of_values_is_finite():
    functions = (Function.from_array((0,), [1e308, 0.5]), Function.from_array((0,), [1.5e308, 0.5]))
    known = SharedBounds(Problem((Variable("x", 2),), functions), Gap(), lambda *told: None)
    assert known.upper_bound == np.finfo(np.float64).max
    known.offer(-np.inf, (0,), "nothing that counts")
    assert known.value is None
    known.offer(1.0, (1,), "the optimum")
    assert (known.value, known.upper_bound) == (1.0, 1.0)


def test_few_of_the_sets_that_a_long_linear_constraint_forbids_are_listed():
    """As rows of a linear program, 290,000 sets of twelve and more literals took seven seconds beyond a limit."""
    count = 16
    use = tuple(np.array([0, 5 + v]) for v in range(count))
    long = LinearConstraint(tuple(range(count)), use, 80)
    short = LinearConstraint((0, 1, 2), use[:3], 17)
    functions = tuple(Function.from_array((v,), [v, 0]) for v in range(count))
    variables = tuple(Variable(f"x{v}", 2) for v in range(count))
    forbidden = forbidden_sets(Problem(variables, functions, linear_constraints=(long, short)))
    assert [sets.tolist() for sets in forbidden.larger] == [[[1, 3, 5]]]


def test_sets_of_which_there_are_too_many_are_not_compared(monkeypatch):
    """Demands of rosters forbid hundreds of thousands of sets, more than a linear program takes."""
    values = tuple(Variable(f"x{v}", 2) for v in range(8))
    few = LinearConstraint(tuple(range(8)), (np.array([0, 1]),) * 8, 3)  # forbids 70 sets of four values
    problem, compared = Problem(values, linear_constraints=(few,)), []
    monkeypatch.setattr(forbidden_module, "_irredundant", lambda sets, *_: compared.append(len(sets)) or sets)
    monkeypatch.setattr(forbidden_module, "MOST_SETS", 10)
    assert not forbidden_sets(problem).larger and not compared
    monkeypatch.setattr(forbidden_module, "MOST_SETS", 70)
    assert len(forbidden_sets(problem).larger[0]) == 70
