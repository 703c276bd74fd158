"""Complete messages in pieces through the disk: bit for bit those in memory, whatever the pieces and the memory."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.elimination.buckets import messages
from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine import decision
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.preparation import prepare as preparation
from oocbe.elimination.preparation.prepare import prepare
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM, SUM_PRODUCT
from oocbe.model.settings.option_values import COMPLETE
from oocbe.tables.stored import StoredCompleteTable
from tests.helpers.effort import examples
from tests.helpers.memory_disk import memory_folder
from tests.helpers.small_problems import (
    ALL_SEMIRINGS,
    brute_force,
    check,
    forms_by_coin,
    make_problem,
    structures,
    without_bound,
)


@pytest.fixture(autouse=True)
def all_to_disk(tune):
    tune(few_rows=3, held_share=0.0)


def run(problem, order, engine, tables=COMPLETE, memory=1 << 30, **of_store):
    """Value, assignment, every message as rows, and how many are on disk as complete tables."""
    prepared = prepare(problem, problem.semiring, order)
    with memory_folder() as folder:
        before = tempfile.tempdir
        tempfile.tempdir = str(folder)
        try:
            with MessageStore(memory, **of_store) as store:
                outcome = Forward(prepared, False, store, engine=engine, tables=tables).run()
                received = [m for b in outcome.buckets for m in b.messages]
                on_disk = sum(m.is_complete and not m.is_in_memory for m in received)
                found = [m.table() for m in received]
                wanted = outcome.value is not None and problem.semiring.selects
                assignment = backward_pass(prepared, outcome.buckets) if wanted else None
                value = outcome.value
                if value is not None and outcome.exponent:
                    value = np.ldexp(value, outcome.exponent)
            assert list(Path(folder).iterdir()) == []
        finally:
            tempfile.tempdir = before
    return value, assignment, found, on_disk


def same(found, expected) -> None:
    assert len(found) == len(expected)
    for table, other in zip(found, expected, strict=True):
        assert table.layout == other.layout
        assert np.array_equal(table.keys, other.keys)
        assert table.values.dtype == other.values.dtype
        assert table.values.tobytes() == other.values.tobytes()


@settings(max_examples=examples(25))
@given(structures((MIN_SUM,)), st.integers(1, 40), st.sampled_from([1, 2]), st.integers(1, 9), st.booleans())
def test_pieces_give_the_messages_of_the_run_in_memory(structure, piece_rows, streams, chunk_rows, integral):
    """Sums of small integers are exact in floats, too, so those are equal to the last bit as well."""
    problem = without_bound(make_problem({**structure, "integral": True}))
    if not integral:
        problem = replace(
            problem, functions=tuple(replace(f, values=f.values.astype(np.float64)) for f in problem.functions)
        )
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    engine = BucketEngine("cpu", piece_rows=piece_rows, streams=streams)
    value, assignment, found, _ = run(problem, order, engine, chunk_rows=chunk_rows)
    expected = run(problem, order, BucketEngine("cpu"))
    assert (value, assignment) == expected[:2]
    same(found, expected[2])


@pytest.mark.parametrize("semiring", ALL_SEMIRINGS, ids=str)
@settings(max_examples=examples(12))
@given(data=st.data(), tables=st.sampled_from(["complete", "mixed", "auto"]), piece_rows=st.integers(1, 9))
def test_against_brute_force(semiring, data, tables, piece_rows):
    """With a coin for each bucket, messages of either form meet, on disk and in memory."""
    structure = data.draw(structures((semiring,)))
    problem = without_bound(make_problem(structure))
    random = np.random.default_rng(structure["seed"])
    order = random.permutation(len(problem.variables)).tolist()
    with forms_by_coin(structure["seed"]) if tables == "mixed" else nullcontext():
        engine = BucketEngine("cpu", piece_rows=piece_rows, streams=2)
        form = "auto" if tables == "mixed" else tables
        value, assignment, *_ = run(problem, order, engine, form, chunk_rows=4)
    if value is None and semiring.counts:
        value = 0
    check(problem, value, assignment, brute_force(problem))


@settings(max_examples=examples(12))
@given(structures((MIN_SUM, SUM_PRODUCT)), st.integers(1, 9), st.sampled_from(["complete", "auto"]))
def test_a_problems_own_tables_are_written_out(structure, piece_rows, tables):
    """With a tiny limit most factors are tables of rows, which complete buckets need as cells."""
    structure = {**structure, "parts": [part for part in structure["parts"] if part[0] != "linear"]}
    problem = without_bound(make_problem(structure))
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "LOOKUP_BITS", 0)
        engine = BucketEngine("cpu", piece_rows=piece_rows, streams=2)
        value, assignment, *_ = run(problem, order, engine, tables, memory=1 << 20, chunk_rows=4)
    check(problem, value, assignment, brute_force(problem))


def grid(size: int, domain: int, semiring=MIN_SUM, seed=0) -> Problem:
    random = np.random.default_rng(seed)
    pairs = [(r * size + c, r * size + c + 1) for r in range(size) for c in range(size - 1)]
    pairs += [(r * size + c, (r + 1) * size + c) for r in range(size - 1) for c in range(size)]
    tables = [random.integers(1, 50, (domain, domain)) for _ in pairs]
    values = tables if semiring is MIN_SUM else [t / 50 for t in tables]
    functions = tuple(Function.from_array(pair, t) for pair, t in zip(pairs, values, strict=True))
    return Problem(tuple(Variable(f"x{v}", domain) for v in range(size * size)), functions, semiring=semiring)


@pytest.mark.parametrize(("memory", "semiring"), [(1 << 13, MIN_SUM), (1 << 15, SUM_PRODUCT)], ids=str)
def test_memory_alone_cuts(semiring, memory):
    problem = grid(5, 4, semiring)
    order = list(range(25))
    value, assignment, found, on_disk = run(problem, order, BucketEngine("cpu"), memory=memory)
    expected = run(problem, order, BucketEngine("cpu"))
    assert on_disk > 4
    assert expected[3] == 0
    assert assignment == expected[1]
    if semiring is MIN_SUM:
        assert value == expected[0]
        same(found, expected[2])
        return
    assert value == pytest.approx(expected[0])
    for table, other in zip(found, expected[2], strict=True):
        assert np.array_equal(table.keys, other.keys)
        assert np.allclose(table.values, other.values, rtol=1e-12)


def test_a_bucket_of_rows_reads_complete_messages_from_disk(monkeypatch):
    """Every other message is complete: each bucket of rows lists what the one before wrote as cells."""
    problem = grid(3, 3)
    order, turns = list(range(9)), []
    expected = run(problem, order, BucketEngine("cpu"), tables="incomplete")

    def in_turn(*numbers):
        turns.append(len(turns) % 2 == 0)
        return turns[-1]

    monkeypatch.setattr(decision, "is_cheaper_complete", in_turn)
    listed = []
    row_pieces = messages.row_pieces

    def told(table, *arguments):
        if isinstance(table, StoredCompleteTable):
            listed.append(table)
        return row_pieces(table, *arguments)

    monkeypatch.setattr(messages, "row_pieces", told)
    engine = BucketEngine("cpu", piece_rows=7, streams=2)
    value, assignment, found, _ = run(problem, order, engine, "auto", chunk_rows=5)
    assert len(listed) > 2
    assert value == expected[0]
    assert problem.evaluate(assignment) == value
    same(found, expected[2])


def test_solve_with_little_memory(tmp_path):
    problem = grid(4, 5)
    result = oocbe.solve(problem, order="linear", tables="complete", bounds="none", piece_rows=100, workdir=tmp_path)
    assert result.value == oocbe.solve(problem, order="linear", tables="incomplete").value
    assert problem.evaluate(result.assignment) == result.value
