"""Messages as complete tables, as rows, and as a mixture of both: against brute force and against each other."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.elimination.buckets.forward import Forward, RowCapError
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.preparation import prepare as preparation
from oocbe.elimination.preparation.prepare import prepare
from oocbe.errors import UsageError, ValueRangeError
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import LOG_SUM_EXP, MIN_SUM, SUM_PRODUCT
from oocbe.model.settings.option_values import COMPLETE, INCOMPLETE
from oocbe.model.settings.tuning import Tuning
from tests.helpers.effort import examples
from tests.helpers.small_problems import (
    ALL_SEMIRINGS,
    brute_force,
    check,
    eliminate,
    forms_by_coin,
    make_problem,
    structures,
    without_bound,
)

TABLES = st.sampled_from(["complete", "mixed", "auto"])


def run(problem, order, tables, seed, **settings_of_run):
    """Value and assignment; ``mixed`` throws a coin for each bucket."""
    if tables != "mixed":
        return eliminate(problem, order, tables=tables, **settings_of_run)
    with forms_by_coin(seed):
        return eliminate(problem, order, tables="auto", **settings_of_run)


@pytest.mark.parametrize("semiring", ALL_SEMIRINGS, ids=str)
@settings(max_examples=examples(60))
@given(structure=structures(), tables=TABLES, dominance=st.booleans())
def test_against_brute_force(semiring, structure, tables, dominance):
    problem = without_bound(make_problem({**structure, "semiring": semiring}))
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    check(problem, *run(problem, order, tables, structure["seed"], dominance=dominance), brute_force(problem))


@pytest.mark.parametrize("bits", [0, 3])
@settings(max_examples=examples(60))
@given(structure=structures(), tables=TABLES)
def test_problems_own_tables(bits, structure, tables):
    """With a tiny limit most factors are tables without a filter."""
    structure = {**structure, "parts": [part for part in structure["parts"] if part[0] != "linear"]}
    problem = without_bound(make_problem(structure))
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "LOOKUP_BITS", bits)
        check(problem, *run(problem, order, tables, structure["seed"]), brute_force(problem))


@settings(max_examples=examples(60))
@given(structures((MIN_SUM,)))
def test_every_message_has_the_same_rows_in_either_form(structure):
    problem = without_bound(make_problem({**structure, "integral": True}))
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    prepared = prepare(problem, problem.semiring, order)
    found = []
    for tables in (INCOMPLETE, COMPLETE):
        with MessageStore(1 << 30) as store:
            outcome = Forward(prepared, False, store, tables=tables).run()
            found.append((outcome.value, [m.table() for b in outcome.buckets for m in b.messages]))
    (value, rows), (same, listed) = found
    assert value == same
    assert len(rows) == len(listed)
    for table, other in zip(rows, listed, strict=True):
        assert np.array_equal(table.keys, other.keys)
        assert np.array_equal(table.values, other.values)
        assert other.is_sorted


@settings(max_examples=examples(12))
@given(structures(), st.integers(1, 7), TABLES)
def test_through_stored_tables(structure, chunk_rows, tables):
    problem = without_bound(make_problem(structure))
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        found = run(problem, order, tables, structure["seed"], workdir=Path(folder), chunk_rows=chunk_rows)
        assert list(Path(folder).iterdir()) == []
    check(problem, *found, brute_force(problem))


@settings(max_examples=examples(40))
@given(structures(), st.sampled_from(["complete", "incomplete", "auto"]))
def test_solve(structure, tables):
    """The whole way: upper bounds, evidence, linear constraints, bounds where the form allows them."""
    problem = make_problem(structure)
    result = oocbe.solve(problem, order_seconds=0, tables=tables)
    plain = oocbe.solve(problem, order_seconds=0, tables="incomplete", bounds="none")
    assert (result.status, result.value) == (plain.status, pytest.approx(plain.value))
    if result.assignment is not None:
        assert problem.evaluate(result.assignment) == pytest.approx(result.value)


def grid(size=5, domain=3, seed=0, semiring=MIN_SUM) -> Problem:
    random = np.random.default_rng(seed)
    pairs = [(r * size + c, r * size + c + 1) for r in range(size) for c in range(size - 1)]
    pairs += [(r * size + c, (r + 1) * size + c) for r in range(size - 1) for c in range(size)]
    tables = [random.integers(0, 50, (domain, domain)) for _ in pairs]
    values = tables if semiring is MIN_SUM else [(t + 1) / 50 for t in tables]  # a factor of 0 forbids
    functions = tuple(Function.from_array(pair, t) for pair, t in zip(pairs, values, strict=True))
    return Problem(tuple(Variable(f"x{v}", domain) for v in range(size * size)), functions, semiring=semiring)


@pytest.mark.parametrize("semiring", [MIN_SUM, SUM_PRODUCT, LOG_SUM_EXP], ids=str)
def test_a_dense_problem_takes_complete_tables_by_itself(semiring):
    problem = grid(semiring=semiring)
    plan = oocbe.plan(problem, order_seconds=0)
    assert {b.form for b in plan.buckets} == {COMPLETE}
    assert all(b.density == pytest.approx(1) for b in plan.buckets)
    assert {b["form"] for b in plan.to_json()["buckets"]} == {COMPLETE}
    prepared = prepare(problem, problem.semiring, plan.order)
    with MessageStore(1 << 30) as store:
        outcome = Forward(prepared, False, store, tables="auto").run()
        assert all(m.is_complete for b in outcome.buckets for m in b.messages)
    incomplete = oocbe.solve(problem, order_seconds=0, tables="incomplete")
    assert oocbe.solve(problem, order_seconds=0).value == pytest.approx(incomplete.value)


def test_a_sparse_problem_keeps_its_rows():
    scope = (0, 1, 2, 3)
    tuples = [[i, i, i, i] for i in range(30)]
    problem = Problem(
        tuple(Variable(f"x{v}", 30) for v in range(5)),
        (Function(scope, tuples, range(30)), Function((1, 2, 3, 4), tuples, range(30))),
    )
    plan = oocbe.plan(problem, order="linear", order_seconds=0)
    prepared = prepare(problem, problem.semiring, plan.order)
    with MessageStore(1 << 30) as store:
        outcome = Forward(prepared, False, store, tables="auto").run()
        forms = {len(m.scope) > 1: m.is_complete for b in outcome.buckets for m in b.messages}
    assert forms == {True: False, False: True}


def test_a_race_gives_complete_messages_up_as_well():
    problem = grid(4, 4)
    order = list(range(16))
    prepared = prepare(problem, problem.semiring, order)
    with MessageStore(1 << 30) as store, pytest.raises(RowCapError):
        Forward(prepared, False, store, row_cap=2, tables="complete").run()
    largest = 4**4
    with MessageStore(1 << 30) as store:
        cap = -(-largest // Tuning().steps_a_row)
        assert Forward(prepared, False, store, row_cap=cap, tables="complete").run().largest_rows == largest


def test_memory_decides(monkeypatch):
    problem = grid(4, 3)
    order = list(range(16))
    prepared = prepare(problem, problem.semiring, order)
    expected = oocbe.solve(problem, tables="incomplete", bounds="none").value
    pieces = []
    for tables, memory in (("incomplete", 1 << 12), ("auto", 1 << 14), ("auto", 1 << 10), ("complete", 1 << 10)):
        with MessageStore(memory) as store:
            for name in ("stored", "publish_cells"):
                write = getattr(store, name)
                told = (tables, memory, name)
                monkeypatch.setattr(store, name, lambda *a, w=write, t=told: pieces.append(t) or w(*a))
            assert Forward(prepared, False, store, tables=tables).run().value == expected
    in_pieces = {("incomplete", 1 << 12, "stored")} | {(t, 1 << 10, "publish_cells") for t in ("auto", "complete")}
    assert set(pieces) == in_pieces  # which have no room in memory


def test_sums_without_room_for_what_is_infeasible():
    large = Function.from_array((0, 1), [[2**61, 0], [1, 2]])
    problem = Problem((Variable("a", 2), Variable("b", 2)), (large,))
    assert oocbe.plan(problem).dtype == "int64"
    assert oocbe.solve(problem).value == 0
    with pytest.raises(ValueRangeError, match="leave no room"):
        oocbe.solve(problem, tables="complete")


def test_complete_tables_know_no_bounds():
    with pytest.raises(UsageError, match="bounds none"):
        oocbe.solve(grid(2), tables="complete", bounds="lp")
    with pytest.raises(UsageError, match="auto, incomplete, complete"):
        oocbe.solve(grid(2), tables="dense")


def test_products_too_small_for_a_float_are_told_from_infeasible_ones():
    functions = tuple(Function.from_array((0, v), np.full((2, 2), 1e-300)) for v in range(1, 4))
    tiny = (*functions, Function.from_array((0,), [1e-300, 1e-300]))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(4)), tiny, semiring=SUM_PRODUCT)
    assert oocbe.solve(problem, tables="complete").status == "exact"
    zero = replace(problem, functions=(*functions, Function.from_array((0,), [0.0, 0.0])))
    assert oocbe.solve(zero, tables="complete").status == "infeasible"
