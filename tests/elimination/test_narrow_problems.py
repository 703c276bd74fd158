"""Problems that are eliminated in one loop, against brute force; and large ones."""

import itertools
import math
import warnings
from functools import reduce

import numpy as np
import pytest

import oocbe
from oocbe.elimination.narrow import narrow_problem as narrow_module
from oocbe.elimination.narrow.narrow_problem import COUNTS, narrow_problem
from oocbe.elimination.orders.separators import ScopeGraph
from oocbe.errors import FloatRangeError, TimeLimitError, UnsupportedError, ValueRangeError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM, SEMIRINGS, SUM_PRODUCT
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import Tuning, tuned
from oocbe.runtime.deadline import Deadline
from tests.helpers.effort import examples

pytestmark = pytest.mark.usefixtures("as_outside_of_the_tests")


@pytest.fixture(params=[1, Tuning().many_parts])
def all_narrow(request, tune):
    """Every problem is one for one loop, as a large or as a small one."""
    tune(many_parts=request.param, narrow_bucket_seconds=10.0)


def random_problem(seed, semiring=MIN_SUM):
    random = np.random.default_rng(seed)
    count, is_integral = int(random.integers(2, 8)), seed % 2 == 0 and semiring is MIN_SUM
    sizes = random.integers(1, 4, count).tolist()
    functions, constraints = [], []
    for _ in range(int(random.integers(0, 9))):
        scope = tuple(random.permutation(count)[: random.integers(0, min(count, 3) + 1)].tolist())
        shape = [sizes[v] for v in scope]
        values = random.integers(-5, 9, shape) if is_integral else random.random(shape) * 4
        tuples = np.argwhere(np.ones(shape, dtype=bool)) if scope else np.zeros((1, 0), dtype=int)
        keep = random.random(len(tuples)) < 0.8
        if scope and random.random() < 0.25:
            constraints.append(Constraint(scope, tuples[keep], bool(random.random() < 0.7)))
            continue
        default = None if random.random() < 0.5 or not scope else (3 if is_integral else 0.5)
        keep |= not scope
        functions.append(Function(scope, tuples[keep], values.ravel()[keep], default))
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    return Problem(variables, tuple(functions), tuple(constraints), semiring=semiring)


def assignments(problem):
    every = itertools.product(*[range(size) for size in problem.sizes])
    return {a: value for a in every if (value := problem.evaluate(a)) is not None}


@pytest.mark.parametrize("seed", range(examples(160)))
def test_sums_against_brute_force(seed, all_narrow):
    problem = random_problem(seed)
    every, options = assignments(problem), {"order_seconds": 0}
    assert narrow_problem(problem, SolveOptions()) is not None
    least, most = oocbe.solve(problem, **options), oocbe.solve(problem, semiring="max-sum", **options)
    entry = oocbe.bound(problem, **options).entries[-1]
    count, logz = oocbe.count(problem).value, oocbe.log_partition(problem, temperature=2.0).value
    marginals = oocbe.marginals(problem, temperature=2.0)
    bests = {rule: oocbe.min_marginals(problem, semiring=f"{rule.__name__}-sum") for rule in (min, max)}
    assert count == len(every)
    if not every:
        assert {best.status for best in bests.values()} == {"infeasible"}
        assert (least.status, most.status, entry.status) == ("infeasible",) * 3
        assert logz == -math.inf and marginals.status == "infeasible"
        return
    assert least.value == pytest.approx(min(every.values())) and least.status == "optimal"
    assert most.value == pytest.approx(max(every.values()))
    assert problem.evaluate(least.assignment) == pytest.approx(least.value)
    assert entry.status == "optimal" and entry.bound <= min(every.values()) + 1e-12
    assert entry.bound == pytest.approx(min(every.values()))
    weights = {a: math.exp(-value / 2) for a, value in every.items()}
    assert logz == pytest.approx(math.log(math.fsum(weights.values())))
    assert marginals.value == pytest.approx(logz)
    for v, size in enumerate(problem.sizes):
        own = [math.fsum(w for a, w in weights.items() if a[v] == x) for x in range(size)]
        assert marginals.marginals[v] == pytest.approx(np.array(own) / math.fsum(weights.values()))
        for rule, best in bests.items():
            own = [rule((c for a, c in every.items() if a[v] == x), default=math.nan) for x in range(size)]
            assert best.marginals[v].tolist() == (pytest.approx(own, nan_ok=True) if seed % 2 else own)


@pytest.mark.parametrize("seed", range(examples(80)))
def test_products_against_brute_force(seed, all_narrow):
    problem = random_problem(seed, SUM_PRODUCT)
    every = assignments(problem)
    total, best = oocbe.solve(problem), oocbe.solve(problem, semiring="max-product")
    assert (total.value or 0) == pytest.approx(math.fsum(every.values()))
    assert oocbe.count(problem).value == len(every)
    assert oocbe.log_partition(problem).value == (
        pytest.approx(math.log(math.fsum(every.values()))) if every else -math.inf
    )
    if every:
        assert best.value == pytest.approx(max(every.values()))


def test_what_one_loop_does_not_do(all_narrow, tmp_path):
    problem = random_problem(4)
    ones = tuple(np.ones(size, dtype=int) for size in problem.sizes)
    for options in ({"tables": "incomplete"}, {"bounds": "lp"}, {"workdir": tmp_path}):
        assert narrow_problem(problem, SolveOptions(**options)) is None
    negative = Problem((Variable("a", 2),), (Function.from_array((0,), [-1.0, 2.0]),), semiring=SUM_PRODUCT)
    with pytest.raises(UnsupportedError, match="negative value"):
        oocbe.log_partition(negative)
    assert oocbe.solve(negative).value == 1.0
    small = Problem(problem.variables, (), (), (LinearConstraint(tuple(range(len(ones))), ones, len(ones) - 1),))
    assert narrow_problem(small, SolveOptions()) is not None
    assert oocbe.solve(small).status == "infeasible" if min(small.sizes) > 1 else True
    with Deadline(0.0), pytest.raises(TimeLimitError):
        narrow_problem(problem, SolveOptions())


@pytest.mark.parametrize(("semiring", "wrong"), [("max-product", -1.0), ("min-sum", 1 << 62)])
def test_values_that_propagation_removes_are_not_refused(semiring, wrong, all_narrow):
    """A value that only a forbidden assignment has: what is left has an optimum, and the engine refuses the whole."""
    pair = Function.from_array((0, 1), [[wrong, 3], [2, 1]])
    again = Function.from_array((0, 1), [[wrong, 0], [0, 0]] if semiring == "min-sum" else [[1, 1], [1, 1]])
    forbidden = Constraint((0,), np.array([[0]]), allowed=False)
    whole = Problem((Variable("a", 2), Variable("b", 2)), (pair, again), semiring=SEMIRINGS[semiring])
    left = Problem(whole.variables, whole.functions, (forbidden,), semiring=whole.semiring)
    assert narrow_problem(left, SolveOptions()) is None
    found = oocbe.solve(left)
    assert (found.status, found.value) == ("optimal", {"max-product": 2, "min-sum": 1}[semiring])
    assert len(oocbe.plan(left).choice.order) <= 1
    with pytest.raises((UnsupportedError, ValueRangeError)):
        oocbe.solve(whole)


@pytest.mark.parametrize("name", ["min-sum", "max-sum", "max-product", "sum-product"])
def test_values_near_the_limits_of_floats_are_left_to_the_engine_or_to_logarithms(name):
    """One loop would report infinity, or 0: sums beyond 1e308, and products of 400 small factors and their inverses."""
    adds = name.endswith("sum")
    values = np.full((2, 2), 1.5e308) if adds else np.array([[1e-9, 1e-9], [1e-12, 1e-10]])
    scopes = [(0, 1), (1, 2)] if adds else [(0, 1), (1, 2)] * 200
    pairs = [Function.from_array(scope, values) for scope in scopes]
    largest = Function((), np.zeros((1, 0)), [1e308])
    for parts in (pairs, [largest] * 2 if adds else [largest, *pairs]):
        problem = Problem(tuple(Variable(v, 2) for v in "abc"), tuple(parts), semiring=SEMIRINGS[name])
        narrow = narrow_problem(problem, SolveOptions())
        if adds:
            assert narrow is None
        else:
            with pytest.raises(FloatRangeError):
                narrow.solve()
        result = oocbe.solve(problem)
        assert result.value == (math.inf if adds else 0)
        assert adds or any("natural logarithm is" in note for note in result.notes)
    near = Problem(problem.variables, (Function.from_array((0, 1), values / 2**30),), semiring=SEMIRINGS[name])
    assert narrow_problem(near, SolveOptions()) is not None


@pytest.mark.parametrize("many_parts", [100, 1 << 12])
@pytest.mark.parametrize("name", ["max-product", "sum-product"])
def test_a_product_that_underflows_beside_a_better_one_is_found_where_that_is_ruled_out(name, many_parts):
    """All variables are equal, 0 or 1: 0.9 to the 699 beside 0.01 to the 699; and the first and last one are not 0."""
    parts = [Function.from_array((v, v + 1), np.array([[0.9, 0.0], [0.0, 0.01]])) for v in range(699)]
    parts.append(Function.from_array((0, 699), np.array([[0.0, 1.0], [1.0, 1.0]])))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(700)), tuple(parts), semiring=SEMIRINGS[name])
    with tuned(many_parts=many_parts):
        result = oocbe.solve(problem)
    assert result.value == 0 and result.status == ("optimal" if name == "max-product" else "exact")
    assert result.assignment == (None if name == "sum-product" else (1,) * 700)
    assert f"natural logarithm is {699 * math.log(0.01):.10g}"[:30] in " ".join(result.notes)


@pytest.mark.parametrize("large", [1e17, 1 << 60, 1e90])
def test_probabilities_beside_large_values_are_those_without_them(large):
    """Beside such a value, a difference of 1 and the logarithm of 2 are less than rounding."""
    variables, unlike = tuple(Variable(v, 2) for v in "abc"), np.array([[large, 0], [0, large]])
    for pair in (np.full((2, 2), large), unlike):
        functions = (Function.from_array((0,), [0, 1]), Function.from_array((0, 1), pair))
        problem = Problem(variables, functions)
        assert narrow_problem(problem, SolveOptions(), 1.0) is not None
        first, second, third = oocbe.marginals(problem).marginals
        assert first == pytest.approx([math.e / (1 + math.e), 1 / (1 + math.e)]) and third == pytest.approx([0.5, 0.5])
        assert second == pytest.approx(first[::-1] if pair is unlike else [0.5, 0.5])
    within = [Function.from_array((v, v + 1), np.array([[large, 2 * large], [2 * large, large]])) for v in (0, 1)]
    with pytest.raises(ValueRangeError, match="floats do not tell assignments apart"):  # each has a large value
        oocbe.marginals(Problem(variables, (*within, Function.from_array((0, 2), unlike))))


def test_a_count_does_not_convert_values_beyond_integers():
    problem = chain(edges_of("path", 5), 5, [[1e300, math.inf], [-1e300, 1.5]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert oocbe.count(problem).value == 6


@pytest.mark.parametrize("option", [{"order": "min-fill"}, {"bounds": "none"}, {"tables": "complete"}])
def test_who_sets_an_option_of_the_engine_gets_the_engine(option):
    problem = random_problem(4)
    assert narrow_problem(problem, SolveOptions()) is not None
    assert narrow_problem(problem, SolveOptions(**option)) is None
    assert oocbe.solve(problem, **option).value == oocbe.solve(problem).value


def test_a_problem_without_variables_has_no_marginals():
    problem = Problem((), (Function((), np.zeros((1, 0)), [3]),))
    assert oocbe.solve(problem).value == 3 and oocbe.solve(problem).assignment == ()
    assert oocbe.marginals(problem).marginals == () and oocbe.count(problem).value == 1
    assert oocbe.log_partition(problem).value == -3


def test_an_observer_of_a_small_problem_gets_plan_and_buckets():
    class Events(oocbe.Observer):
        def __init__(self):
            self.plans, self.buckets, self.results = [], [], []

        def started(self, plan):
            self.plans.append(plan)

        def bucket_done(self, number, total, variable, rows, bytes):
            self.buckets.append((number, total, variable, rows, bytes))

        def finished(self, result):
            self.results.append(result)

    problem, events = chain(edges_of("cycle", 5), 5, [[0, 1], [1, 0]]), Events()
    result = oocbe.solve(problem, observer=events)
    assert events.results == [result] and [plan.choice.order for plan in events.plans] == [result.order]
    assert [rows for *_, rows, _ in events.buckets] == [4, 4, 4, 2, 1] == [bucket.rows for bucket in result.buckets]
    names = [problem.variables[v].name for v in result.order]
    assert [(n, total, v) for n, total, v, *_ in events.buckets] == [(i + 1, 5, v) for i, v in enumerate(names)]
    assert oocbe.plan(problem).choice.order == result.order


@pytest.mark.parametrize("loop", [narrow_module.eliminate, narrow_module.choose_values, narrow_module.count_within])
def test_a_small_problem_does_not_wait_for_a_compiler(loop, monkeypatch):
    """The engine solves it, unless it is so small that the loop is interpreted."""
    monkeypatch.setattr(narrow_module, "is_ready", lambda asked, *_: asked is not loop)
    temperature = COUNTS if loop is narrow_module.count_within else None
    cells = narrow_module.INTERPRETED_CELLS
    for size, is_waiting in ((8, False), (math.isqrt(cells), True)):
        variables = tuple(Variable(v, size) for v in "abc")
        pairs = tuple(Function.from_array((v, v + 1), np.arange(size**2).reshape(size, size)) for v in (0, 1))
        forbidden = tuple(Constraint((v, v + 1), [[1, 1]]) for v in (0, 1))
        problem = Problem(variables, pairs, forbidden)
        assert (narrow_problem(problem, SolveOptions(), temperature) is None) == is_waiting
        assert oocbe.solve(problem).value == 0 and oocbe.count(problem).value == size**3 - 2 * size + 1
    large = chain(edges_of("path", 5_000), 5_000, [[0, 1], [1, 0]])
    assert narrow_problem(large, SolveOptions(), temperature) is not None


def chain(edges, count, values):
    functions = tuple(Function.from_array((int(u), int(v)), values) for u, v in edges)
    return Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), functions)


def edges_of(kind, count):
    line = [(v, v + 1) for v in range(count - 1)]
    if kind == "cycle":
        return [*line, (count - 1, 0)]
    if kind == "star":
        return [(0, v) for v in range(1, count)]
    if kind == "tree":
        return [((v - 1) // 2, v) for v in range(1, count)]
    if kind == "band":
        return [(v, v + 1) for v in range(count - 1) if v % 4 != 3] + [(v, v + 4) for v in range(count - 4)]
    return line


@pytest.mark.parametrize("kind", ["star", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("band", "path"))])
def test_more_variables_than_any_bit_set_holds(kind):
    """40,000 variables were refused; of a unit cost for unequal neighbours the optimum is 0."""
    count = 40_000
    problem = chain(edges_of(kind, count), count, [[0, 1], [1, 0]])
    result = oocbe.solve(problem)
    assert (result.status, result.value, result.width) == ("optimal", 0, narrow_problem(problem, SolveOptions()).width)
    assert len(set(result.assignment)) == 1
    if kind != "path":  # what the other verbs do does not turn on the kind
        return
    plan = oocbe.plan(problem)
    assert plan.headline.startswith("elimination of all buckets in one loop, about ")
    assert (plan.width, len(plan.buckets)) == (result.width, count) and len(str(plan).splitlines()) < 25
    found = oocbe.marginals(problem).marginals
    assert all(own == pytest.approx([0.5, 0.5]) for own in found[:: count // 50])
    assert oocbe.bound(problem).entries[-1].bound == 0


@pytest.mark.parametrize("semiring", ["min-sum", "max-sum"])
def test_min_marginals_of_many_variables_make_no_bucket_of_the_engine(semiring, monkeypatch):
    """Each bucket of the engine takes half a millisecond; here the best of a path to and from each value, by hand."""
    monkeypatch.setattr("oocbe.api.tasks.marginals.compute_tables", None)
    count, best = 6_000, np.min if semiring == "min-sum" else np.max
    costs = np.random.default_rng(3).integers(-9, 9, (count - 1, 2, 2))
    functions = [Function.from_array((v, v + 1), own) for v, own in enumerate(costs)]
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), tuple(functions), semiring=SEMIRINGS[semiring])
    before, after = [np.zeros(2, dtype=int)], [np.zeros(2, dtype=int)]
    for own in costs:
        before.append(best(before[-1][:, None] + own, axis=0))
    for own in costs[::-1]:
        after.append(best(after[-1][None, :] + own, axis=1))
    found = oocbe.min_marginals(problem)
    assert (found.status, found.value, found.dtype) == ("exact", int(best(before[-1])), "int64")
    assert (np.array(found.marginals) == np.array(before) + np.array(after[::-1])).all()


@pytest.mark.parametrize("kind", ["path", "cycle", "tree", "star"])
def test_long_counts(kind):
    """Ways to give neighbours values that are not both 1, by the recurrences that they are known for."""
    count = 6_000
    edges = edges_of(kind, count)
    constraint = [Constraint((u, v), [[1, 1]]) for u, v in edges]
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), (), tuple(constraint))
    if kind == "tree":
        zero, one = [1] * count, [1] * count
        for v in range(count - 1, 0, -1):
            up = (v - 1) // 2
            zero[up], one[up] = zero[up] * (zero[v] + one[v]), one[up] * zero[v]
        expected = zero[0] + one[0]
    elif kind == "star":
        expected = 2 ** (count - 1) + 1
    else:
        fibonacci = reduce(lambda pair, _: (pair[1], pair[0] + pair[1]), range(count), (1, 1))
        lucas = reduce(lambda pair, _: (pair[1], pair[0] + pair[1]), range(count), (2, 1))
        expected = fibonacci[1] if kind == "path" else lucas[0]
    assert narrow_problem(problem, SolveOptions(), COUNTS) is not None
    assert oocbe.count(problem).value == expected


@pytest.mark.parametrize(("count", "near"), [(6_000, 5), (60, 60)])
def test_what_forbids_nothing_is_not_counted_along(count, near):
    """Along the functions of all pairs of 60 variables no count would end."""
    listed = [[0, 1], [1, 0]]
    pairs = [(u, v) for u in range(count) for v in range(u + 1, min(count, u + near))]
    functions = [Function.from_array(pair, listed) for pair in pairs]
    functions += [Function((0, 2), [[0, 1]], [5], 3), Function((1,), [[0], [1]], [2, 2])]
    constraints = (Constraint((0, 1), np.zeros((0, 2))), Constraint((3, 4), [[1, 1]]))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), tuple(functions), constraints)
    result = oocbe.count(problem)
    assert (result.value, result.width) == (3 * 2 ** (count - 2), 1)
    product = Problem(problem.variables, (Function.from_array((0, 1), [[0.0, 1.0], [1.0, 1.0]]),), semiring=SUM_PRODUCT)
    assert oocbe.count(product).value == 3 * 2 ** (count - 2)


@pytest.mark.parametrize("temperature", [None, COUNTS])
@pytest.mark.parametrize("kind", ["star", "tree"])
def test_a_busy_machine_makes_no_problem_wide(kind, temperature, tune):
    """Where time was up, variables came in any order: a hub first, whose message has 2^5000 cells."""
    tune(first_order_seconds=0.0, grace_seconds=0.0, grace_variable_seconds=0.0)
    problem = chain(edges_of(kind, 5_000), 5_000, [[0, 1], [1, 0]])
    assert narrow_problem(problem, SolveOptions(), temperature).width == 1


def test_an_order_is_only_searched_for_where_it_can_save_time(monkeypatch):
    """One is enough where counting along it takes no longer than finding another; a long path has many long counts."""
    floors, make = [], ScopeGraph.greedy_order
    monkeypatch.setattr(
        ScopeGraph, "greedy_order", lambda *a, floor, **o: floors.append(floor) or make(*a, floor=floor, **o)
    )
    for kind, orders in (("star", 1), ("band", 5)):
        del floors[:]
        assert narrow_problem(chain(edges_of(kind, 10_000), 10_000, [[0, 1], [1, 0]]), SolveOptions(), COUNTS)
        assert len(floors) == orders


def test_one_loop_ends_with_the_time_limit():
    """Bounds have something to say where there is one; a sum has nothing."""
    problem = chain(edges_of("path", 5_000), 5_000, [[0, 1], [1, 0]])
    with pytest.raises(TimeLimitError):
        oocbe.log_partition(problem, time_limit=1e-6)
    assert oocbe.solve(problem, time_limit=1e-6).status in ("limit", "optimal")


def test_propagation_comes_before_a_loop_that_takes_longer(monkeypatch):
    """It leaves 5 of 45 variables here: the rest are equal to the first, which is 0."""
    parts = [Function.from_array((v, v + 1), np.arange(4).reshape(2, 2)) for v in range(44)]
    equal = [Constraint((v, v + 1), np.array([[0, 1], [1, 0]])) for v in range(39)]
    fixed = Constraint((0,), np.array([[1]]))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(45)), tuple(parts), (*equal, fixed))
    known = oocbe.solve(problem)
    for name in ("AT_ONCE_SECONDS", "PROPAGATION_SECONDS"):
        monkeypatch.setattr(narrow_module, name, 0.0)
    assert narrow_problem(problem, SolveOptions()).is_long
    result = oocbe.solve(problem)
    assert (result.value, result.assignment) == (known.value, known.assignment)
    assert len(known.buckets) == 45 and len(result.buckets) == 5
    assert len(oocbe.plan(problem).choice.order) == 5


@pytest.mark.parametrize("options", [{}, {"order": "min-degree"}])
@pytest.mark.parametrize("count", [3, 700])
def test_a_negative_default_of_a_product_is_refused_though_no_row_has_it(count, options):
    """Beside listed zeros, the engine called such a problem infeasible; logarithms refused it only where one loop
    needed them."""
    rows = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    parts = [Function((v, v + 1), rows, np.array([0.9, 0.0, 0.0, 0.01]), -1.0) for v in range(count - 1)]
    parts.append(Function.from_array((0, count - 1), np.array([[0.0, 1.0], [1.0, 1.0]])))
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(count)), tuple(parts), semiring=SEMIRINGS["max-product"]
    )
    with pytest.raises(UnsupportedError, match="negative value"):
        oocbe.solve(problem, **options)
