"""How a bucket is cut into blocks: also where its separator is one run; and what merged lookups may cost."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.elimination.engine import bucket_engine
from oocbe.elimination.engine.bucket_engine import TooManyRowsError, join_and_eliminate
from oocbe.elimination.engine.factors import FactorPool, PoolBuilder
from oocbe.elimination.engine.join_program import BucketScope, ProgramBuilder
from oocbe.model.semiring import MIN_SUM
from oocbe.model.settings.tuning import tuning
from oocbe.tables.layout import Layout, Schema
from oocbe.tables.table import Table

ROWS = 1 << 14


@pytest.fixture(scope="module", autouse=True)
def backend():
    """These tests are about the CPU's threads; the folder's fixture would run them twice."""


def projection():
    """One table over (x, y, z), x to be eliminated: the separator is a single run."""
    sizes = (2, 64, 256)
    layout = Layout(("x", "y", "z"), sizes)
    keys = np.arange(2 * ROWS, dtype=np.uint64).reshape(1, -1)
    values = np.random.default_rng(0).integers(0, 1000, 2 * ROWS).astype(np.int64)
    table = Table(layout, keys, values, MIN_SUM, is_sorted=True)
    none = FactorPool((), np.zeros(1, dtype=np.uint8))
    builder = ProgramBuilder(sizes, none, FactorPool((), np.zeros(1, dtype=np.int64)), MIN_SUM)
    scope = BucketScope(0, 2, (1, 2), Layout(("y", "z"), sizes[1:]))
    return builder.build(scope, [((0, 1, 2), layout)], [], [], table.rows), scope.layout, table


def test_a_single_run_is_shared_among_threads(monkeypatch):
    program, layout, table = projection()
    assert program.levels == 1
    blocks = []
    cut = bucket_engine._blocks
    monkeypatch.setattr(bucket_engine, "_blocks", lambda *arguments: blocks.extend(cut(*arguments)) or blocks)
    monkeypatch.setenv("OOCBE_THREADS", "4")
    message = join_and_eliminate(program, Schema(layout, np.dtype(np.int64), MIN_SUM), [table], 1 << 20)
    assert len(blocks) > 4
    assert np.array_equal(message.keys[0], np.arange(ROWS))
    assert np.array_equal(message.values, table.values.reshape(-1, 2).min(axis=1))


@pytest.mark.parametrize("limit", [0, 1, ROWS - 1])
def test_threads_keep_to_the_row_limit_together(monkeypatch, limit):
    program, layout, table = projection()
    monkeypatch.setenv("OOCBE_THREADS", "8")
    with pytest.raises(TooManyRowsError):
        join_and_eliminate(program, Schema(layout, np.dtype(np.int64), MIN_SUM), [table], limit)


def test_a_large_domain_does_not_blow_up_merged_lookups():
    """Three neighbours of 4 bits fit one lookup of 12 bits, but not with 4,096 values an entry."""
    sizes = (4096, 16, 16, 16)
    functions = PoolBuilder(sizes, (0, 1, 2, 3), np.int64, 0)
    for v in (1, 2, 3):
        functions.add((0, v), np.ones((4096, 16), dtype=np.int64))
    pool = functions.build()
    builder = ProgramBuilder(sizes, FactorPool((), np.zeros(1, dtype=np.uint8)), pool, MIN_SUM)
    scope = BucketScope(0, 4096, (1, 2, 3), Layout(("a", "b", "c"), sizes[1:]))
    program = builder.build(scope, [], [], pool.factors, 1 << 20)
    assert program.leaf.values.size <= 3 * 16 * 4096


@pytest.mark.parametrize("rows", [0, 3, 40])
def test_few_rows_that_branch_make_few_blocks(monkeypatch, tune, rows):
    """Each branch of an enumerated variable shares its row's range: branches are not blocks of their own."""
    sizes = (2, 40, 8, 8, 8, 8, 8)
    names = ("x", "a", "b", "c", "d", "e", "f")
    table_layout = Layout(("x", "a"), sizes[:2])
    keys = np.arange(rows, dtype=np.uint64).reshape(1, -1) << np.uint64(1)
    table = Table(table_layout, keys, np.zeros(rows, dtype=np.int64), MIN_SUM, is_sorted=True)
    tables = [table] if rows else []
    functions = PoolBuilder(sizes, tuple(range(7)), np.int64, 0)
    functions.add((0, 1), np.arange(80).reshape(2, 40))
    pool = functions.build()
    builder = ProgramBuilder(sizes, FactorPool((), np.zeros(1, dtype=np.uint8)), pool, MIN_SUM)
    separator = Layout(names[1:], sizes[1:])
    scope = BucketScope(0, 2, tuple(range(1, 7)), separator)
    program = builder.build(scope, [((0, 1), table_layout)] * len(tables), [], pool.factors, rows)
    blocks = []
    cut = bucket_engine._blocks
    monkeypatch.setattr(bucket_engine, "_blocks", lambda *arguments: blocks.extend(cut(*arguments)) or blocks)
    tune(serial_work=512)  # otherwise this is too little to share
    monkeypatch.setenv("OOCBE_THREADS", "4")
    message = join_and_eliminate(program, Schema(separator, np.dtype(np.int64), MIN_SUM), tables, 1 << 22)
    assert message.rows == 8**5 * (rows or 40)
    assert (np.diff(message.keys[0].astype(np.int64)) > 0).all()
    assert 4 < len(blocks) <= 4 * tuning().parts_a_worker * 4


def test_more_than_was_expected_is_shared_among_threads(monkeypatch, tune):
    """A walk that looked short was one thread's however long it took: nothing forbids anything here."""
    sizes = (2, 8, 8, 8, 8, 8)
    functions = PoolBuilder(sizes, tuple(range(6)), np.int64, 0)
    functions.add((0, 1), np.arange(16).reshape(2, 8))
    pool = functions.build()
    builder = ProgramBuilder(sizes, FactorPool((), np.zeros(1, dtype=np.uint8)), pool, MIN_SUM)
    separator = Layout(("a", "b", "c", "d", "e"), sizes[1:])
    program = builder.build(BucketScope(0, 2, tuple(range(1, 6)), separator), [], [], pool.factors, 0)
    assert program.expected_work(0) < tuning().serial_work
    given = (program, Schema(separator, np.dtype(np.int64), MIN_SUM), [])
    monkeypatch.setenv("OOCBE_THREADS", "1")
    alone = join_and_eliminate(*given, 1 << 22)
    assert alone.rows == 8**5
    blocks = []
    cut = bucket_engine._blocks
    monkeypatch.setattr(bucket_engine, "_blocks", lambda *arguments: blocks.extend(cut(*arguments)) or blocks)
    tune(many_rows=1000)
    monkeypatch.setenv("OOCBE_THREADS", "4")
    shared = join_and_eliminate(*given, 1 << 22)
    assert len(blocks) > 4
    assert np.array_equal(shared.keys, alone.keys)
    assert np.array_equal(shared.values, alone.values)
    for limit in (10, 1000, 1001, 8**5 - 1):
        with pytest.raises(TooManyRowsError):
            join_and_eliminate(*given, limit)
