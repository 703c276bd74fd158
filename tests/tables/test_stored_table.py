"""What a stored table promises: the same rows back, in any chunk size, published as a whole or not at all."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.errors import CorruptDataError, ModelError, ResourceError, UsageError
from oocbe.kernels.cpu.pairs.sort import exceeds_domains
from oocbe.model.semiring import COUNTING, MIN_SUM, SEMIRINGS
from oocbe.model.settings.tuning import tuning
from oocbe.tables import disk, writer
from oocbe.tables.chunk_files import array_metadata
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import MANIFEST_NAME
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.effort import examples
from tests.helpers.packed_writing import write_packed

SCOPES = {
    0: {},
    1: {"a": 2},
    63: dict.fromkeys("abc", 1 << 21),
    64: dict.fromkeys("ab", 1 << 32),
    65: {"a": 1 << 32, "b": 1 << 32, "c": 2},
    128: dict.fromkeys("abcd", 1 << 32),
    200: {f"x{i}": 32 for i in range(40)},
}


def random_table(scope, rows, dtype=np.int64, semiring=MIN_SUM, seed=0) -> Table:
    rng = np.random.default_rng(seed)
    tuples = np.unique(rng.integers(0, list(scope.values()) or [1], (rows, max(1, len(scope)))), axis=0)
    if not scope:
        tuples = tuples[:0].reshape(1, 0)
    return Table.from_rows(scope, tuples, rng.integers(-50, 50, len(tuples)).astype(dtype), semiring)


def same(a: Table, b: Table) -> bool:
    return (
        a.layout == b.layout and a.semiring == b.semiring and a.is_sorted == b.is_sorted
        and a.values.dtype == b.values.dtype and np.array_equal(a.keys, b.keys) and np.array_equal(a.values, b.values)
    )  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table"


@pytest.mark.parametrize("chunk_rows", [1, 7, 1 << 20])
@pytest.mark.parametrize("bits", SCOPES)
def test_rows_come_back(path, bits, chunk_rows):
    table = random_table(SCOPES[bits], 30)
    stored = StoredTable.save(path, table, chunk_rows=chunk_rows)
    assert same(stored.to_table(), table)
    assert (stored.rows, stored.nbytes, stored.scope) == (table.rows, table.nbytes, table.scope)
    pieces = list(stored.chunks())
    assert all(piece.rows <= chunk_rows for piece in pieces)
    assert np.array_equal(np.concatenate([p.values for p in pieces]), table.values)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
def test_every_dtype_and_semiring(path, dtype, semiring):
    table = random_table({"a": 9, "b": 9}, 20, dtype, semiring)
    assert same(StoredTable.save(path, table, chunk_rows=7).to_table(), table)


def test_rows_appended_in_pieces_of_any_size(path):
    table = random_table(SCOPES[65], 100)
    with StoredTable.create(path, table.layout, table.values.dtype, table.semiring, chunk_rows=7) as writer:
        start = 0
        for size in [0, 1, 3, 3, 20, 2, 7, 14, 100]:
            keys, values = table.keys[:, start : start + size].copy(), table.values[start : start + size].copy()
            writer.append(keys, values)
            keys[:], values[:] = 0, 0  # the writer must not depend on the caller's buffers
            start += size
    assert same(StoredTable.open(path).to_table(), table)


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize(
    "pieces", [[[3, 1, 1]], [[3, 1], [1, 2]], [[3], [1], [2, 5, 5]], [[4, 4]], [[5, 4], [3, 2, 2]]]
)
def test_neighbours_of_equal_keys_are_refused_in_any_order(path, words, pieces):
    """Also once the rows are out of order."""
    sizes = (64,) if words == 1 else (1 << 40, 1 << 40)
    with (
        pytest.raises(ModelError, match="a key occurs twice"),
        StoredTable.create(path, Layout(("a", "b")[:words], sizes), np.int64) as writer,
    ):
        for piece in pieces:
            writer.append(np.array([piece] * words, dtype=np.uint64), np.arange(len(piece)))


def test_rows_out_of_order_may_come_in_any_pieces(path):
    with StoredTable.create(path, Layout(("a",), (64,)), np.int64) as writer:
        for piece in ([5, 7], [3], [4, 9], [8]):
            writer.append(np.array([piece], dtype=np.uint64), np.arange(len(piece)))
    assert StoredTable.open(path).to_table().keys[0].tolist() == [5, 7, 3, 4, 9, 8]
    assert not StoredTable.open(path).is_sorted


def test_rows_appended_one_by_one_are_not_counted_again_and_again(path):
    class Looked(list):
        looks = 0

        def __iter__(self):
            Looked.looks += len(self)
            return super().__iter__()

    with StoredTable.create(path, Layout(("a",), (1 << 20,)), np.int64) as writer:
        writer._pending = Looked()
        for row in range(100):
            writer.append(np.array([[row]], dtype=np.uint64), np.array([row]))
    assert Looked.looks <= 300
    assert StoredTable.open(path).to_table().values.tolist() == list(range(100))


@pytest.mark.parametrize("chunk_rows", [1, 9])
def test_rows_outside_of_the_block_are_refused(path, chunk_rows):
    """They were lost without a word where they did not fill a chunk."""
    writer = StoredTable.create(path, Layout(("a",), (64,)), chunk_rows=chunk_rows)
    row = np.array([[3]], dtype=np.uint64), np.array([5])
    with pytest.raises(UsageError, match="in a writer's `with` block"):
        writer.append(*row)
    with writer:
        writer.append(*row)
    with pytest.raises(UsageError, match="in a writer's `with` block"):
        writer.append(np.array([[4]], dtype=np.uint64), np.array([5]))
    assert StoredTable.open(path).to_table().to_dict() == {(3,): 5}


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_table_without_the_rows_of_a_failed_append_is_not_published(path, goes_on):
    writer = StoredTable.create(path, Layout(("a",), (64,)), np.float64, chunk_rows=2)
    with pytest.raises(UsageError, match="before any of them fails"), writer:
        with pytest.raises(ModelError, match="NaN"):
            writer.append(np.arange(3, dtype=np.uint64)[None], np.array([1.0, np.nan, 2.0]))
        if goes_on:
            writer.append(np.array([[9]], dtype=np.uint64), np.array([5.0]))
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("layout", [None, {"a": 2}, ("a",)])
def test_a_layout_or_a_semiring_of_another_type(path, layout):
    with pytest.raises(UsageError, match="expected a Layout, not"):
        StoredTable.create(path, layout)
    with pytest.raises(UsageError, match="expected a Semiring, not str"):
        StoredTable.create(path, Layout(("a",), (64,)), np.int64, "min-sum")


def test_an_unknown_setting(path):
    with pytest.raises(TypeError, match="overwite"):
        StoredTable.create(path, Layout(("a",), (64,)), overwite=True)


@pytest.mark.parametrize("value", [-1, 5, 8])
def test_values_outside_of_a_domain_get_no_key(value):
    """Their bits would be those of other variables."""
    with pytest.raises(ModelError, match=f"variable b: value {value} is outside its domain, 0 to 4"):
        Layout(("a", "b"), (3, 5)).pack(np.array([[0, 4], [1, value]]))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 100, 1 << 31, (1 << 62) - 1]), max_size=40), st.randoms())
def test_keys_beyond_domains_are_seen(sizes, random):
    layout = Layout(tuple(f"x{v}" for v in range(len(sizes))), tuple(sizes))
    full = Layout(layout.scope, tuple(1 << field.bits for field in layout.fields))
    for _ in range(20):
        values = [random.choice([0, size // 2, size - 1]) for size in sizes]
        right = full.key_of(values)[:, np.newaxis]
        assert not exceeds_domains(np.ascontiguousarray(right), layout.checks)
        for v, (size, field) in enumerate(zip(sizes, layout.fields, strict=True)):
            if size < 1 << field.bits:
                other = random.choice([size, (1 << field.bits) - 1])
                wrong = full.key_of([*values[:v], other, *values[v + 1 :]])[:, np.newaxis]
                assert exceeds_domains(np.hstack([right, wrong, right]), layout.checks)
        for word in range(layout.words):
            end = max((f.shift + f.bits for f in layout.fields if f.word == word), default=0)
            if end < 64:
                wrong = right.copy()
                wrong[word] |= np.uint64(1 << random.randrange(end, 64))
                assert exceeds_domains(wrong, layout.checks)


def test_a_key_beyond_a_domain_is_refused(path):
    layout = Layout(("a", "b"), (3, 5))
    with StoredTable.create(path, layout, np.int32, MIN_SUM) as writer:
        writer.append(layout.pack(np.array([[0, 0], [2, 1]])), np.arange(2, dtype=np.int32))
        with pytest.raises(ModelError, match=r"rows from 2 on: row 1 .*: 3 lies outside the domain of a, which"):
            writer.append(np.array([[9, 11]], dtype=np.uint64), np.arange(2, dtype=np.int32))
        with pytest.raises(ModelError, match=r"bits that are no variable's, at or after row 2"):
            writer.append(np.array([[1 << 5]], dtype=np.uint64), np.zeros(1, dtype=np.int32))
        writer.append(layout.pack(np.array([[1, 4]])), np.zeros(1, dtype=np.int32))
    assert StoredTable.open(path).rows == 3


def test_empty_table(path):
    table = random_table({"a": 4}, 0)
    stored = StoredTable.save(path, table)
    assert same(stored.to_table(), table)
    assert list(stored.chunks()) == []
    assert stored.value_at({"a": 0}) is None


def test_zero_rows_of_values_equal_to_the_fill_value_are_stored(path):
    layout = Layout(("a",), (1000,))
    keys = np.zeros((1, 1), dtype=np.uint64)
    with StoredTable.create(path, layout, np.int64) as writer:
        writer.append(keys, np.zeros(1, dtype=np.int64))
    assert (path / "values" / "c" / "0").exists()
    assert StoredTable.open(path).to_table().to_dict() == {(0,): 0}


def test_read_clips_to_the_rows_there_are(path):
    table = random_table({"a": 1000}, 40)
    stored = StoredTable.save(path, table, chunk_rows=7)
    assert np.array_equal(stored.read(5, 23).values, table.values[5:23])
    assert stored.read(-3, 2).rows == 2
    assert stored.read(table.rows, table.rows + 5).rows == 0
    assert stored.read(9, 3).rows == 0


@pytest.mark.parametrize("is_sorted", [True, False])
def test_find(path, is_sorted):
    table = random_table(SCOPES[65], 60)
    if not is_sorted:
        table = Table(table.layout, table.keys[:, ::-1].copy(), table.values[::-1].copy(), table.semiring)
    stored = StoredTable.save(path, table, chunk_rows=7)
    assert stored.is_sorted == is_sorted
    for row in range(table.rows):
        assert stored.find(table.keys[:, row]) == table.values[row]
    for missing in ({"a": 0, "b": 0, "c": 0}, {"a": 2**32 - 1, "b": 2**32 - 1, "c": 1}, {"a": 5, "b": 2**31, "c": 1}):
        assert stored.value_at(missing) is None


def test_find_reads_one_chunk(path, monkeypatch):
    table = random_table({"a": 1000}, 60)
    stored = StoredTable.save(path, table, chunk_rows=7)
    reads = []
    read = StoredTable.read
    monkeypatch.setattr(StoredTable, "read", lambda self, *rows, **how: reads.append(rows) or read(self, *rows, **how))
    assert stored.find(table.keys[:, 30]) == table.values[30]
    assert reads == [(28, 35)]


def test_chunk_keys_are_those_of_first_and_last_row(path):
    table = random_table({"a": 1000}, 20)
    stored = StoredTable.save(path, table, chunk_rows=7)
    assert stored.chunk_count == -(-table.rows // 7)
    for number, chunk in enumerate(stored.chunks()):
        assert stored.chunk_keys(number) == (int(chunk.keys[0, 0]), int(chunk.keys[0, -1]))


def test_repr_and_sizes(path):
    stored = StoredTable.save(path, random_table({"a": 1 << 20}, 5000))
    assert repr(stored).startswith("<StoredTable (a): ")
    assert 0 < stored.stored_bytes < stored.nbytes


def test_arrays_open_with_plain_zarr(path):
    import zarr

    table = random_table(SCOPES[65], 20)
    StoredTable.save(path, table, chunk_rows=7)
    group = zarr.open_group(path, mode="r")
    assert np.array_equal(group["key_1"][:], table.keys[1])
    assert np.array_equal(group["values"][:], table.values)


@pytest.mark.parametrize("dtype", ["uint64", "int32", "int64", "float32", "float64"])
def test_metadata_are_what_zarr_says_of_such_an_array(path, dtype):
    import zarr

    from oocbe.tables.zarr_codec import PackedCodec

    group = zarr.open_group(path, mode="w", zarr_format=3, attributes={"oocbe": {"rows": 20}})
    group.create_array("values", shape=(20,), chunks=(7,), dtype=dtype, serializer=PackedCodec(), compressors=None)
    metadata = json.loads((path / "values" / "zarr.json").read_text())
    assert array_metadata(20, np.dtype(dtype), 7) == metadata


def test_metadata_of_columns_are_what_zarr_says_of_such_an_array(path):
    import zarr
    from zarr.codecs import ZstdCodec

    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.create_array("a", shape=(20,), chunks=(7,), dtype="int32", compressors=ZstdCodec(level=3))
    metadata = json.loads((path / "a" / "zarr.json").read_text())
    assert array_metadata(20, np.dtype(np.int32), 7, "zstd") == metadata


def test_a_repeated_key_is_refused(path):
    layout = Layout(("a",), (1000,))
    with pytest.raises(ModelError, match="a key occurs twice"), StoredTable.create(path, layout) as writer:
        writer.append(np.array([[1, 2, 2]], dtype=np.uint64), np.zeros(3, dtype=np.int64))
    with pytest.raises(ModelError, match="a key occurs twice"), StoredTable.create(path, layout) as writer:
        for _ in range(2):
            writer.append(np.array([[1]], dtype=np.uint64), np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_behind_by_an_exception(tmp_path, path, error):
    table = random_table({"a": 1000}, 60)
    with pytest.raises(error), StoredTable.create(path, table.layout, np.int64, MIN_SUM, chunk_rows=7) as writer:
        writer.append(table.keys, table.values)
        raise error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", range(9))  # three chunks and the metadata of two arrays, and the group's
def test_a_full_disk_at_any_write_leaves_nothing(tmp_path, path, monkeypatch, call):
    table = random_table({"a": 1000}, 20)
    calls = itertools.count()  # threads write chunks at once
    write = writer.write_file

    def write_or_fail(*arguments):
        if next(calls) == call:
            raise OSError(28, "No space left on device")
        write(*arguments)

    monkeypatch.setattr(writer, "write_file", write_or_fail)
    with pytest.raises(ResourceError, match="disk is full"):
        StoredTable.save(path, table, chunk_rows=7)
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_invisible_until_complete(path):
    table = random_table({"a": 1000}, 60)
    with StoredTable.create(path, table.layout, np.int64, MIN_SUM, chunk_rows=7) as writer:
        writer.append(table.keys, table.values)
        assert not path.exists()
    assert path.exists()
    assert list(path.parent.iterdir()) == [path]


def test_an_existing_path_is_refused(path):
    table = random_table({"a": 10}, 5)
    StoredTable.save(path, table)
    with pytest.raises(UsageError, match="exists already"):
        StoredTable.save(path, table)
    assert same(StoredTable.open(path).to_table(), table)


@pytest.mark.parametrize("dtype", [object, "U5", "complex128", "bool", "uint64", "int16"])
def test_other_dtypes_are_refused(path, dtype):
    with pytest.raises(ModelError, match="values must be int32"):
        StoredTable.create(path, Layout(("a",), (2,)), dtype)


@pytest.mark.parametrize("chunk_rows", [0, -1, 1 << 40])
def test_impossible_chunk_sizes_are_refused(path, chunk_rows):
    with pytest.raises(UsageError, match=r"chunk_rows: .* is not an integer of at least 1 and at most 67,108,864"):
        StoredTable.create(path, Layout(("a",), (2,)), chunk_rows=chunk_rows)


def test_rows_of_another_shape_or_dtype_are_refused(path):
    keys, values = np.zeros((1, 2), dtype=np.uint64), np.zeros(2, dtype=np.int64)
    for bad_keys, bad_values in [
        (keys.astype(np.int64), values), (keys[0], values), (np.zeros((2, 2), dtype=np.uint64), values),
        (keys, values.astype(np.int32)), (keys, values[:1]), (keys, values.astype(object)),
    ]:  # fmt: skip
        with pytest.raises(ModelError), StoredTable.create(path, Layout(("a",), (2,))) as writer:
            writer.append(bad_keys, bad_values)


def test_tables_in_memory_do_not_import_zarr():
    code = "import sys, oocbe.tables.table, oocbe.tables.stored, json; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert "oocbe.tables.stored" in loaded
    assert "zarr" not in loaded


def packed_columns(table, writer):
    """Write the rows as packed chunks, as results come from a device."""
    write_packed(PackedTable.pack(table, chunk_rows=100), table, writer)


@pytest.mark.parametrize("write", [lambda table, writer: writer.append(table.keys, table.values), packed_columns])
@pytest.mark.parametrize("large", [tuning().small_bytes, 1])
@pytest.mark.parametrize("codec", ["packed", "zstd"])
def test_all_is_on_disk_before_the_manifest_says_so(path, write, codec, large, tune):
    """Every file behind its last write, and every folder behind the last file made in it."""
    tune(small_bytes=large)
    if codec == "zstd" and write is packed_columns:
        pytest.skip("chunks of this codec are not packed")
    table, seen = random_table(SCOPES[63], 950), []

    def hook(operation, where):
        seen.append((operation, where))

    with (
        disk.hooked(hook),
        StoredTable.create(path, table.layout, np.int64, MIN_SUM, chunk_rows=100, codec=codec) as writer,
    ):
        write(table, writer)
    assert same(StoredTable.open(path).to_table(), table)
    before = seen[: next(place for place, (_, where) in enumerate(seen) if where.name == MANIFEST_NAME)]
    files = {where for operation, where in before if operation == "create" and where.suffix != ".partial"}
    assert len(files) >= 2 * 10 + 3  # chunks of both columns, and metadata
    forced = {where: place for place, (operation, where) in enumerate(before) if operation == "synchronise"}
    for place, (operation, where) in enumerate(before):
        if where in files and operation in ("create", "write"):
            assert forced[where] > place
            for folder in where.parents:
                if folder.is_relative_to(writer._folder) and folder != writer._folder:
                    assert forced[folder] > place


def test_a_file_of_another_size_is_not_read_into_memory(path):
    stored = StoredTable.save(path, random_table(SCOPES[63], 900), chunk_rows=500)
    words = len(stored.packed_chunk(0, 1))
    stored.packed_chunk_into(0, 1, target := np.empty(words, np.uint64))
    assert np.array_equal(target, stored.packed_chunk(0, 1))
    for size in (words - 1, words + 1):
        with pytest.raises(CorruptDataError, match=f"chunk 1 of key_0 should have {8 * size:,} bytes"):
            stored.packed_chunk_into(0, 1, np.empty(size, np.uint64))


def test_a_file_cut_while_it_is_read_is_named(path):
    stored = StoredTable.save(path, random_table(SCOPES[63], 900), chunk_rows=500)
    target = np.empty(len(stored.packed_chunk(0, 1)), np.uint64)

    def cut(operation, where):
        if operation == "read":
            where.write_bytes(where.read_bytes()[:-8])

    with disk.hooked(cut), pytest.raises(CorruptDataError, match="chunk 1 of key_0 is damaged"):
        stored.packed_chunk_into(0, 1, target)


def test_large_files_begin_their_way_to_the_disk_at_once(tmp_path, monkeypatch):
    begin, calls = disk._sync_file_range(), []
    if begin is None:
        pytest.skip("the system has no such call")
    # What it answers is up to the system: some refuse it, which is no error.
    monkeypatch.setattr(disk, "_sync_file_range", lambda: lambda *given: calls.append(given) or begin(*given))
    disk.write_file(tmp_path / "small", bytes(1000))
    assert not calls
    disk.write_file(tmp_path / "large", bytes(tuning().small_bytes))
    assert [call[1:] for call in calls] == [(0, 0, disk.SYNC_FILE_RANGE_WRITE)]
    disk.synchronise(tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == bytes(tuning().small_bytes)


def test_counts_of_several_limbs_are_saved_as_they_are(tmp_path):
    layout = Layout(("x",), (3,))
    counts = np.array([[1, 0], [5, 7], [0, 1 << 40]], dtype=np.int64)
    table = Table(layout, np.arange(3, dtype=np.uint64)[np.newaxis], counts, COUNTING, is_sorted=True)
    stored = StoredTable.save(tmp_path / "counts", table)
    assert stored.limbs == 2 and stored.to_table().values.tolist() == counts.tolist()
