"""Tables in memory as packed chunks: the same rows, whatever the chunks, and keys found by bisection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.errors import CorruptDataError
from oocbe.semiring import MIN_SUM
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedKeys, PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from oocbe.tables.writer import key_number

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


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SCOPES[:2]), st.integers(1, 4000), st.sampled_from([1, 7, 1500, 1 << 20]), st.integers(0, 99))
def test_bisection_narrows_to_where_the_key_is(scope, rows, chunk_rows, seed):
    table = random_table(scope, min(rows, 60 * chunk_rows), seed)
    keys = PackedKeys(PackedTable.pack(table, chunk_rows=chunk_rows))
    numbers = [key_number(table.keys, row) for row in range(table.rows)]
    assert [keys.number(row) for row in range(table.rows)] == numbers
    rng = np.random.default_rng(seed)
    for _ in range(20):
        low, high = sorted(rng.integers(0, table.rows + 1, 2).tolist())
        mask = -1 << int(rng.integers(0, table.layout.bits + 1))
        wanted = numbers[rng.integers(0, table.rows)] + int(rng.integers(-1, 2)) & mask
        expected = next((row for row in range(low, high) if numbers[row] & mask >= wanted), high)
        first, last = keys.narrowed(mask, wanted, low, high)
        assert low <= first <= expected <= last <= high


@pytest.mark.parametrize("codec", ["packed", "blosc"])
def test_a_stored_table_is_read_as_it_is(codec, tmp_path):
    table = random_table(SCOPES[1], 5000, 3)
    with StoredTable.create(tmp_path / "t", table.layout, "int32", MIN_SUM, chunk_rows=999, codec=codec) as writer:
        writer.append(table.keys, table.values)
    stored = StoredTable.open(tmp_path / "t")
    packed = PackedTable.read(stored)
    assert_same(packed.to_table(), stored.to_table())
    assert packed.extent == (table.values.min(), table.values.max())
    assert packed.nbytes < table.nbytes


def test_a_damaged_chunk_is_named(tmp_path):
    stored = StoredTable.save(tmp_path / "t", random_table(SCOPES[0], 5000, 4), chunk_rows=1000)
    victim = tmp_path / "t" / "values" / "c" / "2"
    data = bytearray(victim.read_bytes())
    data[-20] ^= 1
    victim.write_bytes(data)
    with pytest.raises(CorruptDataError, match="chunk 2"):
        PackedTable.read(stored)
