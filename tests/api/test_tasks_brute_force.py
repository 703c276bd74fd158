"""Every task against brute force on small problems of every kind."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.api.tasks.count import count, count_optimal
from oocbe.api.tasks.k_best import k_best
from oocbe.api.tasks.marginals import log_partition, marginals, min_marginals
from oocbe.elimination.buckets import buckets
from oocbe.elimination.buckets.buckets import BucketRows
from oocbe.errors import ValueRangeError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT, Combination
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from tests.helpers.effort import examples
from tests.helpers.small_problems import all_values, make_problem, structures, without_bound

OPTIONS = SolveOptions(order_seconds=0.0, backend="cpu")


def feasible_values(problem):
    """Value and assignment of each feasible assignment."""
    total, feasible = all_values(problem)
    cells = np.argwhere(feasible)
    return total[feasible], [tuple(c) for c in cells.tolist()]


@settings(max_examples=examples(140))
@given(structures())
def test_count(structure):
    problem = without_bound(make_problem(structure))
    result = count(problem, OPTIONS)
    assert result.value == len(feasible_values(problem)[0])
    assert isinstance(result.value, int)


@settings(max_examples=examples(140))
@given(structures(semirings=(MIN_SUM, MAX_SUM, MAX_PRODUCT)))
def test_count_optimal(structure):
    problem = make_problem(structure)
    values, _ = feasible_values(problem)
    result = count_optimal(problem, OPTIONS)
    if len(values) == 0:
        assert (result.value, result.status) == (0, "infeasible")
        return
    best = problem.semiring.reduce(values).item()
    assert result.value == int(np.isclose(values, best, rtol=1e-12, atol=1e-12).sum())
    assert result.optimum == pytest.approx(best, rel=1e-9, abs=1e-9) or problem.semiring is MAX_PRODUCT


@settings(max_examples=examples(140))
@given(structures(semirings=(MIN_SUM, MAX_SUM, MAX_PRODUCT)))
def test_k_best(structure):
    problem = make_problem(structure)
    values, _ = feasible_values(problem)
    k = structure["seed"] % 12 + 1
    result = k_best(problem, OPTIONS, k)
    expected = np.sort(values)[:: -1 if problem.sense == "max" else 1][:k]
    if problem.upper_bound is None:
        assert len(result.assignments) == min(k, len(values))
    assert len({a for _, a in result.assignments}) == len(result.assignments)
    for (value, assignment), best in zip(result.assignments, expected.tolist(), strict=True):
        assert value == problem.evaluate(assignment)
        assert value == best if problem.is_integral else value == pytest.approx(best)


def weights_of(problem, temperature):
    values, cells = feasible_values(problem)
    values = values.astype(float)
    if problem.semiring.counts:
        logs = np.zeros(len(values))
    elif problem.semiring.combination is Combination.MULTIPLY:
        logs = np.log(values) / temperature
    else:
        logs = values / temperature * (-1 if problem.semiring is MIN_SUM else 1)
    return np.exp(logs), cells


@settings(max_examples=examples(140))
@given(structures())
def test_log_partition_and_marginals(structure):
    problem = without_bound(make_problem(structure))
    if problem.semiring in (MAX_PRODUCT, SUM_PRODUCT) and problem.constant < 0:
        return
    temperature = [0.5, 1.0, 3.0, math.inf][structure["seed"] % 4]
    weights, cells = weights_of(problem, temperature)
    result = marginals(problem, OPTIONS, temperature)
    assert log_partition(problem, OPTIONS, temperature).value == pytest.approx(result.value, rel=1e-12, abs=1e-12)
    if len(weights) == 0:
        assert (result.value, result.status) == (-math.inf, "infeasible")
        return
    assert result.value == pytest.approx(math.log(weights.sum()), rel=1e-9, abs=1e-9)
    for v, found in enumerate(result.marginals):
        column = np.array([c[v] for c in cells])
        expected = np.bincount(column, weights, problem.sizes[v]) / weights.sum()
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("cost", "temperature"), [(1e307, 0.01), (1.0, 5e-324), (0.0, 1e-310), (1e308, 1.0)])
@pytest.mark.parametrize("count", [2, tuning().many_parts])
def test_weights_beyond_floats_are_refused(count, cost, temperature):
    functions = tuple(Function.from_array((v,), [cost, 0.0]) for v in range(count))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), functions)
    with pytest.raises(ValueRangeError, match="raise the temperature"):
        marginals(problem, OPTIONS, temperature)


@pytest.mark.parametrize("narrow", [np.float16, np.float32, np.int8])
def test_a_temperature_of_a_narrow_type_rounds_nothing(narrow):
    problem = Problem((Variable("a", 2),), (Function.from_array((0,), [1_000_000, 1_000_003]),))
    expected = oocbe.log_partition(problem, 3.0).value
    assert oocbe.log_partition(problem, narrow(3)).value == oocbe.marginals(problem, narrow(3)).value == expected
    assert oocbe.JunctionTree(problem, temperature=narrow(3)).log_evidence == pytest.approx(expected, rel=1e-14)


@settings(max_examples=examples(200))
@given(structures(semirings=(MIN_SUM, MAX_SUM)))
def test_min_marginals(structure):
    problem = without_bound(make_problem(structure))
    values, cells = feasible_values(problem)
    result = min_marginals(problem, OPTIONS)
    if len(values) == 0:
        assert result.status == "infeasible"
        return
    for v, found in enumerate(result.marginals):
        for x in range(problem.sizes[v]):
            own = values[[c[v] == x for c in cells]]
            if len(own) == 0:
                assert math.isnan(found[x])
            else:
                assert found[x] == pytest.approx(problem.semiring.reduce(own).item())


HUGE = st.sampled_from([2**60, 2**60 - 1, -(2**60), 2**53 + 1, 13, 3, 1, 0, -1])


@settings(max_examples=examples(120))
@given(st.lists(HUGE, min_size=12, max_size=12), st.booleans(), st.booleans())
def test_min_marginals_of_integers_keep_every_digit(costs, maximises, forbids):
    """Sums beyond 2^53 beside small ones, compared with sums of Python's integers."""
    semiring = MAX_SUM if maximises else MIN_SUM
    first, second = np.array(costs[:6]).reshape(3, 2), np.array(costs[6:]).reshape(2, 3)
    functions = (Function.from_array((0, 1), first), Function.from_array((1, 2), second))
    forbidden = (Constraint((0, 1), np.array([[1, 0], [1, 1]])),) if forbids else ()
    variables = tuple(Variable(name, size) for name, size in zip("abc", (3, 2, 3), strict=True))
    problem = Problem(variables, functions, forbidden, semiring=semiring)
    result = min_marginals(problem, OPTIONS)
    content = result.to_json()["marginals"]
    for v, found in enumerate(result.marginals):
        for x in range(problem.sizes[v]):
            own = [
                costs[2 * a + b] + costs[6 + 3 * b + c]
                for a, b, c in itertools.product(range(3), range(2), range(3))
                if (a, b, c)[v] == x and not (forbids and a == 1)
            ]
            best = (max if maximises else min)(own, default=None)
            assert content["abc"[v]][str(x)] == best
            assert (type(found[x]), found[x]) == (int, best) if own else math.isnan(found[x])


@pytest.mark.parametrize("offset", [10**17, -(10**17)])
@pytest.mark.parametrize("is_narrow", [True, False])
def test_weights_of_large_integers_depend_on_their_differences(offset, is_narrow):
    settings = OPTIONS if is_narrow else SolveOptions(order="linear", tables="incomplete", piece_rows=1, backend="cpu")
    costs = np.array([[0, 3], [1, 2]])
    for semiring in (MIN_SUM, MAX_SUM):
        first, other = (
            Problem((Variable("a", 2), Variable("b", 2)), (Function.from_array((0, 1), costs + by),), semiring=semiring)
            for by in (0, offset)
        )
        for one, two in zip(marginals(first, settings).marginals, marginals(other, settings).marginals, strict=True):
            np.testing.assert_allclose(two, one)
        np.testing.assert_allclose(oocbe.JunctionTree(other).marginal("a"), marginals(first, settings).marginals[0])
    shifted = Problem(
        first.variables, (*other.functions, Function((), np.zeros((1, 0), dtype=np.int64), np.array([-offset]))), ()
    )
    wanted = log_partition(Problem(first.variables, first.functions, ()), settings).value
    assert log_partition(shifted, settings).value == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("semiring", [MIN_SUM, MAX_SUM])
@pytest.mark.parametrize("is_narrow", [True, False])
def test_weights_of_large_integers_are_exact_near_the_best_one(semiring, is_narrow, tune):
    """The best one is not the one nearest to 0, other numbers are floats, or an unused default is nearer."""
    settings = OPTIONS if is_narrow else SolveOptions(order="linear", tables="incomplete", piece_rows=1, backend="cpu")
    tune(many_parts=0 if is_narrow else 1 << 12)
    by, sign = 10**17, 1 if semiring is MIN_SUM else -1
    variables, rows = (Variable("a", 3),), np.arange(3)[:, None]
    cases = [([0, -by, 1 - by], None, 0), ([by, by + 1, by + 5], 0, 0), ([by, by + 1, by + 5], None, 0.5)]
    cases.append(([-(2**63) + 1, -(2**63) + 2, 2**63 - 1], None, 0))
    for costs, default, constant in cases:
        f = Function((0,), rows, sign * np.array(costs), default)
        problem = Problem(variables, (f,), (), constant=constant, semiring=semiring)
        wanted = np.exp([float(min(costs) - cost) for cost in costs])
        wanted /= wanted.sum()
        np.testing.assert_allclose(marginals(problem, settings).marginals[0], wanted)
        np.testing.assert_allclose(oocbe.JunctionTree(problem).marginal("a"), wanted)
        np.testing.assert_allclose(oocbe.anytime("MAR", problem).marginals[0], wanted)


@pytest.mark.parametrize("options", [{}, {"order": "min-degree"}])
@pytest.mark.parametrize("large", [1 << 40, 1 << 47, 1 << 60])
def test_marginals_beside_a_forbidden_best_cell_are_right_or_refused(large, options):
    """Values were rounded relative to the best cell of their function, which a constraint forbids here.

    Shares were wrong by a tenth where values below 2^53 were rounded, as were all of batches and of anytime.
    """
    cells = np.array([[0, large, large + 1], [large + 2, large, large + 3], [large, large + 1, large + 2]])
    near = Function.from_array((1, 2), np.array([[0, 1, 2], [3, 0, 1], [1, 2, 0]]))
    forbidden = Constraint((0, 1), np.array([[0, 0]]))
    problem = Problem(
        tuple(Variable(f"x{i}", 3) for i in range(3)), (Function.from_array((0, 1), cells), near), (forbidden,)
    )
    tree = oocbe.JunctionTree(problem)
    if large > 1 << 43:
        answers = [
            lambda: oocbe.marginals(problem, **options),
            lambda: tree.marginal("x0"),
            lambda: tree.marginal("x0", "x1"),
            lambda: tree.marginal_map(["x0"]),
            lambda: tree.marginal_map(["x0", "x1"]),
            lambda: tree.batch([{"x1": 0}]),
            lambda: tree.query(["x0", "x2"]),
            lambda: tree.expected_counts([{}]),
            lambda: tree.sample(2),
            lambda: oocbe.anytime("MAR", problem),
        ]
        for answer in [*answers, tree.mpe] if large > 1 << 53 else answers:
            with pytest.raises(ValueRangeError, match="floats do not tell assignments apart"):
                answer()
        return
    values = {row: problem.evaluate(row) for row in itertools.product(range(3), repeat=3)}
    weights = {row: np.exp(large - value) for row, value in values.items() if value is not None}
    total = sum(weights.values())
    shares = [sum(weight for row, weight in weights.items() if row[0] == i) / total for i in range(3)]
    assert oocbe.marginals(problem, **options).marginals[0] == pytest.approx(shares, rel=1e-9)
    assert tree.marginal("x0") == pytest.approx(shares, rel=1e-9)


@pytest.mark.parametrize("options", [{}, {"order": "min-degree"}])
def test_marginals_are_not_refused_where_propagation_removes_the_best_values(options):
    """The only values that are left were refused, as they are far from those that constraints remove."""
    table = Function.from_array((0, 1), np.array([[3, 4, 5], [1 << 60, (1 << 60) + 1, 5]]))
    constraints = (Constraint((0,), np.array([[0]])), Constraint((1,), np.array([[2]])))
    problem = Problem((Variable("x0", 2), Variable("x1", 3)), (table,), constraints)
    share = 1 / (1 + math.exp(-1))
    assert oocbe.marginals(problem, **options).marginals[1] == pytest.approx([share, 1 - share, 0])


def test_rows_are_evaluated_for_many_values_at_once_in_little_memory(monkeypatch):
    """3,000 values: each took some calls of NumPy, and a piece of rows times values any memory."""
    size, random = 3000, np.random.default_rng(2)
    costs = [Function((v,), np.arange(size)[:, None], random.integers(0, 99, size)) for v in range(3)]
    pairs = [np.column_stack([random.permutation(size), random.permutation(size)]) for _ in range(2)]
    functions = [*costs, *(Function((v, v + 1), own, random.integers(0, 99, size)) for v, own in enumerate(pairs))]
    problem = Problem(tuple(Variable(name, size) for name in "abc"), tuple(functions))
    cells, lookups = [], []
    evaluate, entries = BucketRows.evaluate, buckets.entries_over
    monkeypatch.setattr(BucketRows, "evaluate", lambda *given: cells.append(given[2] * size) or evaluate(*given))
    monkeypatch.setattr(buckets, "entries_over", lambda *given: lookups.append(given) or entries(*given))
    firsts, seconds = (dict(own.tolist()) for own in pairs)
    rows = [(a, b, seconds[b]) for a, b in firsts.items()]
    values = {row: problem.evaluate(row) for row in rows}
    found = k_best(problem, OPTIONS, 3)
    assert [value for value, _ in found.assignments] == sorted(values.values())[:3]
    assert 0 < len(lookups) < 30
    marginals = min_marginals(problem, OPTIONS).marginals
    assert all(marginals[v][row[v]] == value for row, value in values.items() for v in range(3))
    assert max(cells) <= buckets.CHUNK_CELLS


def test_the_best_of_a_long_path_are_those_of_its_prefixes():
    """The columns of 120 variables are in several blocks; Python lists have the k best prefixes by last value."""
    k, costs = 40, np.random.default_rng(8).integers(0, 50, (119, 3, 3))
    functions = tuple(Function.from_array((v, v + 1), own) for v, own in enumerate(costs))
    problem = Problem(tuple(Variable(f"x{v}", 3) for v in range(120)), functions)
    best = [[0] for _ in range(3)]
    for own in costs:
        best = [sorted(cost + int(own[a, b]) for a in range(3) for cost in best[a])[:k] for b in range(3)]
    found = k_best(problem, OPTIONS, k).assignments
    assert [value for value, _ in found] == sorted(itertools.chain(*best))[:k]
    assert [problem.evaluate(assignment) for _, assignment in found] == [value for value, _ in found]
    assert len({assignment for _, assignment in found}) == k
