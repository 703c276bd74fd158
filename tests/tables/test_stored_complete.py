"""Complete tables on disk: what is read is what was written, from any cell on; damage of any kind is named."""

from __future__ import annotations

import errno
import json
import shutil

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe import (
    CompleteTable,
    CorruptDataError,
    ModelError,
    StoredCompleteTable,
    StoredTable,
    Table,
    UsageError,
    to_complete,
)
from oocbe.algebra.complete_tables.complete_stream import cells_touched, read_box
from oocbe.errors import DiskError, TimeLimitError
from oocbe.model.infeasible import infeasible_value
from oocbe.model.semiring import MIN_SUM, SEMIRINGS
from oocbe.runtime.deadline import Deadline
from oocbe.tables import disk
from oocbe.tables.manifest import MANIFEST_NAME, FileRecord, Manifest
from oocbe.tables.stored import open_table
from tests.helpers.effort import examples

FILES = ["manifest.json", "zarr.json", "values/zarr.json", *(f"values/c/{chunk}" for chunk in range(5))]


def example(semiring=MIN_SUM, dtype=np.int32, sizes=(3, 4, 5), seed=0) -> CompleteTable:
    random = np.random.default_rng(seed)
    values = random.integers(1, 50, sizes).astype(dtype)
    return CompleteTable.from_array("abc", values, semiring, random.random(sizes) < 0.8)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "table"
    StoredCompleteTable.save(path, example(), chunk_cells=13)
    return path


@pytest.fixture
def path(original, tmp_path):
    return shutil.copytree(original, tmp_path / "table")


@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.float32, np.float64])
def test_written_and_read(tmp_path, semiring, dtype):
    table = example(semiring, dtype)
    stored = StoredCompleteTable.save(tmp_path / "table", table, chunk_cells=7)
    assert (stored.scope, stored.cells, stored.rows, stored.chunk_count) == (table.scope, 60, table.rows, 9)
    assert stored.dtype == (np.int32 if dtype is np.int16 else dtype)
    assert stored.density == table.density
    assert stored.to_complete().to_dict() == table.to_dict()
    assert stored.to_table("cab").to_dict() == table.to_table("cab").to_dict()
    assert "60 values" in repr(stored)
    for assignment in np.ndindex(3, 4, 5):
        assert stored.value_at(assignment) == table.value_at(assignment)
        assert stored.value_at(dict(zip("abc", assignment, strict=True))) == table.value_at(assignment)
    feasible = table.values[table.feasible()]
    if np.dtype(dtype).kind == "i":
        assert stored.extent == (feasible.min(), feasible.max())
    stored.verify()
    assert isinstance(open_table(tmp_path / "table"), StoredCompleteTable)


@settings(max_examples=examples(240))
@given(st.lists(st.integers(1, 4), max_size=4).map(tuple), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_pieces_of_any_length_are_laid_end_to_end(tmp_path_factory, sizes, chunk_cells, seed):
    random = np.random.default_rng(seed)
    values = np.arange(int(np.prod(sizes, dtype=int)), dtype=np.int64)
    layout = CompleteTable.from_array([f"v{i}" for i in range(len(sizes))], values.reshape(sizes)).layout
    path = tmp_path_factory.mktemp("written") / "table"
    with StoredCompleteTable.create(path, layout, chunk_cells=chunk_cells) as writer:
        done = 0
        while done < len(values):
            many = int(random.integers(len(values) - done + 1))
            writer.append(values[done : done + many])
            done += many
    stored = StoredCompleteTable.open(path)
    assert np.concatenate(list(stored.pieces(int(random.integers(1, 30))))).tolist() == values.tolist()
    box = []
    for size in sizes:
        low = int(random.integers(size))
        box.append((low, int(random.integers(low, size)) + 1))
    expected = values.reshape(sizes[::-1])[tuple(slice(*b) for b in reversed(box))].ravel()
    for source in (stored, CompleteTable(layout, values)):
        assert read_box(source, sizes, tuple(box)).tolist() == expected.tolist()
    assert cells_touched(sizes, tuple(box), stored.chunk_cells) >= len(expected)


def test_long_runs_in_memory_are_gathered_alike():
    sizes = (2, 300, 3, 70)
    values = np.arange(int(np.prod(sizes)))
    dense = values.reshape(sizes[::-1])
    for box in (
        ((1, 2), (0, 300), (0, 3), (0, 70)),
        ((0, 2), (5, 299), (1, 3), (3, 60)),
        ((0, 2), (7, 9), (0, 3), (0, 70)),
    ):
        expected = dense[tuple(slice(*b) for b in reversed(box))].ravel()
        table = CompleteTable.from_array("abcd", dense.T)
        assert np.array_equal(read_box(table, sizes, box), expected)
        assert np.shares_memory(read_box(table, sizes, ((0, 2), (0, 300), (0, 3), (4, 5))), table.values)


def test_zarr_reads_the_values(original):
    array = zarr.open_group(original, mode="r")["values"]
    assert np.array_equal(array[:], example().values)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(path, name):
    (path / name).unlink()
    with pytest.raises(CorruptDataError, match=str(path)):
        StoredCompleteTable.open(path).to_complete()


@pytest.mark.parametrize("name", FILES)
def test_any_changed_bit_is_seen(path, name):
    data = bytearray((path / name).read_bytes())
    for place in range(0, len(data), max(1, len(data) // 5)):
        changed = data.copy()
        changed[place] ^= 4
        (path / name).write_bytes(changed)
        with pytest.raises(CorruptDataError, match=str(path)):
            StoredCompleteTable.open(path).to_complete()
    (path / name).write_bytes(data)
    assert StoredCompleteTable.open(path).to_complete().to_dict() == example().to_dict()


def test_swapped_chunks_are_seen(path):
    first, second = path / "values/c/0", path / "values/c/1"
    first.rename(path / "aside")
    second.rename(first)
    (path / "aside").rename(second)
    with pytest.raises(CorruptDataError):
        StoredCompleteTable.open(path).to_complete()


def test_forms_are_told_apart(original, tmp_path):
    with pytest.raises(UsageError, match=r"StoredCompleteTable\.open"):
        StoredTable.open(original)
    StoredTable.save(tmp_path / "rows", Table.from_rows({"a": 2}, [[1]], [3]))
    with pytest.raises(UsageError, match=r"StoredTable\.open"):
        StoredCompleteTable.open(tmp_path / "rows")


def test_what_is_not_whole_is_not_published(tmp_path):
    table = example()
    path = tmp_path / "table"
    with (
        pytest.raises(ModelError, match="10 of 60 cells"),
        StoredCompleteTable.create(path, table.layout, np.int32) as w,
    ):
        w.append(table.values[:10])
    with (
        pytest.raises(ModelError, match="go on with no"),
        StoredCompleteTable.create(path, table.layout, np.int32) as w,
    ):
        w.append(np.zeros(61, dtype=np.int32))
    with (
        pytest.raises(ModelError, match="go on with no"),
        StoredCompleteTable.create(path, table.layout, np.int32) as w,
    ):
        w.append(np.zeros(3))
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_a_feasible_cell(tmp_path):
    table = example(MIN_SUM)
    empty = CompleteTable(table.layout, np.full(60, infeasible_value(np.int32, 0, 0), np.int32), MIN_SUM)
    stored = StoredCompleteTable.save(tmp_path / "table", empty)
    assert (stored.rows, stored.extent, stored.to_table().rows) == (0, None, 0)


@pytest.mark.parametrize(
    "forged",
    [
        {"sizes": [1 << 46], "chunk_rows": 1},
        {"sizes": [1 << 62] * 200_000, "scope": [f"x{v}" for v in range(200_000)]},
        {"sizes": [1 << 20] * 3},
    ],
    ids=["files without end", "a product without end", "too many cells"],
)
def test_forged_sizes_are_refused_before_anything_of_their_size_is_made(path, forged):
    content = json.loads((path / "zarr.json").read_text())
    content["attributes"]["oocbe"] |= forged
    data = json.dumps(content).encode()
    (path / "zarr.json").write_bytes(data)
    manifest = Manifest.read(path)
    manifest.files["zarr.json"] = FileRecord.of(data)
    (path / MANIFEST_NAME).write_bytes(manifest.render())
    with pytest.raises(CorruptDataError):
        StoredCompleteTable.open(path)


def test_what_no_disk_can_hold_is_refused_before_anything_is_written(tmp_path):
    table = Table.from_rows({"a": 2, "b": 1 << 20, "c": 1 << 40}, [[1, 5, 7]], [3])
    with pytest.raises(DiskError, match=r"values takes .* or more, even if they are all alike.*[Kk]eep it as rows"):
        to_complete(table, output=tmp_path / "table", memory="32MiB", scratch=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_many_cells_are_written_in_parts_between_which_the_deadline_is_looked_at(tmp_path, monkeypatch, tune):
    table = example()
    tune(many_rows=20)
    looks = []
    monkeypatch.setattr("oocbe.tables.writer.check_deadline", lambda: looks.append(1))
    with StoredCompleteTable.create(tmp_path / "whole", table.layout, np.int32, chunk_cells=7) as writer:
        writer.append(table.values[:5])
        writer.append(table.values[5:])
    assert len(looks) == 1 + 4  # 55 cells by 14, which are whole chunks
    np.testing.assert_array_equal(StoredCompleteTable.open(tmp_path / "whole").to_complete().values, table.values)
    monkeypatch.undo()
    with (
        Deadline(0.0),
        pytest.raises(TimeLimitError),
        StoredCompleteTable.create(tmp_path / "late", table.layout, np.int32) as writer,
    ):
        writer.append(table.values)
    assert not (tmp_path / "late").exists()


def test_an_interruption_while_its_folder_is_made_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("oocbe.runtime.temporary_names.fcntl.flock", interrupted)
    table = example()
    with pytest.raises(KeyboardInterrupt), StoredCompleteTable.create(tmp_path / "table", table.layout, np.int32):
        raise AssertionError("the block has not begun")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_error_that_counts_cells(tmp_path):
    table = example()

    def full(step, path):
        if step == "write" and path.match("values/c/1"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with (
        disk.hooked(full),
        pytest.raises(DiskError, match=r"\(0 of 60 cells written\): the disk is full.* up to 240 B"),
    ):
        StoredCompleteTable.save(tmp_path / "table", table, chunk_cells=13)
