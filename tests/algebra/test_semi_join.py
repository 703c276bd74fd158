"""Semi-joins of tables in memory and stored against sets of tuples, and which chunks are read for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.algebra import filters
from oocbe.errors import ModelError, UsageError
from oocbe.kernels.cpu.pairs.sort import ASCENDING, ascent
from oocbe.model.semiring import MIN_SUM
from oocbe.tables.columns import RADIX_ROWS
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.effort import examples


def random_table(random: np.random.Generator, sizes: dict[str, int], most: int) -> Table:
    rows = int(random.integers(0, most + 1))
    columns = [random.integers(0, size, size=rows) for size in sizes.values()]
    tuples = np.unique(np.column_stack(columns), axis=0) if sizes else np.zeros((min(rows, 1), 0), dtype=np.int64)
    return Table.from_rows(sizes, tuples, random.integers(0, 100, size=len(tuples)), MIN_SUM)


def expected(table: Table, other: Table) -> dict[tuple[int, ...], int | float]:
    shared = [name for name in table.layout.scope if name in other.layout]
    here, there = ([t.layout.place(name) for name in shared] for t in (table, other))
    seen = {tuple(row[place] for place in there) for row in other.to_dict()}
    return {row: v for row, v in table.to_dict().items() if tuple(row[place] for place in here) in seen}


@settings(max_examples=examples(160), deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_it_keeps_what_the_other_table_has(tmp_path_factory, seed, is_wide):
    random = np.random.default_rng(seed)
    largest = 1 << 40 if is_wide else 4  # keys of several words, with few different values in them
    sizes = {name: int(random.integers(1, 5)) if random.random() < 0.5 else largest for name in "abcdef"}
    names = random.permutation(list(sizes)).tolist()
    one, two = (
        random_table(random, {name: min(sizes[name], 5) for name in names[first : first + 3]}, 60) for first in (0, 1)
    )

    def widened(table: Table) -> Table:
        tuples, values = table.to_rows()
        return Table.from_rows({name: sizes[name] for name in table.scope}, tuples % 4, values, MIN_SUM)

    try:
        one, two = widened(one), widened(two)
    except ModelError:
        return  # values that met in one row
    wanted = expected(one, two)
    assert oocbe.semi_join(one, two).to_dict() == wanted
    folder = tmp_path_factory.mktemp("tables")
    stored = StoredTable.save(folder / "one", one, chunk_rows=3)
    other = StoredTable.save(folder / "two", two, chunk_rows=5)
    for found in (oocbe.semi_join(stored, two), oocbe.semi_join(one, other), oocbe.semi_join(stored, other)):
        assert found.to_dict() == wanted
        assert list(found.to_dict()) == list(wanted)
    written = oocbe.semi_join(stored, other, output=folder / "kept")
    assert written.to_table().to_dict() == wanted
    assert written.semiring == one.semiring and written.dtype == one.dtype


@pytest.mark.parametrize(("scope", "value", "chunks"), [("b", 7, 1), ("ab", 7, 1), ("a", 3, 10)])
def test_chunks_are_skipped_by_their_keys(tmp_path, monkeypatch, scope, value, chunks):
    """Ten chunks of ten rows each, b the slowest variable: of one value of b one chunk is read, of a all are."""
    grid = np.array([(a, b) for b in range(10) for a in range(10)])
    stored = StoredTable.save(
        tmp_path / "grid", Table.from_rows({"a": 10, "b": 10}, grid, np.arange(100), MIN_SUM), chunk_rows=10
    )
    other = Table.from_rows(dict.fromkeys(scope, 10), [[value] * len(scope)], [0], MIN_SUM)
    read = []
    before = StoredTable.read

    def counted(self, start, stop, alone=False):
        read.append(start)
        return before(self, start, stop, alone)

    monkeypatch.setattr(StoredTable, "read", counted)
    found = oocbe.semi_join(stored, other)
    assert len(read) == chunks
    assert found.rows == (1 if scope == "ab" else 10)


def test_without_shared_variables_all_stay_or_none():
    table = Table.from_rows({"a": 2}, [[0], [1]], [3, 4])
    assert oocbe.semi_join(table, Table.from_rows({"b": 2}, [[1]], [0])).to_dict() == table.to_dict()
    assert oocbe.semi_join(table, Table.from_rows({"b": 2}, np.zeros((0, 1), int), [])).rows == 0


def test_what_does_not_fit_is_refused(tmp_path):
    table = Table.from_rows({"a": 2}, [[0], [1]], [3, 4])
    with pytest.raises(ModelError, match="different domain sizes"):
        oocbe.semi_join(table, Table.from_rows({"a": 3}, [[1]], [0]))
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError):
        oocbe.semi_join(table, table, output=tmp_path / "there")


def test_complete_and_packed_tables_are_taken_by_their_rows(tmp_path):
    one = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3], MIN_SUM)
    two = Table.from_rows({"y": 2, "z": 2}, [[1, 0], [1, 1]], [10, 20], MIN_SUM)
    complete = [oocbe.to_complete(table) for table in (one, two)]
    stored = [oocbe.to_complete(table, output=tmp_path / str(i)) for i, table in enumerate((one, two))]
    packed = [PackedTable.pack(table) for table in (one, two)]
    for first, second in (complete, stored, packed, (complete[0], two), (one, stored[1])):
        assert oocbe.semi_join(first, second).to_dict() == {(1, 1): 3}


def test_each_row_of_many_chunks_is_merged_few_times(tmp_path, monkeypatch):
    rows = np.arange(2_000)[:, None]
    table = Table.from_rows({"a": 2_000}, rows, rows[:, 0], MIN_SUM)
    stored = StoredTable.save(tmp_path / "many", table, chunk_rows=10)
    merged, original = [], np.concatenate

    def concatenate(arrays, *more, **named):
        found = original(arrays, *more, **named)
        merged.append(found.size)
        return found

    monkeypatch.setattr(np, "concatenate", concatenate)
    assert oocbe.semi_join(Table.from_rows({"a": 2_000}, [[7]], [1], MIN_SUM), stored).rows == 1
    assert sum(merged) < 10 * table.rows  # each chunk by itself: 100 times


@pytest.mark.parametrize("size", [1 << 20, 1 << 40])  # of two variables: keys of one word, and of two
def test_look_ups_of_many_rows_are_in_order(monkeypatch, size):
    """Of many keys in no order, each look-up among many would leave the caches: they are sorted first."""
    random, looked = np.random.default_rng(5), []
    tuples = np.unique(random.integers(0, size, size=(2 * RADIX_ROWS, 2)), axis=0)
    layout = Layout(("a", "b"), (size, size))
    values = np.arange(len(tuples))
    shuffled, kept = random.permutation(len(tuples)), random.random(len(tuples)) < 0.7
    table = Table(layout, layout.pack(tuples[shuffled]), values[shuffled], MIN_SUM, is_sorted=False)
    other = Table(layout, layout.pack(tuples[kept]), values[kept], MIN_SUM, is_sorted=False)
    before = filters.find_rows

    def counted(keys, wanted, found):
        looked.append(wanted)
        before(keys, wanted, found)

    monkeypatch.setattr(filters, "find_rows", counted)
    found = oocbe.semi_join(table, other)
    assert found.values.tolist() == shuffled[kept[shuffled]].tolist()
    assert [ascent(keys) for keys in looked] == [ASCENDING]
