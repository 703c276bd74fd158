"""Tables in memory as packed chunks: the same rows, whatever the chunks, and keys found by bisection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.errors import CorruptDataError, ModelError, UsageError
from oocbe.kernels.cpu.packing.bit_pack import rotation_in
from oocbe.model.row_numbers import key_number
from oocbe.model.semiring import MIN_SUM
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedKeys, PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.effort import examples
from tests.helpers.packed_writing import write_packed

SCOPES = [{"a": 5, "b": 300, "c": 70_000}, {"a": 1 << 40, "b": 1 << 30, "c": 9}, {"a": 1}, {}]


def random_table(scope: dict[str, int], rows: int, seed: int, dtype: str = "int32", is_sorted: bool = True) -> Table:
    rng = np.random.default_rng(seed)
    layout = Layout(tuple(scope), tuple(scope.values()))
    tuples = rng.integers(0, list(scope.values()), (rows, len(scope))) if scope else np.zeros((min(rows, 1), 0), int)
    keys = np.unique(layout.pack(tuples), axis=1) if len(tuples) else np.empty((layout.words, 0), np.uint64)
    keys = np.ascontiguousarray(keys[:, np.lexsort(keys)])
    if not is_sorted:
        keys = np.ascontiguousarray(keys[:, rng.permutation(keys.shape[1])])
    values = rng.integers(-1000, 1000, keys.shape[1]).astype(dtype)
    return Table(layout, keys, values, MIN_SUM, is_sorted)


def assert_same(found: Table, expected: Table) -> None:
    assert (found.layout, found.semiring, found.is_sorted) == (expected.layout, expected.semiring, expected.is_sorted)
    assert found.values.dtype == expected.values.dtype
    assert np.array_equal(found.keys, expected.keys)
    assert np.array_equal(found.values, expected.values)


@settings(max_examples=examples(120))
@given(
    st.sampled_from(SCOPES),
    st.integers(0, 3000),
    st.sampled_from([1, 7, 1024, 1500, 1 << 20]),
    st.sampled_from(["int32", "int64", "float32", "float64"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_rows_come_back(scope, rows, chunk_rows, dtype, is_sorted, seed):
    table = random_table(scope, min(rows, 40 * chunk_rows), seed, dtype, is_sorted)
    packed = PackedTable.pack(table, chunk_rows=chunk_rows)
    assert_same(packed.to_table(), table)
    assert packed.rows == table.rows
    if dtype.startswith("int") and table.rows:
        assert packed.extent == (table.values.min(), table.values.max())
    rng = np.random.default_rng(seed)
    start, stop = sorted(rng.integers(0, table.rows + 1, 2).tolist())
    keys, values = np.empty((table.layout.words, stop - start), np.uint64), np.empty(stop - start, dtype)
    packed.read_into(start, keys, values)
    assert np.array_equal(keys, table.keys[:, start:stop])
    assert np.array_equal(values, table.values[start:stop])


@settings(max_examples=examples(120))
@given(st.sampled_from(SCOPES[:2]), st.integers(1, 4000), st.sampled_from([1, 7, 1500, 1 << 20]), st.integers(0, 99))
def test_bisection_finds_where_the_key_is(scope, rows, chunk_rows, seed):
    table = random_table(scope, min(rows, 60 * chunk_rows), seed)
    packed = PackedTable.pack(table, chunk_rows=chunk_rows)
    keys = CountedKeys(packed)
    column = packed.columns[0]
    at_once = table.layout.words == 1 and not any(rotation_in(int(column.words[start])) for start in column.starts[:-1])
    numbers = [key_number(table.keys, row) for row in range(table.rows)]
    assert [keys.key(row) for row in range(table.rows)] == numbers
    keys.looks = 0
    rng = np.random.default_rng(seed)
    for _ in range(20):
        low, high = sorted(rng.integers(0, table.rows + 1, 2).tolist())
        wanted = max(0, numbers[rng.integers(0, table.rows)] + int(rng.integers(-1, 2)))
        wanted = wanted >> (shift := int(rng.integers(0, table.layout.bits + 1))) << shift
        assert keys.place(wanted, low, high) == next((row for row in range(low, high) if numbers[row] >= wanted), high)
    assert keys.place(1 << 64 * table.layout.words, 0, table.rows) == table.rows
    assert not (at_once and keys.looks)


class CountedKeys(PackedKeys):
    """Counts the keys that are looked at one at a time."""

    looks = 0

    def key(self, row: int) -> int:
        self.looks += 1
        return super().key(row)


@pytest.mark.parametrize("codec", ["packed", "zstd"])
def test_a_stored_table_is_read_as_it_is(codec, tmp_path):
    table = random_table(SCOPES[1], 5000, 3)
    with StoredTable.create(tmp_path / "t", table.layout, "int32", MIN_SUM, chunk_rows=999, codec=codec) as writer:
        writer.append(table.keys, table.values)
    stored = StoredTable.open(tmp_path / "t")
    packed = PackedTable.read(stored)
    assert_same(packed.to_table(), stored.to_table())
    assert packed.extent == (table.values.min(), table.values.max())
    assert packed.nbytes < table.nbytes


def test_a_table_on_disk_is_read_as_it_is_used(tmp_path):
    table = random_table(SCOPES[1], 5000, 3)
    packed = PackedTable.on_disk(StoredTable.save(tmp_path / "t", table, chunk_rows=999))
    assert_same(packed.to_table(), table)
    assert packed.extent == (table.values.min(), table.values.max())
    keys = PackedKeys(packed)
    rows = [0, 998, 999, 1000, 4000, 1500, table.rows - 1]
    assert [keys.key(row) for row in rows] == [key_number(table.keys, row) for row in rows]
    words = packed.columns[0].chunks(1, 3)
    assert len(words) == len(words.words()) == words.nbytes // 8
    assert PackedTable.on_disk(StoredTable.save(tmp_path / "columns", table, codec="zstd")) is None


def test_a_damaged_chunk_is_named(tmp_path):
    stored = StoredTable.save(tmp_path / "t", random_table(SCOPES[0], 5000, 4), chunk_rows=1000)
    victim = tmp_path / "t" / "values" / "c" / "2"
    data = bytearray(victim.read_bytes())
    data[-20] ^= 1
    victim.write_bytes(data)
    for use in (PackedTable.read, lambda table: PackedTable.on_disk(table).to_table()):
        with pytest.raises(CorruptDataError, match="chunk 2"):
            use(stored)


def test_a_damaged_chunk_is_named_while_a_table_is_cut(tmp_path):
    stored = StoredTable.save(tmp_path / "t", table := random_table(SCOPES[0], 5000, 4), chunk_rows=1000)
    victim = tmp_path / "t" / "key_0" / "c" / "2"
    data = bytearray(victim.read_bytes())
    data[40] ^= 1
    victim.write_bytes(data)
    keys = PackedKeys(PackedTable.on_disk(stored))
    wanted = key_number(table.keys, 2500)
    with pytest.raises(CorruptDataError, match="chunk 2 of key_0"):
        keys.place(wanted, 0, table.rows)


@pytest.mark.parametrize("rows", [5000, 3000, 700])
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_packed_chunks_are_written_as_they_are(rows, dtype, tmp_path):
    """The same table, file by file, as from rows."""
    table = random_table(SCOPES[1], rows, 3, dtype)
    expected = StoredTable.save(tmp_path / "rows", table, chunk_rows=1000)
    packed = PackedTable.pack(table, chunk_rows=1000)
    with StoredTable.create(tmp_path / "chunks", table.layout, dtype, MIN_SUM, chunk_rows=1000) as writer:
        write_packed(packed, table, writer)
    found = StoredTable.open(tmp_path / "chunks")
    assert_same(found.to_table(), table)
    assert (found.extent, found.chunk_rows, found.is_sorted) == (expected.extent, expected.chunk_rows, True)
    for path in (tmp_path / "rows").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "chunks" / path.relative_to(tmp_path / "rows")).read_bytes()


def test_chunks_out_of_place_are_refused(tmp_path):
    layout = Layout(("a",), (1000,))
    with StoredTable.create(tmp_path / "t", layout, "int32", MIN_SUM, chunk_rows=10) as writer:
        writer.begin_packed(10, (0, 9), (1, 5))
        with pytest.raises(ModelError, match="twice"):
            writer.begin_packed(10, (9, 20), (1, 5))
        with pytest.raises(ModelError, match="no chunk"):
            writer.begin_packed(11, (10, 20), (1, 5))
        writer.begin_packed(4, (10, 20), (1, 5))
        with pytest.raises(ModelError, match="no chunk"):
            writer.begin_packed(10, (21, 40), (1, 5))
        ten = PackedTable.pack(Table.from_rows({"a": 1000}, [[i] for i in range(10)], [1] * 10), chunk_rows=10)
        for chunk in range(2):
            for column in range(2):
                writer.write_packed(chunk, column, ten.columns[column].chunks(0, 1))


def test_packed_chunks_are_refused_by_a_writer_of_another_codec(tmp_path):
    """Otherwise the table is published, and fails when it is opened."""
    with (
        pytest.raises(UsageError, match="packed chunks need codec 'packed', not 'zstd'"),
        StoredTable.create(tmp_path / "t", Layout(("a",), (1000,)), "int32", MIN_SUM, codec="zstd") as writer,
    ):
        writer.begin_packed(10, (0, 9), (1, 5))
    assert not list(tmp_path.iterdir())
