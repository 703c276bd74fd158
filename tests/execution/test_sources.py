"""Rows are the same however they are read: from memory, packed, from disk, and found by their keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.execution.sources import ChunkCache, InMemorySource, SliceSource, StoredRows, source_of
from oocbe.model.row_numbers import key_number, stretches_of
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedKeys, PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.effort import examples


def sorted_table(seed: int, rows: int, wide: bool) -> Table:
    rng = np.random.default_rng(seed)
    layout = Layout(("a", "b", "c"), (7, 1 << (60 if wide else 9), 5))
    keys = layout.pack(np.stack([rng.integers(0, size, rows) for size in layout.sizes], axis=1))
    keys = np.unique(keys[::-1], axis=1)[::-1]
    return Table(layout, np.ascontiguousarray(keys), rng.integers(-9, 99, keys.shape[1]), is_sorted=True)


@pytest.mark.parametrize("wide", [False, True])
@settings(max_examples=examples(48))
@given(st.integers(0, 99), st.integers(1, 300), st.integers(1, 70))
def test_every_source_has_the_same_rows_in_the_same_places(tmp_path_factory, wide, seed, rows, chunk):
    table = sorted_table(seed, rows, wide)
    rng = np.random.default_rng(seed)
    stored = StoredTable.save(tmp_path_factory.mktemp("stored") / "table", table, chunk_rows=chunk)
    packed = PackedTable.pack(table, chunk_rows=chunk)
    starts = np.array(sorted({0, *rng.integers(0, table.rows, 3).tolist()}))
    whole = SliceSource(InMemorySource(table), starts, np.diff(np.append(starts, table.rows)))
    low, high = sorted(rng.integers(0, table.rows + 1, 2).tolist())
    for source in (*map(source_of, (table, stored, packed)), whole):
        assert (source.layout, source.dtype, source.rows, source.is_sorted) == (table.layout, "int64", table.rows, True)
        keys, values = np.empty((table.layout.words, high - low), np.uint64), np.empty(high - low, np.int64)
        source.read_into(low, keys, values)
        assert np.array_equal(keys, table.keys[:, low:high])
        assert np.array_equal(values, table.values[low:high])
        ranges = [row for first, last in source.ranges(chunk) for row in range(first, last)]
        assert ranges == list(range(table.rows))
    numbers = [key_number(table.keys, row) for row in range(table.rows)]
    wanted = [0, *(n + d for n in rng.choice(np.array(numbers, dtype=object), 9) for d in (0, 1)), 1 << 128]
    found = StoredRows(stored, ChunkCache(1 << 10))
    for keyed in (InMemorySource(table), found, StoredRows(stored), PackedKeys(packed)):
        assert [keyed.key(row) for row in range(table.rows)] == numbers
        for number in wanted:
            expected = next((row for row in range(low, high) if numbers[row] >= number), high)
            assert keyed.place(number, low, high) == expected
    for source in (InMemorySource(table), found):
        part = source.read(low, high)
        assert np.array_equal(part.keys, table.keys[:, low:high])
        assert np.array_equal(part.values, table.values[low:high])


def test_rows_in_memory_are_seen_where_they_are():
    """No copy is made to look at keys, or to read a range of rows of one key word."""
    table = sorted_table(1, 300, False)
    source = InMemorySource(table, 50)
    assert np.shares_memory(source.keys_of(2), table.keys)
    part = source.read(20, 90)
    assert np.shares_memory(part.keys, table.keys)
    assert np.shares_memory(part.values, table.values)
    packed = PackedTable.pack(table)
    assert source_of(packed) is packed


@pytest.mark.parametrize("lengths", [[4], [1, 3, 2], [0, 2, 0, 0, 3, 0], [0]])
@pytest.mark.parametrize("kind", [list, np.array])
def test_rows_are_found_in_the_stretches_that_they_lie_in(lengths, kind):
    starts = np.cumsum([0, *lengths])
    placed = [(stretch, row) for stretch, length in enumerate(lengths) for row in range(length)]
    for first in range(len(placed) + 1):
        for count in range(len(placed) + 1 - first):
            found = list(stretches_of(kind(starts.tolist()), first, count))
            assert all(rows.start < rows.stop for _, _, rows in found)
            rows = [(n, low + i) for n, low, rows in found for i in range(rows.stop - rows.start)]
            assert rows == placed[first : first + count]
            assert [i for _, _, rows in found for i in range(rows.start, rows.stop)] == list(range(count))
