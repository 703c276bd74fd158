"""Operators on packed tables: packed results with the rows of the operators on tables in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.errors import ModelError
from oocbe.model.semiring import MAX_SUM, SEMIRINGS
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.effort import examples


def random_table(scope: dict[str, int], rows: int, seed: int, semiring, dtype: str) -> Table:
    rng = np.random.default_rng(seed)
    tuples = np.unique(rng.integers(0, list(scope.values()), (rows, len(scope))), axis=0)
    return Table.from_rows(scope, tuples, rng.integers(0, 50, len(tuples)).astype(dtype), semiring)


def same(found, expected: Table) -> None:
    assert isinstance(found, PackedTable)
    found = found.to_table()
    assert (found.layout, found.semiring, found.is_sorted, found.values.dtype) == (
        expected.layout,
        expected.semiring,
        expected.is_sorted,
        expected.values.dtype,
    )
    assert np.array_equal(found.keys, expected.keys)
    assert np.allclose(found.values, expected.values, rtol=1e-5)


@settings(max_examples=examples(160), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(sorted(SEMIRINGS)),
    st.sampled_from(["int32", "int64", "float64"]),
    st.integers(0, 200),
    st.sampled_from([1, 30, 1 << 20]),
    st.sampled_from([None, 25]),
    st.integers(0, 99),
)
def test_results_are_packed_and_the_same(semiring, dtype, rows, chunk_rows, piece_rows, seed):
    if SEMIRINGS[semiring].needs_floats:
        dtype = "float64"
    make = [
        random_table(scope, rows, seed + i, SEMIRINGS[semiring], dtype)
        for i, scope in enumerate(({"e": 3, "a": 4, "k": 5}, {"e": 3, "b": 6, "k": 5}))
    ]
    first, second = (PackedTable.pack(table, chunk_rows=chunk_rows) for table in make)
    same(join_sum(first, second, piece_rows=piece_rows), join_sum(*make))
    same(join_maximise(first, second, "e", piece_rows=piece_rows), join_maximise(*make, "e"))
    same(maximise(first, "e", piece_rows=piece_rows), maximise(make[0], "e"))


def test_packed_beside_plain_and_on_disk(tmp_path):
    first = random_table({"e": 3, "a": 40, "k": 50}, 3000, 1, MAX_SUM, "int32")
    second = random_table({"e": 3, "b": 60, "k": 50}, 3000, 2, MAX_SUM, "int32")
    packed1, packed2 = PackedTable.pack(first), PackedTable.pack(second, chunk_rows=700)
    expected = join_maximise(first, second, "e")
    beside = join_maximise(packed1, second, "e")
    assert isinstance(beside, Table)
    assert np.array_equal(beside.keys, expected.keys)
    stored = join_maximise(packed1, packed2, "e", output=tmp_path / "r", memory="3MiB")
    assert isinstance(stored, StoredTable)
    same(PackedTable.read(stored), expected)


def test_a_variable_in_no_scope_is_refused():
    table = PackedTable.pack(random_table({"e": 3, "k": 5}, 10, 1, MAX_SUM, "int32"))
    with pytest.raises(ModelError, match="z"):
        maximise(table, "z")
    with pytest.raises(ModelError, match="z"):
        join_maximise(table, table, "z")
