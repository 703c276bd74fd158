"""Counts beyond 64 bits, of structures whose count follows from elsewhere."""

import itertools
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import oocbe
from oocbe.api.tasks import count as counts
from oocbe.api.tasks.count import count, count_optimal
from oocbe.api.tasks.k_best import k_best
from oocbe.api.tasks.marginals import log_partition, marginals, min_marginals
from oocbe.api.tasks.verbs import run_task
from oocbe.elimination.engine import consumption as linear
from oocbe.errors import UnsupportedError
from oocbe.junction_trees.tree import JunctionTree
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, SUM_PRODUCT
from oocbe.model.settings.options import SolveOptions
from oocbe.tables.numbers import limbs_for
from tests.helpers.effort import examples

OPTIONS = SolveOptions(order_seconds=0.0, backend="cpu")
SPOT5 = Path(os.environ.get("OOCBE_DATA", Path(__file__).parents[3] / "shared" / "data")) / "spot5"


def chain(length, size, forbidden):
    """Neighbours on a chain may not take any of the forbidden pairs."""
    constraints = tuple(Constraint((v, v + 1), forbidden) for v in range(length - 1))
    return Problem(tuple(Variable(f"v{v}", size) for v in range(length)), constraints=constraints, name="chain")


def chain_count(length, size, forbidden):
    ways = [1] * size
    for _ in range(length - 1):
        ways = [sum(w for a, w in enumerate(ways) if (a, b) not in forbidden) for b in range(size)]
    return sum(ways)


@pytest.mark.parametrize("length", [10, 40, 64, 250])
def test_a_chain(length):
    forbidden = [(0, 0), (1, 2), (2, 1)]
    assert count(chain(length, 3, forbidden), OPTIONS).value == chain_count(length, 3, forbidden)


def test_independent_variables():
    problem = Problem(tuple(Variable(f"v{v}", 5 + v % 3) for v in range(100)))
    result = count(problem, OPTIONS)
    assert result.value == math.prod(problem.sizes)
    assert result.logarithm == pytest.approx(math.log(math.prod(problem.sizes)))


@pytest.mark.parametrize("leaves", [2, 5, 9])
def test_a_bucket_that_joins_many_messages(leaves):
    """Each leaf of a star is a chain of its own that ends in the hub: as many messages meet there."""
    length, size = 20, 3
    variables = [Variable("hub", size)]
    constraints = []
    for leaf in range(leaves):
        before = 0
        for step in range(length):
            variables.append(Variable(f"v{leaf}.{step}", size))
            constraints.append(Constraint((before, len(variables) - 1), [[0, 0], [1, 1]]))
            before = len(variables) - 1
    problem = Problem(tuple(variables), constraints=tuple(constraints), name="star")
    ways = [1] * size
    for _ in range(length):
        ways = [sum(w for b, w in enumerate(ways) if not (a == b and a < 2)) for a in range(size)]
    result = count(problem, OPTIONS)
    assert result.value == sum(w**leaves for w in ways)
    assert result.passes == 1


def test_counts_whose_sizes_differ_too_much_for_floats():
    """One value of the hub permits everything in a long chain, the other a single assignment."""
    length = 500
    nothing_but_zero = [[1, x] for x in range(1, 4)]
    constraints = tuple(Constraint((0, v), nothing_but_zero) for v in range(1, length))
    variables = (Variable("hub", 2), *(Variable(f"v{v}", 4) for v in range(1, length)))
    problem = Problem(variables, constraints=constraints, name="spread")
    assert count(problem, OPTIONS).value == 4 ** (length - 1) + 1


def test_an_upper_bound_that_only_single_values_reach():
    functions = (Function((0,), [[0], [1]], [0, 100], 1), Function((1,), [[0]], [100], 2))
    problem = Problem((Variable("a", 3), Variable("b", 3)), functions, upper_bound=50, name="bounded")
    expected = sum(problem.evaluate((a, b)) is not None for a in range(3) for b in range(3))
    assert count(problem, OPTIONS).value == expected == 4
    with pytest.raises(UnsupportedError, match="upper bound"):
        sums = (Function((0,), [[0], [1]], [0, 20], 30), Function((1,), [[0]], [25], 2))
        count(Problem(problem.variables, sums, upper_bound=50, name="bounded"), OPTIONS)


def test_floats_at_an_upper_bound():
    """A value just below the bound counts, one at it does not, and where rounding would decide the task says so."""
    values = np.random.default_rng(5).normal(size=6) - 3.0
    for place in range(6):
        for bound in (values[place], np.nextafter(values[place], np.inf), np.nextafter(values[place], -np.inf)):
            alone = Problem((Variable("a", 6),), (Function.from_array((0,), values),), constant=0.7, upper_bound=bound)
            near = replace(alone, upper_bound=0.7 + bound)
            for problem in (alone, near):
                expected = sum(problem.evaluate((a,)) is not None for a in range(6))
                assert count(problem, OPTIONS).value == expected
    costs = (Function.from_array((0,), [0.1, 0.2, 7.3]), Function.from_array((1,), [0.3, 0.7]))
    problem = Problem((Variable("a", 3), Variable("b", 2)), costs, name="floats")
    assert count(problem.below(7.3), OPTIONS).value == 4  # nothing below 0 makes up for 7.3
    with pytest.raises(UnsupportedError, match="cannot tell apart"):
        count(problem.below(0.3 + 7.3), OPTIONS)


@pytest.mark.parametrize("constant", [9, 9.0, 1e-9, 2**60, 0.1 + 0.2])
def test_nothing_counts_where_all_sums_reach_the_upper_bound(constant):
    """Also where propagation leaves no variable, and no function, to tell apart what reaches it."""
    unary = Function((0,), [[0]], [constant])
    fixed = Constraint((0,), [[1]])
    for problem in (
        Problem((Variable("x", 2),), (unary,), (fixed,), upper_bound=constant),
        Problem((Variable("x", 3),), constant=constant, upper_bound=constant),
        Problem((), constant=constant, upper_bound=constant),
        Problem((Variable("x", 2), Variable("y", 2)), (unary, Function((1,), [], [], 0)), upper_bound=constant),
    ):
        assert problem.evaluate([0] * len(problem.variables)) is None
        for task in ("count", "count-optimal", "kbest", "logz", "marginals", "min-marginals"):
            result = run_task(task, problem, OPTIONS)
            assert result.status == "infeasible", task
        assert run_task("count", problem, OPTIONS).value == 0
        assert JunctionTree(problem).log_evidence == -np.inf
        above = problem.below(np.nextafter(constant, np.inf) if isinstance(constant, float) else constant + 1)
        assert run_task("count", above, OPTIONS).value == sum(
            above.evaluate(a) is not None for a in itertools.product(*map(range, above.sizes))
        )


def test_upper_bounds_between_the_numbers_that_sums_can_be():
    costs = (Function((0,), [[0], [1]], [0.5, 0.25], 0.0), Function((0,), [[1], [2]], [0.5, 1.0], -1.0))
    problem = Problem((Variable("x", 3),), costs, (Constraint((0,), [[2]], allowed=True),), constant=-0.75)
    assert run_task("count", problem.below(0.25), OPTIONS).value == 0
    assert run_task("logz", problem.below(np.nextafter(0.25, 1)), OPTIONS).value == -0.25
    with pytest.raises(UnsupportedError, match="cannot tell apart"):  # a tree without propagation
        JunctionTree(problem.below(np.nextafter(0.25, 1)))
    whole = Problem((Variable("x", 2),), (Function((0,), [[0], [1]], [2**60, 2**60 + 1]),), upper_bound=2.0**60 + 0.5)
    assert JunctionTree(whole).log_evidence == -np.inf
    assert count(whole.below(2**60 + 1), OPTIONS).value == 1


def test_a_default_that_no_assignment_has_is_no_part_of_a_sum():
    constants = (Function((), np.zeros((1, 0)), [1.25], 1.0), Function((), np.zeros((1, 0)), [-1.25], -0.25))
    assert count(Problem((), constants, upper_bound=5e-324), OPTIONS).value == 1


def test_the_problem_says_whether_an_optimum_at_its_bound_counts():
    random = np.random.default_rng(0)
    agreed = {True: 0, False: 0}
    for _ in range(30):
        functions = tuple(Function.from_array((v, (v + 1) % 4), random.normal(size=(3, 3))) for v in range(4))
        problem = Problem(tuple(Variable(f"v{v}", 3) for v in range(4)), functions, name="rounded")
        best = min(problem.evaluate(a) for a in itertools.product(range(3), repeat=4))
        for bound in (best, np.nextafter(best, np.inf), np.nextafter(best, -np.inf)):
            is_below = best < bound
            assert count_optimal(problem.below(bound), OPTIONS).value == is_below
            agreed[is_below] += 1
    assert min(agreed.values()) > 0


def test_zero_probabilities_do_not_count():
    f = Function((0, 1), [[0, 0], [1, 1]], [0.0, 0.5], 0.25)
    problem = Problem((Variable("a", 2), Variable("b", 2)), (f,), semiring=MAX_PRODUCT, name="zeros")
    assert count(problem, OPTIONS).value == 3


def product_chain(length, listed, value, default, constant=1.0):
    """Neighbours on a chain, the listed pairs of values with one value and all others with another."""
    variables = tuple(Variable(f"v{v}", 2) for v in range(length))
    values = [value] * len(listed)
    functions = tuple(Function((v, v + 1), listed, values, default) for v in range(length - 1))
    return Problem(variables, functions, constant=constant, semiring=SUM_PRODUCT, name="products")


@pytest.mark.parametrize("zero", [0, 0.0])
def test_listed_zeros_beside_a_default_in_counts_of_any_size(zero):
    assert count(product_chain(80, [[1, 1]], zero, 1.0), OPTIONS).value == chain_count(80, 2, [(1, 1)])
    assert count(product_chain(200, [[1, 1]], zero, 1), OPTIONS).value == chain_count(200, 2, [(1, 1)])


def test_a_default_of_zero_in_counts_of_any_size():
    assert count(product_chain(80, [[0, 0], [0, 1], [1, 0]], 0.5, 0.0), OPTIONS).value == chain_count(80, 2, [(1, 1)])


@pytest.mark.parametrize("seed", range(examples(48)))
def test_counts_of_limbs_know_the_zeros_of_products(seed, monkeypatch):
    monkeypatch.setattr(counts, "limbs_for", lambda bound: limbs_for(bound) + 2)
    random = np.random.default_rng(seed)
    functions = []
    for scope in [(0, 1), (1, 2, 3), (3,), (0, 3)]:
        cells = np.argwhere(random.random((3,) * len(scope)) < 0.6).reshape(-1, len(scope))
        default = [None, 0, 2.0, 1][random.integers(4)]
        functions.append(Function(scope, cells, random.integers(0, 3, len(cells)).astype(float), default))
    functions.append(Function((), np.zeros((1, 0), dtype=np.int64), [float(seed % 6)], 1.0))
    problem = Problem(tuple(Variable(f"v{v}", 3) for v in range(4)), tuple(functions), semiring=SUM_PRODUCT)
    every = [problem.evaluate(a) for a in itertools.product(range(3), repeat=4)]
    assert count(problem, OPTIONS).value == sum(bool(value) for value in every)


def room_for(variables, room):
    """Of so many variables, some may take their costly value."""
    use = (np.array([2, 5]),) * variables
    capacity = LinearConstraint(tuple(range(variables)), use, 2 * variables + 3 * room + 1)
    return Problem(tuple(Variable(f"v{v}", 2) for v in range(variables)), linear_constraints=(capacity,))


@pytest.mark.parametrize(("variables", "room"), [(40, 7), (140, 66)])
def test_a_capacity_over_many_variables(variables, room):
    """Sums of binomial coefficients, small ones and such of more than 128 bits."""
    result = count(room_for(variables, room), OPTIONS)
    assert result.value == sum(math.comb(variables, k) for k in range(room + 1))
    assert result.passes == 1


def test_tasks_that_cannot_share_a_capacity_out_say_so():
    variables = tuple(Variable(f"v{v}", 2) for v in range(40))
    capacity = LinearConstraint(tuple(range(40)), (np.array([0, 1]),) * 40, 7, "recorder capacity")
    problem = Problem(variables, linear_constraints=(capacity,))
    for task in (count_optimal, min_marginals, marginals, lambda problem, options: k_best(problem, options, 3)):
        with pytest.raises(UnsupportedError, match="recorder capacity over 40 variables"):
            task(problem, OPTIONS)


@pytest.mark.parametrize("seed", range(examples(100)))
def test_capacities_between_other_constraints(seed, monkeypatch):
    """Carried in rows, with counts of one word and of several limbs."""
    monkeypatch.setattr(linear, "TABULATED_BITS", -1)
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 4, size=7).tolist()
    linears = []
    for scope in [range(7), *([range(2, 6)] if seed % 2 else [])]:
        most = 1000 if seed % 3 == 0 else 1  # sums of consumptions that lie close together, or far apart
        use = tuple(random.integers(0, 4 * most, size=sizes[v]) for v in scope)
        least = sum(int(own.min()) for own in use)
        linears.append(LinearConstraint(tuple(scope), use, least + int(random.integers(3 * most, 9 * most))))
    # A star: its centre receives many messages at once.
    pairs = tuple(Constraint((v, 6), [[random.integers(sizes[v]), random.integers(sizes[6])]]) for v in range(6))
    costs = tuple(Function.from_array((v,), random.integers(0, 5, size=sizes[v])) for v in range(7))
    variables = tuple(Variable(f"v{v}", n) for v, n in enumerate(sizes))
    problem = Problem(variables, costs, pairs, tuple(linears), name=f"star {seed}")
    values = [problem.evaluate(a) for a in itertools.product(*map(range, sizes))]
    values = [v for v in values if v is not None]
    expected = math.log(sum(math.exp(-v / 3.0) for v in values)) if values else -math.inf
    for options in (OPTIONS, replace(OPTIONS, order="min-degree")):
        assert count(problem, options).value == len(values)
        assert math.isclose(log_partition(problem, options, 3.0).value, expected, rel_tol=1e-12)
    monkeypatch.setattr(counts, "limbs_for", lambda bound: limbs_for(bound) + 2)
    for options in (OPTIONS, replace(OPTIONS, order="min-degree")):
        assert count(problem, options).value == len(values)


def search_count(problem):
    """Independent count: variables one by one, constraints checked as soon as all their variables are set."""
    forbidden = [[] for _ in problem.variables]
    for c in problem.constraints:
        assert not c.allowed
        forbidden[max(c.scope)].append((c.scope, {tuple(t) for t in c.tuples.tolist()}))
    values = [0] * len(problem.sizes)

    def below(v):
        if v == len(values):
            return 1
        total = 0
        for x in range(problem.sizes[v]):
            values[v] = x
            if all(tuple(values[u] for u in scope) not in tuples for scope, tuples in forbidden[v]):
                total += below(v + 1)
        return total

    return below(0)


@pytest.mark.parametrize("name", ["54", "29", "404", "503", "505"])
def test_parts_of_real_instances_against_search(name):
    path = SPOT5 / f"{name}.spot"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    whole = oocbe.read(path)
    random = np.random.default_rng(int(name))
    mentioned = np.bincount([v for c in whole.constraints for v in c.scope])
    near = [int(mentioned.argmax())]
    while len(near) < 9:  # neighbours of what is there, so that constraints remain
        reach = sorted({v for c in whole.constraints if set(c.scope) & set(near) for v in c.scope} - set(near))
        near.append(int(random.choice(reach)))
    index = {v: i for i, v in enumerate(sorted(near))}
    part = Problem(
        tuple(whole.variables[v] for v in index),
        constraints=tuple(
            Constraint(tuple(index[v] for v in c.scope), c.tuples)
            for c in whole.constraints
            if set(c.scope) <= set(near)
        ),
        name=f"part of {name}",
    )
    assert part.constraints
    assert count(part, OPTIONS).value == search_count(part)


@pytest.mark.parametrize("bound", [1e305, 1.7e308])
def test_a_bound_that_no_multiple_of_the_last_place_reaches(bound):
    """Rounded up to the units of sums of floats, it would be infinite."""
    function = oocbe.Function.from_array((0, 1), [[0.5, 1.0], [2.0, 3.0]])
    variables = (oocbe.Variable("x", 2), oocbe.Variable("y", 2))
    assert oocbe.count(oocbe.Problem(variables, (function,), upper_bound=bound)).value == 4
    largest = oocbe.Problem(variables, (function,), semiring=oocbe.MAX_SUM, lower_bound=-bound)
    assert oocbe.count(largest).value == 4
