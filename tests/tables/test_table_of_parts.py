"""A table of parts reads like the table that it is, whatever the parts and their chunks; damage is told by place."""

from __future__ import annotations

import shutil
from itertools import pairwise

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.algebra.operators import join_sum, maximise
from oocbe.errors import CorruptDataError, DiskError, ModelError
from oocbe.execution.sources import ChunkCache, InMemorySource, StoredRows
from oocbe.model.row_numbers import key_number
from oocbe.model.semiring import MIN_SUM
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.manifest import MANIFEST_NAME, Manifest
from oocbe.tables.packed import PackedTable
from oocbe.tables.parts import PartsWriter
from oocbe.tables.stored import StoredTable, open_table
from oocbe.tables.table import Table
from tests.helpers.effort import examples
from tests.helpers.memory_disk import memory_folder
from tests.helpers.table_models import same_table

SCOPES = [{"a": 5, "b": 7, "c": 9}, {"a": 1 << 40, "b": 1 << 30, "c": 3}, {}]


def table_of(scope, rows, seed=0, dtype=np.int64):
    random = np.random.default_rng(seed)
    tuples = np.unique(random.integers(0, list(scope.values()) or [1], (rows, max(1, len(scope)))), axis=0)
    if not scope:
        tuples = np.zeros((min(1, rows), 0), dtype=int)
    table = Table.from_rows(scope, tuples, random.integers(-50, 50, len(tuples)).astype(dtype), MIN_SUM)
    order = np.lexsort(table.keys)
    return Table(table.layout, np.ascontiguousarray(table.keys[:, order]), table.values[order], MIN_SUM, is_sorted=True)


def rows_of(table, low, high):
    keys = np.ascontiguousarray(table.keys[:, low:high])
    return Table(table.layout, keys, table.values[low:high], table.semiring, is_sorted=True)


def in_parts(path, table, cuts, chunk_rows, budget=None):
    """The table on disk in parts that end at the cuts, listed in another order than that of their keys."""
    with PartsWriter(path, table.layout, table.dtype, table.semiring, budget=budget) as writer:
        ends = [0, *cuts, table.rows]
        ranges = [(low, high) for low, high in pairwise(ends) if high > low]
        for number, (low, high) in enumerate(reversed(ranges)):
            rows = chunk_rows[number % len(chunk_rows)]
            part = StoredTable.save(writer.part_path(), rows_of(table, low, high), chunk_rows=rows)
            writer.add(part.path)
    return StoredTable.open(path)


@settings(max_examples=examples(40))
@given(st.sampled_from(SCOPES), st.integers(0, 60), st.lists(st.integers(0, 60), max_size=4), st.integers(0, 9999))
def test_reads_like_the_table(scope, rows, cuts, seed):
    table = table_of(scope, rows, seed, np.float64 if seed % 2 else np.int64)
    random = np.random.default_rng(seed)
    cuts = sorted(min(cut, table.rows) for cut in cuts)
    with memory_folder() as folder:
        stored = in_parts(folder / "parts", table, cuts, random.integers(1, 9, 3).tolist())
        same_table(stored.to_table(), table)
        assert stored.is_sorted and stored.rows == table.rows
        assert sum(chunk.rows for chunk in stored.chunks()) == table.rows
        assert [key for c in range(stored.chunk_count) for key in stored.chunk_keys(c)] == [
            key_number(table.keys, row)
            for c in range(stored.chunk_count)
            for row in (stored.chunk_start(c), stored.chunk_start(c + 1) - 1)
        ]
        low, high = sorted(random.integers(0, table.rows + 1, 2).tolist())
        same_table(stored.read(low, high), rows_of(table, low, high))
        for row in range(table.rows):
            assert stored.find(table.keys[:, row]) == table.values[row]
            assert stored.chunk_start(stored.chunk_at(row)) <= row < stored.chunk_start(stored.chunk_at(row) + 1)
        same_table(PackedTable.read(stored).to_table(), table)
        same_table(PackedTable.on_disk(stored).to_table(), table)
        stored.verify()
        assert isinstance(open_table(folder / "parts"), StoredTable)


@settings(max_examples=examples(25))
@given(st.sampled_from(SCOPES[:2]), st.integers(1, 60), st.lists(st.integers(0, 60), max_size=4), st.integers(0, 9999))
def test_is_cut_and_looked_up_by_keys_like_rows_in_memory(scope, rows, cuts, seed):
    table = table_of(scope, rows, seed)
    random = np.random.default_rng(seed)
    with memory_folder() as folder:
        stored = in_parts(folder / "parts", table, sorted(min(cut, table.rows) for cut in cuts), [3, 5])
        found, held = StoredRows(stored, ChunkCache(1000)), InMemorySource(table)
        for row in range(table.rows):
            assert found.key(row) == held.key(row)
        for _ in range(20):
            low, high = sorted(random.integers(0, table.rows + 1, 2).tolist())
            number = max(0, held.key(int(random.integers(table.rows))) + int(random.integers(-1, 2)))
            assert found.place(number, low, high) == held.place(number, low, high)
        wanted = np.sort(random.integers(0, table.rows, 9))
        assert np.array_equal(found.keys_at(wanted), held.keys_at(wanted))
        keys = np.ascontiguousarray(
            table.keys[:, random.integers(0, table.rows, 9)] ^ random.integers(0, 2, 9).astype("u8")
        )
        for mine, theirs in zip(found.look_up(keys), held.look_up(keys), strict=True):
            assert np.array_equal(mine, theirs)
        for most in (1, 2, 4, 7, 100):
            ranges = list(found.ranges(most))
            assert [low for low, _ in ranges] == [0, *(high for _, high in ranges)][:-1]
            assert ranges[-1][1] == table.rows and all(0 < high - low <= most for low, high in ranges)


@pytest.mark.parametrize("piece_rows", [7, None])
def test_operators_out_of_core_take_it(tmp_path, piece_rows):
    one, two = table_of(SCOPES[0], 200, 1), table_of({"b": 7, "c": 9, "d": 6}, 200, 2)
    parts = in_parts(tmp_path / "one", one, [20, 21, 90], [4, 11]), in_parts(tmp_path / "two", two, [50], [16])
    out = {"memory": "32MiB", "piece_rows": piece_rows}
    same_table(join_sum(*parts, output=tmp_path / "joined", **out).to_table(), join_sum(one, two))
    same_table(maximise(parts[0], "a", output=tmp_path / "best", **out).to_table(), maximise(one, "a"))


def test_zarr_sees_the_parts_as_groups(tmp_path):
    table = table_of(SCOPES[0], 100)
    stored = in_parts(tmp_path / "parts", table, [30], [8])
    group = zarr.open_group(stored.path, mode="r")
    assert group.attrs["oocbe"]["rows"] == table.rows
    listed = [part.name for part in Manifest.read(stored.path).parts]
    assert np.array_equal(np.concatenate([group[f"{name}/values"][:] for name in listed]), table.values)


def test_what_is_not_listed_is_rubbish(tmp_path):
    table = table_of(SCOPES[0], 100)
    with PartsWriter(tmp_path / "parts", table.layout, table.dtype, MIN_SUM) as writer:
        lost, kept = writer.part_path(), writer.part_path()
        StoredTable.save(lost, rows_of(table, 0, 10))
        writer.add(StoredTable.save(kept, table).path)
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == ["manifest.json", kept.name, "zarr.json"]
    StoredTable.save(tmp_path / "parts" / lost.name, rows_of(table, 0, 10))  # by one that was late
    same_table(StoredTable.open(tmp_path / "parts").to_table(), table)


def test_parts_with_keys_of_one_range_are_refused(tmp_path):
    table = table_of(SCOPES[0], 100)
    with (
        pytest.raises(ModelError, match="have keys of one range"),
        PartsWriter(tmp_path / "parts", table.layout, table.dtype, MIN_SUM) as writer,
    ):
        for low, high in ((0, 20), (19, 40)):
            writer.add(StoredTable.save(writer.part_path(), rows_of(table, low, high)).path)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_another_table_is_refused(tmp_path):
    table = table_of(SCOPES[0], 50)
    for other in (table_of(SCOPES[1], 50), table_of(SCOPES[0], 50, dtype=np.float64)):
        with (
            pytest.raises(CorruptDataError, match="not a part of"),
            PartsWriter(tmp_path / "parts", table.layout, table.dtype, MIN_SUM) as writer,
        ):
            writer.add(StoredTable.save(writer.part_path(), other).path)
    assert list(tmp_path.iterdir()) == []


def test_the_budget_counts_parts(tmp_path):
    table = table_of(SCOPES[0], 100)
    budget = DiskBudget(tmp_path)
    stored = in_parts(tmp_path / "parts", table, [40], [8], budget)
    written = sum(p.stat().st_size for p in stored.path.rglob("*") if p.is_file())
    assert budget.used == written
    tight = DiskBudget(tmp_path, written // 2)
    with pytest.raises(DiskError, match="disk limit"):
        in_parts(tmp_path / "other", table, [40], [8], tight)
    assert tight.used == 0
    assert [p.name for p in tmp_path.iterdir()] == ["parts"]


def damaged(path, how):
    manifest = Manifest.read(path)
    names = [part.name for part in manifest.parts]
    if how == "part is missing":
        shutil.rmtree(path / names[0])
    elif how == "parts are swapped":
        (path / names[0]).rename(path / "third")
        (path / names[1]).rename(path / names[0])
        (path / "third").rename(path / names[1])
    elif how == "part is a link":
        (path / names[0]).rename(path.parent / "elsewhere")
        (path / names[0]).symlink_to(path.parent / "elsewhere")
    elif how == "chunk is missing":
        (path / names[1] / "values" / "c" / "0").unlink()
    elif how == "another table of its shape":
        table = StoredTable.open(path / names[0]).to_table()
        shutil.rmtree(path / names[0])
        StoredTable.save(
            path / names[0], Table(table.layout, table.keys, table.values + 1, MIN_SUM, True), chunk_rows=8
        )
    elif how == "part left out":
        manifest.parts.pop()
        (path / MANIFEST_NAME).write_bytes(manifest.render())
    elif how == "name leads elsewhere":
        manifest.parts[0] = manifest.parts[0]._replace(name="../elsewhere")
        (path / MANIFEST_NAME).write_bytes(manifest.render())
    elif how == "order":
        manifest.parts.reverse()
        (path / MANIFEST_NAME).write_bytes(manifest.render())


@pytest.mark.parametrize(
    "how",
    [
        "part is missing", "parts are swapped", "part is a link", "chunk is missing", "another table of its shape",
        "part left out", "name leads elsewhere", "order",
    ],
)  # fmt: skip
def test_damage_is_found_when_it_is_opened(tmp_path, how):
    path = in_parts(tmp_path / "parts", table_of(SCOPES[0], 100), [40], [8]).path
    damaged(path, how)
    with pytest.raises(CorruptDataError) as error:
        StoredTable.open(path)
    assert str(path) in str(error.value)


def test_a_damaged_chunk_of_a_part_is_named(tmp_path):
    stored = in_parts(tmp_path / "parts", table_of(SCOPES[0], 100), [40], [8])
    name = Manifest.read(stored.path).parts[1].name
    file = stored.path / name / "values" / "c" / "1"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    for act in (stored.to_table, stored.verify):
        with pytest.raises(CorruptDataError, match=f"chunk 1 of {name}/values is damaged"):
            act()


@pytest.mark.parametrize("is_sorted", [True, False])
def test_parts_in_any_order_of_keys_lie_as_they_are_listed(tmp_path, is_sorted):
    table = table_of(SCOPES[0], 200)
    if not is_sorted:
        order = np.random.default_rng(4).permutation(table.rows)
        table = Table(table.layout, np.ascontiguousarray(table.keys[:, order]), table.values[order], MIN_SUM)
    with PartsWriter(tmp_path / "parts", table.layout, table.dtype, MIN_SUM) as writer:
        for low, high in ((120, table.rows), (0, 50), (50, 120)):
            keys = np.ascontiguousarray(table.keys[:, low:high])
            part = Table(table.layout, keys, table.values[low:high], MIN_SUM)
            writer.add(StoredTable.save(writer.part_path(), part, chunk_rows=16).path, low)
    stored = StoredTable.open(tmp_path / "parts")
    assert stored.is_sorted == is_sorted
    assert np.array_equal(stored.to_table().keys, table.keys)
    assert np.array_equal(stored.to_table().values, table.values)
    key = np.ascontiguousarray(table.keys[:, 60])
    assert stored.find(key) == table.values[60]
    tables = maximise(stored, "a", output=tmp_path / "out"), maximise(table, "a")
    assert np.array_equal(tables[0].to_table().values, tables[1].values)
