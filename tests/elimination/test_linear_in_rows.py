"""Linear constraints carried in the rows' keys: the same answers as brute force, whatever else is on or off."""

from __future__ import annotations

import itertools
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.bounds.relaxation import Relaxation
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine import bucket_engine
from oocbe.elimination.engine import consumption as consumption_module
from oocbe.elimination.engine.consumption import Consumption, carried_in_rows, consumption_of, left_out
from oocbe.elimination.preparation.prepare import prepare
from oocbe.errors import TimeLimitError, UnsupportedError, ValueRangeError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import COUNTING, MAX_SUM, MIN_SUM, SUM_PRODUCT
from oocbe.propagation.value_removal import remove_values
from oocbe.search import subsolver
from oocbe.search.presolve import result_of_bounds
from oocbe.search.subsolver import SharedBounds, Statistics
from oocbe.tables.layout import Layout
from tests.helpers.bound_problems import anything, optimum, photographs
from tests.helpers.bound_sources import ExactSource, bound_sources
from tests.helpers.effort import examples
from tests.helpers.small_problems import (
    ALL_SEMIRINGS,
    all_values,
    brute_force,
    check,
    eliminate,
    make_problem,
    structures,
    without_bound,
)

SOURCES = ["constant", "lp", "local-polytope"]


@pytest.fixture(autouse=True)
def _no_lookups(monkeypatch):
    """Small linear constraints are carried in rows, too, instead of being tabulated."""
    monkeypatch.setattr(consumption_module, "TABULATED_BITS", -1)


def tightened(structure) -> Problem:
    """The problem of a structure, with one or two more linear constraints over all variables, most of which bind."""
    problem = without_bound(make_problem(structure))
    random = np.random.default_rng(structure["seed"] + 1)
    linears = list(problem.linear_constraints)
    for _ in range(int(random.integers(1, 3))):
        coefficients = tuple(random.integers(random.choice([0, -3]), 6, size=n) for n in problem.sizes)
        least = sum(int(own.min()) for own in coefficients)
        most = sum(int(own.max()) for own in coefficients)
        capacity = int(random.integers(least - 1, max(least + 1, most)))
        linears.append(LinearConstraint(tuple(range(len(coefficients))), coefficients, capacity))
    return replace(problem, linear_constraints=tuple(linears))


def order_of(problem: Problem, structure) -> list[int]:
    return np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()


@settings(max_examples=examples(100))
@given(structures(ALL_SEMIRINGS), st.booleans(), st.integers(1, 7))
def test_every_semiring(structure, dominance, block_rows):
    problem = tightened(structure)
    value, assignment = eliminate(problem, order_of(problem, structure), dominance, block_rows=block_rows)
    check(problem, value, assignment, brute_force(problem))


@pytest.mark.slow
@settings(max_examples=8000)
@given(structures(ALL_SEMIRINGS), st.booleans(), st.sampled_from([None, 1, 3]))
def test_every_semiring_at_length(structure, dominance, block_rows):
    problem = tightened(structure)
    value, assignment = eliminate(problem, order_of(problem, structure), dominance, block_rows=block_rows)
    check(problem, value, assignment, brute_force(problem))


def check_upper_bound(structure, above, **settings_of_run):
    problem = tightened(structure)
    expected = brute_force(problem)
    upper_bound = (0 if expected is None else expected) + above
    for dominance in (True, False):
        source = ExactSource(problem, structure["seed"], upper_bound)
        order = order_of(problem, structure)
        value, assignment = eliminate(problem.below(upper_bound), order, dominance, bounds=source, **settings_of_run)
        if expected is None or above <= 0:
            inexact = not problem.is_integral or not problem.variables
            assert value is None or (inexact and value >= upper_bound - 1e-5)
        else:
            check(problem, value, assignment, expected)


def scaled_up(problem: Problem, factor: int, seed: int) -> Problem:
    """The problem with linear constraints some ``factor`` as large, whose coefficients have nothing in common."""
    random = np.random.default_rng(seed)
    linears = tuple(
        LinearConstraint(
            c.scope,
            tuple(own * factor + random.integers(0, factor >> 2, size=len(own)) for own in c.coefficients),
            c.capacity * factor + int(random.integers(0, factor)),
        )
        for c in problem.linear_constraints
    )
    return replace(problem, linear_constraints=linears)


@settings(max_examples=examples(80))
@given(structures(ALL_SEMIRINGS), st.booleans(), st.sampled_from([None, 1, 5]), st.sampled_from([28, 40, 54]))
def test_capacities_of_up_to_61_bits(structure, dominance, block_rows, bits):
    problem = scaled_up(tightened(structure), 1 << bits, structure["seed"])
    value, assignment = eliminate(problem, order_of(problem, structure), dominance, block_rows=block_rows)
    relaxed = left_out(problem)
    kept = tuple(c for c in problem.linear_constraints if not any(c is other for other in relaxed))
    problem = replace(problem, linear_constraints=kept)
    check(problem, value, assignment, brute_force(problem))
    assert bits > 40 or not relaxed or len(kept) > 0


def rows_and_value(problem: Problem, order) -> tuple[int, int | float | None]:
    prepared = prepare(problem, problem.semiring, order)
    with MessageStore(1 << 30) as store:
        outcome = Forward(prepared, False, store).run()
    return outcome.total_rows, outcome.value


@pytest.mark.parametrize("semiring", [MIN_SUM, MAX_SUM, SUM_PRODUCT])
def test_rows_leave_room_for_their_own_assignment(semiring, monkeypatch):
    """Neighbours in a band, and a capacity that a few of them take up: most rows could not be completed."""
    random = np.random.default_rng(3)
    count, width = 12, 6
    scopes = [(v, v + step) for step in (1, width) for v in range(count - step)]
    pairs = [Function.from_array(scope, random.integers(1, 3, size=(2, 2))) for scope in scopes]
    use = tuple(np.array([0, int(random.integers(5, 20))]) for _ in range(count))
    variables = tuple(Variable(f"x{v}", 2) for v in range(count))
    linear = LinearConstraint(tuple(range(count)), use, 30)
    problem = Problem(variables, tuple(pairs), linear_constraints=(linear,), semiring=semiring)
    rows, value = rows_and_value(problem, range(count))
    nowhere = Consumption.ahead
    monkeypatch.setattr(Consumption, "ahead", lambda self, separator, fields, bits: nowhere(self, (), (), bits))
    more, same = rows_and_value(problem, range(count))
    assert value == same == brute_force(problem)
    assert 2 * rows < more


@settings(max_examples=examples(100))
@given(st.data(), st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(1, 8))
def test_what_the_separator_consumes(data, limits, merged_bits):
    """Sums over several variables and constraints, and what passes a limit does so whatever is looked up with it."""
    widths = [limit.bit_length() + 1 for limit in limits]
    shifts = [sum(widths[:i]) for i in range(len(widths))]
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    amounts = [[[data.draw(st.integers(0, limit + 1)) for limit in limits] for _ in range(n)] for n in sizes]
    own = tuple(np.array([sum(a << s for a, s in zip(row, shifts, strict=True)) for row in rows]) for rows in amounts)
    numbers = tuple(range(len(limits)))
    consumption = Consumption(numbers, tuple(limits), (1,) * len(limits), tuple(shifts), tuple(widths), own)
    fields = Layout(tuple(map(str, range(len(sizes)))), tuple(sizes)).fields
    ahead = consumption.ahead(range(len(sizes)), fields, merged_bits)
    for assignment in itertools.product(*map(range, sizes)):
        key = sum(value << field.shift for value, field in zip(assignment, fields, strict=True))
        room: int | None = consumption.limit | consumption.guards
        groups = (ahead[name].tolist() for name in ("ahead_shift", "ahead_mask", "ahead_base"))
        for shift, mask, base in zip(*groups, strict=True):
            taken = int(ahead["ahead"][base + (key >> shift & mask)])
            if room is not None:
                room = room - taken if (room - taken) & consumption.guards == consumption.guards else None
        used = [sum(rows[value][i] for rows, value in zip(amounts, assignment, strict=True)) for i in numbers]
        left = [limit - u for limit, u in zip(limits, used, strict=True)]
        expected = sum(r << s for r, s in zip(left, shifts, strict=True)) | consumption.guards
        assert room == (None if min(left) < 0 else expected)


@settings(max_examples=examples(60))
@given(structures((MIN_SUM,)), st.sampled_from([-3, 0, 1, 4, 100]), st.sampled_from([40, 52]), st.integers(1, 7))
def test_bounds_and_stored_tables_with_large_capacities(structure, above, bits, chunk_rows):
    made = scaled_up(tightened(structure), 1 << bits, structure["seed"])
    carried = carried_in_rows(made)
    problem = replace(made, linear_constraints=tuple(made.linear_constraints[n] for n in carried))
    expected = brute_force(problem)
    upper_bound = (0 if expected is None else expected) + above
    source = ExactSource(problem, structure["seed"], upper_bound)
    order = order_of(problem, structure)
    with tempfile.TemporaryDirectory() as folder:
        stored = {"workdir": Path(folder), "chunk_rows": chunk_rows}
        value, assignment = eliminate(problem.below(upper_bound), order, bounds=source, **stored)
    if expected is None or above <= 0:
        inexact = not problem.is_integral or not problem.variables
        assert value is None or (inexact and value >= upper_bound - 1e-5)
    else:
        check(problem, value, assignment, expected)


@settings(max_examples=examples(80))
@given(structures((MIN_SUM,)), st.sampled_from([-3, 0, 1, 4, 100]))
def test_bounds_that_price_consumption(structure, above):
    """The optimum with an upper bound above it, nothing at or below it."""
    check_upper_bound(structure, above)


@pytest.mark.slow
@settings(max_examples=5000)
@given(structures((MIN_SUM,)), st.sampled_from([-3, 0, 1, 4, 100]))
def test_bounds_that_price_consumption_at_length(structure, above):
    check_upper_bound(structure, above)


@settings(max_examples=examples(12))
@given(structures((MIN_SUM,)), st.sampled_from([0, 1]), st.integers(1, 7))
def test_through_stored_tables(structure, above, chunk_rows):
    with tempfile.TemporaryDirectory() as folder:
        check_upper_bound(structure, above, workdir=Path(folder), chunk_rows=chunk_rows)
        assert list(Path(folder).iterdir()) == []


@settings(max_examples=examples(40))
@given(
    structures((MIN_SUM, MAX_SUM)),
    st.sampled_from([*SOURCES, "none"]),
    st.booleans(),
    st.sampled_from([None, None, -1, 0, 2]),
)
def test_the_whole_way(structure, source, dominance, above):
    """Bounds of our own, restriction to what they leave, incumbents, and a user's upper bound."""
    problem = tightened({**structure, "integral": True})
    expected = brute_force(problem)
    options = {"bounds": source, "dominance": dominance, "seed": structure["seed"]}
    ub = None
    if above is not None and problem.semiring is MIN_SUM:
        ub = (0 if expected is None else expected) + above
    result = oocbe.solve(problem, order_seconds=0, bound_seconds=0.05, incumbent_seconds=0.002, ub=ub, **options)
    if expected is None or (ub is not None and expected >= ub):
        assert (result.status, result.value) == ("infeasible" if ub is None else "nothing-better", None)
        return
    assert result.status == "optimal"
    check(problem, result.value, result.assignment, expected)


@pytest.mark.parametrize("source", SOURCES)
def test_photographs_with_a_capacity(source):
    """Problems of the kind that this is for; the capacity excludes the optimum without it in most of them."""
    bound = 0
    for seed in range(60):
        problem = replace(photographs(seed), upper_bound=None)
        if not problem.linear_constraints:
            continue
        expected = optimum(problem)
        bound += optimum(replace(problem, linear_constraints=())) < expected
        result = oocbe.solve(
            problem, bounds=source, order_seconds=0, bound_seconds=0.05, incumbent_seconds=0.002, seed=seed
        )
        assert (result.status, result.value) == ("optimal", expected)
        assert problem.evaluate(result.assignment) == expected
        assert result.linear_constraints in ("enforced", "shown not to bind")
    assert bound >= 3


def knapsack(seed: int) -> Problem:
    """Things of a value each, some of them in conflict, and room for about half of them."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 4, size=7).tolist()
    use = tuple(random.integers(-2, 3) + np.append(0, random.integers(3, 20, size=n - 1)) for n in sizes)
    return Problem(
        tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)),
        tuple(Function((v,), [[0]], [int(random.integers(10, 60))], 0) for v in range(7)),
        tuple(Constraint((v, v + 1), [[1, 1]]) for v in range(6) if random.integers(2)),
        (LinearConstraint(tuple(range(7)), use, int(random.integers(20, 50))),),
    )


def test_one_loop_is_compiled_for_rows_with_and_without_a_price(monkeypatch):
    """There were two for messages of 32 bits, of ten seconds each: only prices were in the dtype of the bounds."""
    seen = set()
    flatten = bucket_engine._flatten

    def noted(program, tables, dtype):
        flat = flatten(program, tables, dtype)
        seen.add((program.prunes, bool(program.consumption.price.any()), flat.tries.priced.dtype))
        return flat

    monkeypatch.setattr(bucket_engine, "_flatten", noted)
    problem = knapsack(0)
    best = optimum(problem)
    for source in (None, *(ExactSource(problem, seed, best + 1) for seed in range(4))):
        value, _ = eliminate(problem.below(best + 1), list(range(7)), bounds=source)
        assert value == best
    assert {(prunes, is_priced) for prunes, is_priced, _ in seen} == {(False, False), (True, False), (True, True)}
    assert {dtype for *_, dtype in seen} == {np.dtype(np.int64)}


def check_prices(problem: Problem, source, random) -> bool:
    """Assert that what a source says of a message holds for every assignment that counts, with the price of what it
    consumes in the eliminated variables; returns whether there was a price to pay."""
    total, counts = all_values(problem)
    eliminated = random.permutation(len(problem.sizes))[: random.integers(0, len(problem.sizes) + 1)].tolist()
    inside = set(eliminated)
    separator = set()
    for part in (*problem.functions, *problem.constraints):
        if set(part.scope) & inside:
            separator |= set(part.scope) - inside
    below = all_values(Problem(problem.variables, tuple(f for f in problem.functions if set(f.scope) & inside)))[0]
    grid = np.indices(problem.sizes)
    bound = source.for_message(sum(1 << v for v in eliminated), sorted(separator))
    left = below.astype(np.float64) * bound.scale + float(bound.constant)
    for v, table in bound.tables.items():
        left = left + table[grid[v]]
    priced = False
    for number, price in bound.prices.items():
        c = problem.linear_constraints[number]
        assert price >= 0
        for v, own in zip(c.scope, c.coefficients, strict=True):
            left = left + (price * (own - own.min())[grid[v]] if v in inside else 0)
        priced |= price > 0 and bool(inside & set(c.scope))
    slack = total.astype(np.float64) * bound.scale - left
    assert (slack[counts] >= 0).all(), (problem.name, source.name, eliminated)
    return priced


def reached(*_):
    raise TimeLimitError("the time limit was reached")


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_prices_hold_for_every_assignment(first, monkeypatch):
    """Of the sources of a problem, and of what they say about the problem with some of its values.

    Linear programs without cuts, which would make do without prices.
    """
    monkeypatch.setattr(Relaxation, "_cut", reached)
    priced = restricted = 0
    for seed in range(first, first + 20):
        random = np.random.default_rng(seed)
        for problem in (knapsack(seed), photographs(seed), anything(seed)):
            values = [(v, int(random.integers(n))) for v, n in enumerate(problem.sizes) if n > 1 and random.integers(2)]
            made = remove_values(problem, values)
            for source in bound_sources(problem, 1.0, seed):
                priced += check_prices(problem, source, random)
                if not made.is_infeasible:
                    left = source.restricted(made.problem, made.kept)
                    restricted += check_prices(made.problem, left, random)
    assert priced >= 5
    assert restricted >= 5


def test_parts_without_common_variables_share_a_capacity():
    """Each part alone has room; together they have not, and the dearest choices must be shared out exactly."""
    random = np.random.default_rng(5)
    for _ in range(20):
        functions = [Function.from_array((v,), [int(random.integers(1, 30)), 0]) for v in range(9)]
        pairs = [Constraint((v, v + 1), [[1, 1]]) for v in (0, 3, 6)]
        use = tuple(np.array([0, int(random.integers(1, 9))]) for _ in range(9))
        linear = LinearConstraint(tuple(range(9)), use, int(random.integers(5, 20)), "shared")
        problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(9)), tuple(functions), tuple(pairs), (linear,))
        value, assignment = eliminate(problem, random.permutation(9).tolist())
        check(problem, value, assignment, brute_force(problem))


@pytest.mark.parametrize("bounds", ["auto", *SOURCES])
@pytest.mark.parametrize("seed", range(2))
def test_more_variables_than_a_lookup_takes(seed, bounds, monkeypatch):
    monkeypatch.undo()
    random = np.random.default_rng(seed)
    count = 22
    use = np.array([[0, int(random.integers(1, 9))] for _ in range(count)])
    cost = random.integers(1, 50, size=count)
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(count)),
        tuple(Function.from_array((v,), [int(cost[v]), 0]) for v in range(count)),
        tuple(Constraint((v, v + 1), [[1, 1]]) for v in range(0, count - 1, 3)),
        (LinearConstraint(tuple(range(count)), tuple(use), int(random.integers(20, 60))),),
    )
    best = {0: 0}  # of what is used, the least cost: pair by pair, as the constraints have it
    for first in range(0, count, 3):
        group = [v for v in range(first, first + 3) if v < count]
        choices = [taken for taken in itertools.product((0, 1), repeat=len(group)) if taken[:2] != (1, 1)]
        grown: dict[int, int] = {}
        for used, spent in best.items():
            for taken in choices:
                after = used + sum(int(use[v, x]) for v, x in zip(group, taken, strict=True))
                cheap = spent + sum(int(cost[v]) * (1 - x) for v, x in zip(group, taken, strict=True))
                if after <= problem.linear_constraints[0].capacity:
                    grown[after] = min(grown.get(after, cheap), cheap)
        best = grown
    expected = min(best.values())
    result = oocbe.solve(problem, bounds=bounds, order_seconds=0, bound_seconds=0.05, incumbent_seconds=0.02)
    assert (result.status, result.value, result.linear_constraints) == ("optimal", expected, "enforced")
    assert problem.evaluate(result.assignment) == expected


def test_coefficients_of_any_size_and_sign():
    """Their common divisor and their least values say nothing; differences beyond 64 bits are exact."""
    unit = 2**60
    use = tuple(np.array([-2 * unit + 5 * v, unit + 5 * v]) for v in range(4))
    capacity = 2 * 3 * unit + sum(int(own.min()) for own in use) + 17
    linear = LinearConstraint(tuple(range(4)), use, capacity)
    functions = tuple(Function.from_array((v,), [10 + v, 0]) for v in range(4))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(4)), functions, linear_constraints=(linear,))
    consumption = consumption_of(problem, carried_in_rows(problem))
    assert (consumption.limits, consumption.units) == ((2,), (3 * unit,))
    value, assignment = eliminate(problem, [2, 0, 3, 1])
    assert (value, assignment) == (21, (0, 0, 1, 1))


def wide(capacity: int, count: int = 30) -> Problem:
    """Every variable may take about its share of the capacity, with nothing in common between the coefficients."""
    use = tuple(np.array([0, capacity // count + v**2 + 1]) for v in range(count))
    linear = LinearConstraint(tuple(range(count)), use, capacity, "budget")
    functions = tuple(Function.from_array((v,), [5 + v, 0]) for v in range(count))
    return Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), functions, linear_constraints=(linear,))


def test_a_capacity_that_keys_have_no_room_for_is_left_out_and_named():
    problem = wide(1 << 62)
    assert [c.name for c in left_out(problem)] == ["budget"]
    result = oocbe.solve(problem, order_seconds=0, bounds="none")
    assert (result.status, result.linear_constraints) == ("limit", "relaxed")
    assert (result.value, result.bound) == (None, 0)
    assert any("budget" in note and "62 bits" in note for note in result.notes)
    with pytest.raises(UnsupportedError, match="budget"):
        oocbe.solve(problem, semiring="counting")


def test_searches_go_on_where_elimination_had_to_leave_a_constraint_out(monkeypatch):
    """Elimination ended the whole solve, with a gap, once its optimum violated the constraint that it left out."""
    monkeypatch.setitem(subsolver.TERMS, "depth", subsolver.Terms(after=1e6))  # after elimination
    monkeypatch.setitem(subsolver.TERMS, "neighbourhoods", subsolver.Terms(after=1e7))
    rng, count, capacity = np.random.default_rng(1), 30, 1 << 26
    linear = []
    for _ in range(4):
        use = tuple(np.array([0, capacity // count + int(rng.integers(capacity // count))]) for _ in range(count))
        linear.append(LinearConstraint(tuple(range(count)), use, capacity))
    functions = [Function.from_array((v,), [int(rng.integers(5, 30)), 0]) for v in range(count)]
    functions += [Function.from_array((v, v + 1), rng.integers(0, 9, (2, 2))) for v in range(count - 1)]
    variables = tuple(Variable(f"x{v}", 2) for v in range(count))
    result = oocbe.solve(
        Problem(variables, tuple(functions), linear_constraints=tuple(linear)), order_seconds=0, incumbent_seconds=0
    )
    assert [one.name for one in result.solvers if one.name in ("depth", "bounds")] == ["depth", "bounds"]
    assert (result.status, result.value, result.linear_constraints) == ("optimal", 219, "enforced")


def test_a_limit_after_elimination_left_a_constraint_out_is_named_beside_it():
    """Searches that go on may reach the limit: it had been replaced by the constraint that was left out."""
    problem = wide(1 << 62)
    known = SharedBounds(problem, oocbe.SolveOptions().gap, lambda *_: None)
    known.raise_lower(0, "elimination without the linear constraints")
    for stopped, count in ("the time limit of 5 s was reached", 2), ("", 1):
        statistics = Statistics(stopped=stopped, spoiled=True)
        result = result_of_bounds(problem, oocbe.SolveOptions(), known, statistics, "cpu")
        assert (result.status, result.linear_constraints, len(result.notes)) == ("limit", "relaxed", count)
        assert stopped in result.notes[0] and "the optimum without a constraint violates it" in result.notes[-1]


def test_as_many_constraints_as_there_is_room_for_are_carried():
    problem = wide(1 << 20)
    small = wide(1 << 8).linear_constraints
    two = replace(problem, linear_constraints=(*problem.linear_constraints * 2, *small))
    assert carried_in_rows(two) == (0, 1, 2)  # 22 + 22 + 10 bits
    three = replace(problem, linear_constraints=(*problem.linear_constraints * 3, *small))
    assert carried_in_rows(three) == (0, 3)
    assert [c.capacity for c in left_out(three)] == [1 << 20] * 2
    large = replace(
        problem, linear_constraints=(*wide(1 << 50).linear_constraints * 2, *wide(1 << 60).linear_constraints)
    )
    assert carried_in_rows(large) == (0,)


def test_rows_that_are_not_cut_have_no_limit_of_pieces():
    """A capacity over many variables is carried in rows, more of them than a piece may have."""
    variables = tuple(Variable(f"x{v}", 2) for v in range(30))
    functions = tuple(Function.from_array((v,), [v + 1, 0]) for v in range(30))
    capacity = LinearConstraint(tuple(range(30)), tuple([0, v % 3 + 1] for v in range(30)), 10)
    problem = Problem(variables, functions, linear_constraints=(capacity,), name="bag")
    options = {"bounds": "none", "order_seconds": 0, "backend": "cpu"}
    whole = oocbe.solve(problem, **options)
    assert oocbe.solve(problem, piece_rows=2, **options).value == whole.value


def test_ends_units_and_limits_of_the_widest_integers():
    least, most = -(2**63), 2**63 - 1
    wide = LinearConstraint((0, 1), ([least, most], [6, 0]), 5)
    assert (wide.least, wide.greatest) == (least, most + 6)
    assert consumption_module._unit(wide) == math.gcd(most - least, 6)
    even = LinearConstraint((0, 1, 2), ([-4, 8, 2], [3, 3], [0, 6]), 20)
    assert consumption_module._unit(even) == 6
    assert consumption_module._limit(even, 6) == (20 + 4 - 3) // 6
    assert LinearConstraint((), (), 3).ends == ([], [])


def test_rows_with_many_values_are_judged_without_a_list_of_them(monkeypatch):
    """Whether the keys have room is asked again and again; lists of a million values would take a second each time."""

    def listed(linear):
        raise AssertionError("listed")

    rng = np.random.default_rng(0)
    rows = tuple(LinearConstraint((v,), (rng.integers(0, 10**6, 50000),), 3 * 10**5) for v in range(9))
    problem = Problem(tuple(Variable(f"x{v}", 50000) for v in range(9)), linear_constraints=rows)
    monkeypatch.setattr(consumption_module._Resource, "of", listed)
    assert consumption_module.carried(problem, range(9)) == (0,)


@pytest.mark.parametrize("semiring", [COUNTING, SUM_PRODUCT])
@pytest.mark.parametrize("components", [62, 70, 80])
def test_counts_beyond_64_bits_are_refused_where_components_share_a_capacity(semiring, components):
    """Each value alone fits; the sum over all shares of the capacity among the messages may not."""
    variables = tuple(Variable(f"x{v}", 2) for v in range(components))
    ones = tuple(Function.from_array((v,), [1, 1]) for v in range(components))
    linear = LinearConstraint(tuple(range(components)), (np.array([0, 1]),) * components, components - 1)
    problem = Problem(variables, ones, linear_constraints=(linear,), semiring=semiring)
    if components == 62:
        assert oocbe.solve(problem, order_seconds=0).value == 2**components - 1
        return
    with pytest.raises(ValueRangeError, match="use the task count"):
        oocbe.solve(problem, order_seconds=0)


def test_sums_over_consumptions_may_exceed_64_bits():
    """The last message has a row for each consumption; each fits, and their sum is a Python integer."""
    variables, own = (Variable("a", 4), Variable("b", 4)), (np.arange(4), 4 * np.arange(4))
    functions = (Function.from_array((0,), [2**60] * 4), Function.from_array((1,), [1] * 4))
    linear = LinearConstraint((0, 1), own, 14)
    problem = Problem(variables, functions, linear_constraints=(linear,), semiring=SUM_PRODUCT)
    assert oocbe.solve(problem, order_seconds=0).value == 15 * 2**60
