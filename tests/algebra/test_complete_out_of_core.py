"""Operators and conversions out of core, of complete, incomplete and mixed tables, against the dictionary model."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe import (
    CompleteTable,
    ModelError,
    StoredCompleteTable,
    StoredTable,
    Table,
    join_maximise,
    join_sum,
    maximise,
    to_complete,
    to_rows,
)
from oocbe.algebra.complete_tables.complete_stream import CellRoom, CompleteCuts
from oocbe.model.semiring import MIN_SUM, SEMIRINGS
from tests.helpers.effort import examples
from tests.helpers.memory_disk import MEMORY_DISK
from tests.helpers.table_models import check, model_join, model_maximise, model_of, rows_of


class Folder:
    """Names for tables in a folder that is gone at the end."""

    def __init__(self) -> None:
        self._holder = tempfile.TemporaryDirectory(dir=MEMORY_DISK)
        self.path, self.made = Path(self._holder.name), 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        left = [p.name for p in self.path.iterdir() if not p.name.startswith("table-")]
        self._holder.cleanup()
        assert left == []

    def fresh(self) -> Path:
        self.made += 1
        return self.path / f"table-{self.made}"


def form(data, table: Table, folder: Folder):
    """The same table as rows or complete, its variables in any order, in memory or on disk in any chunks."""
    chunk = data.draw(st.integers(1, 12))
    if not data.draw(st.booleans()):
        return StoredTable.save(folder.fresh(), table, chunk_rows=chunk) if data.draw(st.booleans()) else table
    scope = data.draw(st.permutations(table.scope))
    narrow = table.dtype.kind == "i" and data.draw(st.booleans())
    made = CompleteTable.from_table(table, scope, np.int16 if narrow else None)
    return StoredCompleteTable.save(folder.fresh(), made, chunk_cells=chunk) if data.draw(st.booleans()) else made


def given_settings(data, folder: Folder) -> dict:
    rows, streams = data.draw(st.sampled_from([None, 1, 2, 5, 30])), data.draw(st.sampled_from([1, 2]))
    return {
        "output": folder.fresh(), "memory": "32MiB", "scratch": folder.path, "piece_rows": rows, "streams": streams
    }  # fmt: skip


def are_complete(*tables) -> bool:
    return all(isinstance(table, CompleteTable | StoredCompleteTable) for table in tables)


def checked(result, expected, scope, *tables) -> None:
    assert isinstance(result, StoredTable | StoredCompleteTable)
    assert not are_complete(*tables) or isinstance(result, StoredCompleteTable)
    check(result.to_table(), expected, scope)


@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
class TestAnyForms:
    @settings(max_examples=examples(24))
    @given(data=st.data())
    def test_join_sum(self, semiring, data):
        with Folder() as folder:
            t1, t2 = data.draw(rows_of(semiring)), data.draw(rows_of(semiring))
            f1, f2 = form(data, t1, folder), form(data, t2, folder)
            result = join_sum(f1, f2, **given_settings(data, folder))
            checked(result, model_join(model_of(t1), model_of(t2), semiring), {*t1.scope, *t2.scope}, f1, f2)

    @settings(max_examples=examples(24))
    @given(data=st.data())
    def test_maximise(self, semiring, data):
        with Folder() as folder:
            t = data.draw(rows_of(semiring).filter(lambda t: t.scope))
            gone = data.draw(st.lists(st.sampled_from(t.scope), unique=True))
            f = form(data, t, folder)
            result = maximise(f, gone, **given_settings(data, folder))
            checked(result, model_maximise(model_of(t), gone, semiring), {*t.scope} - {*gone}, f)

    @settings(max_examples=examples(24))
    @given(data=st.data())
    def test_join_maximise(self, semiring, data):
        with Folder() as folder:
            t1, t2 = data.draw(rows_of(semiring)), data.draw(rows_of(semiring))
            scope = sorted({*t1.scope, *t2.scope})
            gone = data.draw(st.lists(st.sampled_from(scope), unique=True)) if scope else []
            f1, f2 = form(data, t1, folder), form(data, t2, folder)
            result = join_maximise(f1, f2, gone, **given_settings(data, folder))
            expected = model_maximise(model_join(model_of(t1), model_of(t2), semiring), gone, semiring)
            checked(result, expected, {*scope} - {*gone}, f1, f2)

    @settings(max_examples=examples(24))
    @given(data=st.data())
    def test_conversions(self, semiring, data):
        with Folder() as folder:
            table = data.draw(rows_of(semiring))
            scope = tuple(data.draw(st.permutations(table.scope)))
            made = form(data, table, folder)
            written = to_complete(made, scope, **given_settings(data, folder))
            assert isinstance(written, StoredCompleteTable)
            in_memory = to_complete(made, scope)
            assert written.scope == in_memory.scope == scope
            assert written.rows == in_memory.rows == table.rows
            assert written.to_complete().to_dict() == in_memory.to_dict()
            back = tuple(data.draw(st.permutations(table.scope)))
            listed = to_rows(written, back, **given_settings(data, folder))
            expected = to_rows(written, back)
            assert isinstance(listed, StoredTable)
            assert listed.is_sorted
            assert listed.scope == expected.scope == back
            assert np.array_equal(listed.to_table().keys, expected.keys)
            assert listed.to_table().values.tobytes() == expected.values.tobytes()


def test_more_cells_than_a_piece_holds(memory_folder):
    """Half a megabyte of values through a third of that: transposed on the way, cut among what is eliminated, too."""
    random = np.random.default_rng(0)
    a = CompleteTable.from_array("xyz", random.integers(0, 1000, (40, 40, 40)), MIN_SUM)
    b = CompleteTable.from_array("zyw", random.integers(0, 1000, (40, 40, 20)), MIN_SUM)
    stored = [
        StoredCompleteTable.save(memory_folder / name, table, chunk_cells=500) for name, table in (("a", a), ("b", b))
    ]
    for gone in ("z", ["y"], ["z", "y"], ["x", "y", "z"], ["x", "y", "z", "w"]):
        name = memory_folder / f"joined {''.join(gone)}"
        found = join_maximise(*stored, gone, output=name, memory="1MiB", scratch=memory_folder)
        expected = join_maximise(a, b, gone)
        assert found.scope == expected.scope
        assert np.array_equal(found.to_complete().values, expected.values)
    turned = to_complete(stored[0], "zxy", output=memory_folder / "turned", memory="1MiB", scratch=memory_folder)
    assert np.array_equal(turned.to_complete().values, a.transposed("zxy").values)
    rows = to_rows(stored[0], "yzx", output=memory_folder / "rows", memory="1MiB", scratch=memory_folder)
    assert np.array_equal(rows.to_table().keys, a.to_table("yzx").keys)
    full = to_complete(rows, "xyz", output=memory_folder / "full", memory="1MiB", scratch=memory_folder)
    assert np.array_equal(full.to_complete().values, a.values)


@pytest.mark.parametrize("scopes", [("kmx", "kmy"), ("xkm", "mky"), ("xmk", "ykm")])
def test_a_small_result_of_large_tables_reads_each_a_few_times(memory_folder, monkeypatch, scopes):
    """The eliminated variables are cut: a result's piece after the other would read a table dozens of times."""
    random = np.random.default_rng(1)
    lengths = {"k": 40, "m": 50, "x": 60, "y": 70}
    tables = [
        CompleteTable.from_array(scope, random.integers(-9, 10, [lengths[v] for v in scope]), MIN_SUM)
        for scope in scopes
    ]
    stored = [
        StoredCompleteTable.save(memory_folder / scope, t, chunk_cells=500)
        for scope, t in zip(scopes, tables, strict=True)
    ]
    read, read_into = [], StoredCompleteTable.read_into

    def counted(table, start, out, alone=False):
        read.append(len(out))
        read_into(table, start, out, alone)

    monkeypatch.setattr(StoredCompleteTable, "read_into", counted)
    found = join_maximise(*stored, ["k", "m"], output=memory_folder / "out", memory="2MiB", scratch=memory_folder)
    assert sum(read) <= 5 * sum(t.cells for t in tables)
    expected = join_maximise(*tables, ["k", "m"])
    assert found.scope == expected.scope
    assert np.array_equal(found.to_complete().values, expected.values)


def test_a_bucket_of_many_small_axes_is_not_cut_into_thousands_of_pieces():
    """A step of a network of competitions: the cut that reads least has 8,192 pieces of 512 cells."""
    one = (0, 1, 2, 3, 22, 23, 24, 4, 5, 6, 25, 7, 26, 27, 8, 28, 9, 29)
    two = (10, 26, 11, 12, 13, 14, 24, 15, 28, 16, 17, 23, 18, 25, 19, 20, 21, 27, 22, 29)
    sizes = dict.fromkeys(range(30), 2)
    cuts = CompleteCuts(
        tuple(range(22)), tuple(range(22, 30)), ((one, 8), (two, 8)), sizes, 8, CellRoom(4 << 20), stored=(False, True)
    )
    assert cuts.least_bytes <= 4 << 20
    assert cuts.pieces * len(list(cuts.parts())) <= 1024


def test_what_cannot_be_is_refused_and_leaves_nothing(memory_folder):
    t = CompleteTable.from_array("ab", np.arange(6).reshape(2, 3), MIN_SUM)
    with pytest.raises(ModelError, match="not in scope"):
        maximise(t, "z", output=memory_folder / "out")
    with pytest.raises(ModelError, match="neither scope"):
        join_maximise(t, t, "z", output=memory_folder / "out")
    with pytest.raises(ModelError, match="semiring"):
        join_sum(t, CompleteTable.from_array("a", [1, 2]), output=memory_folder / "out")
    with pytest.raises(ModelError, match="not in scope"):
        to_complete(t, "az", output=memory_folder / "out")
    assert list(memory_folder.iterdir()) == []
