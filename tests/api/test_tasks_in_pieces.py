"""Tasks whose messages go through the disk in pieces: the answers of the run in memory, to the last bit."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.api.tasks import tables
from oocbe.api.tasks.tables import RowWeights
from oocbe.api.tasks.verbs import run_task
from oocbe.errors import CorruptDataError, DiskError
from oocbe.execution.sources import ChunkCache, InMemorySource, StoredRows
from oocbe.kernels.cpu.pairs.sort import find_rows
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.effort import examples
from tests.helpers.small_problems import clique

DOWNWARDS = ("count-optimal", "marginals", "min-marginals")
TASKS = ("count", "count-optimal", "kbest", "logz", "marginals", "min-marginals")


def answer(task, tables, **options):
    result = run_task(task, clique(5, 3, largest=9), order="min-degree", order_seconds=0, tables=tables, **options)
    marginals = np.concatenate(result.marginals).tolist() if result.marginals else []
    return {
        "value": result.value,
        "optimum": result.optimum,
        "assignments": result.assignments,
        "marginals": marginals,
    }


PIECES = [(7, "incomplete"), (20, "auto")], [(20, "incomplete"), (7, "auto")]
"""Rows a piece and form of tables, in turns: every two of task, rows and form meet."""


@pytest.mark.parametrize(
    ("task", "piece_rows", "tables"), [(task, *how) for i, task in enumerate(TASKS) for how in PIECES[i % 2]]
)
def test_tasks_in_pieces(task, tables, piece_rows, monkeypatch, tune):
    monkeypatch.setattr("oocbe.api.tasks.tables.BLOCK_ROWS", 16)
    whole = answer(task, tables)
    tune(message_bytes=1 << 8)
    made = []
    monkeypatch.setattr(
        "oocbe.api.tasks.tables.RowWeights", lambda *arguments: made.append(RowWeights(*arguments)) or made[-1]
    )
    pieces = answer(task, tables, piece_rows=piece_rows, streams=2, chunk_rows=30)
    if task == "marginals" or (tables == "auto" and task == "logz"):
        # Where there is no room for a tree, or for a complete table, rows are summed in another order.
        assert pieces["value"] == pytest.approx(whole["value"], rel=1e-12)
        assert pieces["marginals"] == pytest.approx(whole["marginals"], rel=1e-12)
    else:
        assert pieces == whole
    assert task not in DOWNWARDS or not all(weights.is_held for weights in made)


@pytest.mark.parametrize(
    ("task", "memory"), [(task, (64, 200, 1000)[(i + more) % 3]) for i, task in enumerate(TASKS) for more in (0, 1)]
)
def test_messages_are_not_forgotten(task, memory, tune):
    """Where memory is short a solve forgets messages in it that were joined; tasks go back over all of their rows."""
    functions = tuple(Function.from_array((v, v + 1), np.arange(4).reshape(2, 2) * (v + 1)) for v in range(11))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(12)), functions, name="chain")
    options = {"order": "linear", "order_seconds": 0, "tables": "complete", "backend": "cpu"}
    whole = run_task(task, problem, **options)
    tune(message_bytes=memory)
    found = run_task(task, problem, **options)
    assert found.assignments == whole.assignments
    assert found.value == (pytest.approx(whole.value, rel=1e-12) if task == "marginals" else whole.value)
    if task == "marginals":  # where there is no room for a tree, messages are gone back over
        np.testing.assert_allclose(found.marginals, whole.marginals, rtol=1e-12)
    else:
        assert str(found.marginals) == str(whole.marginals)


def test_the_disk_that_weights_take_is_limited_and_given_back(tmp_path):
    budget = DiskBudget(tmp_path, 2 * 8 * tables.BLOCK_ROWS)
    weights = RowWeights(5 * tables.BLOCK_ROWS, 0.0, np.dtype(np.float64), 0, budget)
    rows = np.arange(5, dtype=np.int64) * tables.BLOCK_ROWS
    weights.add(np.add, rows[:3], np.ones(3))
    assert budget.used == budget.limit
    with pytest.raises(DiskError, match="would pass the disk limit"):
        weights.add(np.add, rows, np.ones(5))
    weights.close()
    assert budget.used == 0
    assert list(tmp_path.iterdir()) == []


def test_a_weight_that_changes_on_disk_is_seen(tmp_path):
    weights = RowWeights(2 * tables.BLOCK_ROWS, 0.0, np.dtype(np.float64), 0, DiskBudget(tmp_path))
    weights.add(np.add, np.array([0, tables.BLOCK_ROWS]), np.ones(2))
    os.pwrite(weights._file._handle, b"\x01", 77)
    with pytest.raises(CorruptDataError, match="rows from 0 on"):
        list(weights.blocks())


def random_table(seed, words):
    random = np.random.default_rng(seed)
    names = {f"x{v}": 1 << 20 if words > 1 else 4 for v in range(4)}
    tuples = np.unique(random.integers(0, 4, (random.integers(1, 200), 4)), axis=0)
    return Table.from_rows(names, tuples, random.integers(0, 99, len(tuples)), MIN_SUM)


@settings(max_examples=examples(48))
@given(st.integers(0, 1000), st.sampled_from([1, 2]), st.sampled_from([1, 3, 64]))
def test_rows_on_disk_are_looked_up_like_those_in_memory(tmp_path_factory, seed, words, chunk_rows):
    table = random_table(seed, words)
    stored = StoredTable.save(tmp_path_factory.mktemp("rows") / "table", table, chunk_rows=chunk_rows)
    held, read = InMemorySource(table), StoredRows(stored, ChunkCache(200))
    random = np.random.default_rng(seed + 1)
    keys = table.layout.pack(random.integers(0, 4, (50, 4)))
    expected = np.empty(50, dtype=np.int64)
    find_rows(table.keys, keys, expected)
    for source in (held, read):
        places, values = source.look_up(keys)
        assert np.array_equal(places, expected)
        assert np.array_equal(values, table.values[expected[expected >= 0]])
        rows = np.unique(random.integers(0, table.rows, 20))
        assert np.array_equal(source.keys_at(rows), table.keys[:, rows])
        assert [source.key(row) for row in rows.tolist()] == [held.key(row) for row in rows.tolist()]
        low, high = sorted(random.integers(0, table.rows + 1, 2).tolist())
        part = source.read(low, high)
        assert np.array_equal(part.keys, table.keys[:, low:high])
        for number in (0, held.key(table.rows - 1) + 1, *(held.key(row) for row in rows.tolist())):
            assert source.place(number, low, high) == held.place(number, low, high)


@pytest.mark.parametrize("most_bytes", [0, 300, 1 << 20])
def test_weights_in_a_file_are_those_in_memory(most_bytes, monkeypatch, tmp_path):
    monkeypatch.setattr("oocbe.api.tasks.tables.BLOCK_ROWS", 10)
    random = np.random.default_rng(0)
    weights = RowWeights(95, 0.0, np.dtype(np.float64), most_bytes, DiskBudget(tmp_path))
    assert weights.is_held == (most_bytes > 1000)
    expected = np.zeros(95)
    for _ in range(20):
        rows, values = random.integers(0, 95, 30), random.random(30)
        rows = rows[rows // 10 != 4]
        np.add.at(expected, rows, values[: len(rows)])
        weights.add(np.add, rows, values[: len(rows)])
    blocks = dict(weights.blocks())
    assert sorted(blocks) == [start for start in range(0, 95, 10) if start != 40]
    for start, block in blocks.items():
        assert np.array_equal(block, expected[start : start + 10])


def test_weights_make_the_work_folder_where_no_message_has(tmp_path):
    weights = RowWeights(3, 0.0, np.dtype(np.float64), 0, DiskBudget(tmp_path / "new" / "folder"))
    weights.add(np.add, np.array([1, 1]), np.array([0.25, 0.5]))
    assert [(start, block.tolist()) for start, block in weights.blocks()] == [(0, [0.0, 0.75, 0.0])]
    weights.close()
