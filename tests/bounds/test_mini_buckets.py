"""Mini-bucket elimination against brute force: bounds on the right side, exact from the induced width on."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.bounds.mini_buckets.mini_buckets import FactorGroup, MiniBuckets, by_scope, shape_of
from oocbe.bounds.mini_buckets.mini_buckets_bound import Bounding
from oocbe.elimination.buckets import resources
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.decision import BucketConstraints, BucketSizes, MainMemory, decide
from oocbe.elimination.preparation.logarithms import in_logarithms
from oocbe.elimination.preparation.prepare import is_tabulated, prepare, scopes_of
from oocbe.errors import EXIT_LIMIT, TimeLimitError, UnsupportedError, UsageError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, MIN_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import Tuning
from oocbe.stress import grid_network, random_network
from tests.helpers.effort import examples, in_turns
from tests.helpers.small_problems import brute_force, forms_by_coin, make_problem, structures

OPTIONS = SolveOptions(order_seconds=0.0, backend="cpu", incumbent_seconds=0.05, memory=1 << 30)
SELECTING = (MIN_SUM, MAX_SUM, MAX_PRODUCT)
TOLERANCE = 1e-9


def no_better(problem, value, limit):
    """Whether a value is not better than a limit; floats may differ by rounding."""
    slack = 0 if problem.is_integral and problem.semiring is not MAX_PRODUCT else TOLERANCE * max(1, abs(limit))
    return value >= limit - slack if problem.sense == "min" else value <= limit + slack


def check(problem, z, partition, shifting, tables="auto"):
    """Bound and incumbent of one z against brute force, and what the entry says about itself.

    tables : form of the messages; ``mixed`` throws a coin for each.
    """
    expected = brute_force(problem)
    with forms_by_coin(z) if tables == "mixed" else nullcontext():
        options = replace(OPTIONS, tables="auto" if tables == "mixed" else tables)
        result = oocbe.bound(problem, z, options, partition=partition, cost_shifting=shifting)
    (entry,) = result.entries
    if entry.assignment is not None:
        assert problem.evaluate(entry.assignment) == entry.incumbent
        assert no_better(problem, entry.incumbent, expected)
    if expected is None:
        assert entry.incumbent is None
        assert entry.status in ("infeasible", "bounded")
        return
    assert entry.bound is not None
    # On this side there is no slack at all: what is off by rounding was taken off the bound.
    assert entry.bound <= expected if problem.sense == "min" else entry.bound >= expected
    relaxed = [c for c in problem.linear_constraints if c.can_bind and not is_tabulated(problem, c)]
    if z > result.width and not relaxed:
        assert entry.exact
        assert entry.split_buckets == 0
        assert math.isclose(entry.bound, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        assert entry.status == "optimal"
        assert math.isclose(entry.incumbent, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if entry.status == "optimal":
        assert math.isclose(entry.incumbent, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


@settings(max_examples=examples(100))
@given(structures(SELECTING), st.integers(1, 9), st.sampled_from(["scope", "content"]), st.booleans())
def test_bounds_and_incumbents_are_on_their_side_of_the_optimum(structure, z, partition, shifting):
    check(make_problem(structure), z, partition, shifting)


@settings(max_examples=examples(100))
@given(structures(SELECTING), st.integers(1, 9), st.sampled_from(["complete", "incomplete", "mixed"]))
def test_bounds_of_complete_and_of_incomplete_messages_and_of_both(structure, z, tables):
    check(make_problem(structure), z, "scope", False, tables)


@pytest.mark.parametrize(("partition", "shifting"), in_turns(("scope", "content"), (False, True)))
@pytest.mark.parametrize("seed", range(2))
def test_networks_with_hard_constraints(seed, partition, shifting):
    problem = random_network(9, 3, 0.6, tightness=0.25, seed=seed)
    for z in (1, 2, 3, 4, 9):
        check(problem, z, partition, shifting)


def test_the_bound_is_that_of_the_copied_problem():
    """Mini-buckets give each its own copy of the eliminated variable: compare with the problem so written."""
    generator = np.random.default_rng(4)
    tables = [generator.integers(0, 50, size=(4, 4)) for _ in range(3)]
    variables = tuple(Variable(n, 4) for n in "xabc")
    functions = tuple(Function.from_array((0, i + 1), t) for i, t in enumerate(tables))
    problem = Problem(variables, functions, name="star")
    prepared = prepare(problem, MIN_SUM, (0, 1, 2, 3))
    with MessageStore(1 << 20) as store:
        done = MiniBuckets(prepared, 2, store, BucketEngine("cpu")).run()
    assert done.bound == sum(int(t.min()) for t in tables)
    assert (done.split, done.mini_buckets) == (1, 6)


def test_integers_stay_integers_and_the_bound_is_one():
    problem = grid_network(5, 3, tightness=0.2, seed=3)
    for shifting in (False, True):
        result = oocbe.bound(problem, [2, 3, "auto"], OPTIONS, cost_shifting=shifting)
        assert all(isinstance(entry.bound, int) for entry in result.entries)
        assert result.status == "optimal"
        assert result.entries[-1].bound == oocbe.solve(problem, OPTIONS).value == result.best.incumbent


def test_partition_by_scope_takes_the_largest_first_and_no_room_for_the_covered():
    parts = [FactorGroup(0b0011), FactorGroup(0b0111), FactorGroup(0b11001), FactorGroup(0b0101)]
    made = by_scope(parts, 3)
    assert [m.members for m in made] == [0b0111, 0b11001]
    assert [m.members for m in by_scope(parts, 2)] == [0b0111, 0b11001]  # too large for z: by themselves
    assert [m.members for m in by_scope(parts, 5)] == [0b11111]


def test_the_shape_is_that_of_the_run():
    problem = random_network(10, 2, 0.5, tightness=0.0, seed=8)
    order = list(range(10))
    for z in (2, 3, 4, 10):
        prepared = prepare(problem, MIN_SUM, order)
        with MessageStore(1 << 24) as store:
            done = MiniBuckets(prepared, z, store, BucketEngine("cpu")).run()
        shape = shape_of(scopes_of(problem), order, z)
        assert shape.split == done.split
        assert max(m.bit_count() for m in shape.separators) == done.width
        assert sum(2 ** m.bit_count() for m in shape.separators) <= done.total_rows


def test_auto_takes_what_fits_and_steps_down_where_it_does_not():
    problem = random_network(17, 4, 0.7, tightness=0.0, seed=0)
    tight = replace(OPTIONS, memory=1 << 20)  # below what the process has already: the least budget counts
    result = oocbe.bound(problem, "auto", tight)
    (entry,) = result.entries
    assert 2 <= entry.z <= result.width
    assert entry.bound <= entry.incumbent
    roomy = oocbe.bound(problem, "auto", replace(OPTIONS, memory=1 << 36))
    assert roomy.entries[0].exact
    assert roomy.entries[0].z > entry.z


def test_auto_counts_as_many_copies_of_a_message_as_the_decision_about_a_bucket(tune):
    """Where what is predicted to fit has room, the largest message is made whole."""
    problem = random_network(17, 4, 0.7, tightness=0.0, seed=0)
    tune(row_copies=40)
    bounding = Bounding(problem, OPTIONS, "scope", False, None).prepare()
    shape = shape_of(scopes_of(problem), bounding.order, 4)
    room = int(bounding._predicted_bytes(shape))
    rows = 4 ** max(m.bit_count() for m in shape.separators)
    bucket = BucketSizes(rows, 4 * rows, 4, 12, rows, [])
    most = decide(bucket, MainMemory(room, room), None, BucketConstraints("incomplete")).most_rows
    assert rows <= most < 2 * rows


def test_memory_is_that_of_every_elimination(monkeypatch):
    """The process keeps its headroom, messages get their least share, and a limit that may not be kept is told."""
    problem = grid_network(3, 3)
    options = replace(OPTIONS, memory=1 << 33)
    for resident, left in ((1 << 30, (1 << 33) - Tuning().headroom - (1 << 30)), (1 << 33, 1 << 31)):
        monkeypatch.setattr(resources, "resident_memory", lambda resident=resident: resident)
        assert Bounding(problem, options, "scope", False, None).memory == left
    (note,) = oocbe.bound(problem, 3, options).notes
    assert note.startswith("the memory limit of 8.0 GiB may not be kept")


def test_dead_ends_are_taken_back():
    # A pass without mini-buckets of three sees no conflict: x = y, y = z and x != z leave no way on from any x.
    same = np.array([[0, 0], [1, 1], [2, 2]])
    size = Variable("x", 3), Variable("y", 3), Variable("z", 3)
    apart = Constraint((0, 2), same)
    chain = (Constraint((0, 1), same, allowed=True), Constraint((1, 2), same, allowed=True))
    nothing = Problem(size, constraints=(apart, *chain), name="no way")
    result = oocbe.bound(nothing, 2, OPTIONS)
    assert result.best is None
    assert oocbe.bound(nothing, 3, OPTIONS).status == "infeasible"
    free = Function.from_array((0, 2), np.arange(9).reshape(3, 3))
    some = Problem(size, (free,), (chain[0], Constraint((1, 2), same)), name="one way")
    best = oocbe.bound(some, 2, OPTIONS).best
    assert best.incumbent == some.evaluate(best.assignment) >= brute_force(some)


@pytest.mark.parametrize("semiring", ["min-sum", "max-product"])
def test_the_form_and_place_of_messages_do_not_matter(semiring, tmp_path):
    problem = random_network(12, 3, 0.5, tightness=0.1, seed=4)
    if semiring == "max-product":
        functions = tuple(Function(f.scope, f.tuples, np.exp(-f.values / 50)) for f in problem.functions)
        problem = replace(problem, functions=functions, semiring=MAX_PRODUCT, constant=0.5)
    for z in (3, 5, 12):
        rows, complete = (
            oocbe.bound(problem, z, OPTIONS, tables=form).entries[0] for form in ("incomplete", "complete")
        )
        assert rows.bound == pytest.approx(complete.bound, rel=1e-12)
        assert rows.incumbent == complete.incumbent
        assert rows.split_buckets == complete.split_buckets
    if semiring == "max-product":
        return
    order = oocbe.plan(problem, OPTIONS).order
    found = []
    for parent in (None, tmp_path):  # with a folder, every message is written to disk at once
        with MessageStore(1 << 24, parent) as store:
            done = MiniBuckets(prepare(problem, MIN_SUM, order), 4, store, BucketEngine("cpu")).run()
            found.append((done.bound, done.total_rows, [m.table().rows for b in done.buckets for m in b.messages]))
    assert found[0] == found[1]


def test_wrong_use_is_refused():
    problem = grid_network(2, 2)
    with pytest.raises(UsageError, match="partition"):
        oocbe.bound(problem, 3, OPTIONS, partition="colour")
    with pytest.raises(UsageError, match="z: 0"):
        oocbe.bound(problem, 0, OPTIONS)
    with pytest.raises(UsageError, match="z: 'many'"):
        oocbe.bound(problem, "many", OPTIONS)
    for name in ("ub", "piece_rows", "streams"):
        with pytest.raises(UsageError, match=f"^{name}: "):
            oocbe.bound(problem, 3, OPTIONS, **{name: 5})
    with pytest.raises(UnsupportedError, match="counting"):
        oocbe.bound(problem, 3, OPTIONS, semiring="counting")


def test_costs_are_shifted_in_complete_tables_alone(monkeypatch):
    """Shifts between incomplete tables lowered bounds as often as they raised them."""
    with pytest.raises(UsageError, match="leave 'incomplete' out"):
        oocbe.bound(grid_network(2, 2), 2, OPTIONS, cost_shifting=True, tables="incomplete")
    problem = random_network(10, 3, 0.6, tightness=0.0, seed=1)
    monkeypatch.setattr("oocbe.bounds.mini_buckets.mini_buckets_bound.fits", lambda *_: False)
    plain = oocbe.bound(problem, 3, OPTIONS, partition="content")
    found = oocbe.bound(problem, 3, OPTIONS, cost_shifting=True)
    assert found.entries[0].bound == plain.entries[0].bound
    assert any("z = 3: no costs were shifted" in note for note in found.notes)


def test_sums_near_2_to_63_are_bounded(tmp_path):
    order = tmp_path / "order"
    order.write_text("x y z\n")
    huge = Function.from_array((0, 1), np.full((2, 2), 2**60))
    other = Function.from_array((0, 2), np.full((2, 2), 2**60))
    problem = Problem(tuple(Variable(n, 2) for n in "xyz"), (huge, other), name="huge")
    assert oocbe.bound(problem, 2, OPTIONS, order=str(order), cost_shifting=True).best_bound.bound == 2**61


def test_logarithms_of_a_product():
    values = np.array([[0.5, 0.0], [0.25, 1.0]])
    listed = Function((0, 1), np.array([[0, 0], [1, 1]]), np.array([0.0, 4.0]), default=2.0)
    problem = Problem(
        (Variable("x", 2), Variable("y", 2)),
        (Function.from_array((0, 1), values, infeasible=0.0), listed),
        semiring=MAX_PRODUCT,
        constant=0.5,
        name="product",
    )
    logs = in_logarithms(problem)
    for assignment in np.ndindex(2, 2):
        value, cost = problem.evaluate(assignment), logs.evaluate(assignment)
        assert (cost is None) == (not value)
        assert cost is None or math.isclose(math.exp(-cost), value)
    with pytest.raises(UnsupportedError, match="negative"):
        in_logarithms(replace(problem, functions=(Function.from_array((0,), [-1.0, 1.0]),)))
    nothing = replace(problem, constant=0.0)
    assert in_logarithms(nothing).evaluate((1, 1)) is None


def test_a_deadline_that_has_passed_leaves_the_minima():
    problem = oocbe.read(Path(__file__).parents[2] / "examples" / "daily.spot")
    result = oocbe.bound(problem, options=replace(OPTIONS, time_limit=1e-9))
    minima = [min(f.values.min(), 0 if f.default is None else f.default) for f in problem.functions]
    assert [(entry.z, entry.bound) for entry in result.entries] == [(0, problem.constant + sum(minima))]
    assert result.exit_code == EXIT_LIMIT


@settings(max_examples=examples(60))
@given(structures(SELECTING), st.booleans())
def test_a_time_limit_before_the_first_message_leaves_the_minima(structure, shifting):
    problem = make_problem(structure)
    with patch.object(Bounding, "prepare", side_effect=TimeLimitError("the time limit of 1 s was reached")):
        result = oocbe.bound(problem, 3, OPTIONS, cost_shifting=shifting)
    (entry,) = result.entries
    expected = brute_force(problem)
    assert (entry.z, entry.assignment) == (0, None)
    assert any("minima" in note for note in result.notes)
    if entry.status == "infeasible":
        assert expected is None
    else:
        assert result.exit_code == EXIT_LIMIT
        assert expected is None or no_better(problem, expected, entry.bound)
