"""Cuts of sorted tables: every row in one piece, common values together, pieces as small as they can be."""

from __future__ import annotations

import weakref
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.algebra import gpu_streaming, result_memory, sorted_cuts
from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.algebra.out_of_core.context import ExecutionContext
from oocbe.algebra.sorted_cuts import SortedCuts, leads_with
from oocbe.errors import CorruptDataError
from oocbe.kernels.cpu.threads import run_all
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.model.row_numbers import key_number
from oocbe.tables.packed import ChunkFiles, PackedKeys, PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.effort import examples
from tests.helpers.table_models import same_table


@pytest.fixture(scope="module", autouse=True)
def backend():
    """Operators are told their backend here; the folder's fixture would run everything twice."""


def random_table(scope: dict[str, int], rows: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    tuples = np.unique(rng.integers(0, list(scope.values()), (rows, len(scope))), axis=0)
    return Table.from_rows(scope, tuples, np.arange(len(tuples)))


SHAPES = [
    ({"e": 3, "a": 4, "k": 5, "l": 3}, {"b": 6, "e": 3, "k": 5, "l": 3}),
    ({"a": 1 << 40, "k": 7, "l": 1 << 30}, {"e": 5, "k": 7, "l": 1 << 30}),
    ({"e": 3, "a": 4, "k": 1, "l": 1}, {"b": 6, "k": 1, "l": 1}),
]


@settings(max_examples=examples(120))
@given(
    st.sampled_from(SHAPES),
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(1, 40),
    st.booleans(),
    st.integers(0, 99),
)
def test_pieces_cover_all_rows_that_meet(shapes, rows1, rows2, most, within, seed):
    first, second = random_table(shapes[0], rows1, seed), random_table(shapes[1], rows2, seed + 1)
    common = ("k", "l")
    unit = ("a", "k", "l") if within and leads_with(first, ("a", "k", "l")) else common
    cuts = SortedCuts((first, second), common, unit)
    pieces = cuts.fitting(cuts.whole(), most)

    def values(table: Table, names) -> list[tuple[int, ...]]:
        places = [table.layout.place(name) for name in names]
        return [tuple(row) for row in table.to_rows()[0][:, places].tolist()]

    keys1, keys2, units = values(first, common), values(second, common), values(first, unit)
    pairs = set()
    for piece in pieces:
        inside1, inside2 = (range(low, high) for low, high in zip(piece.low, piece.high, strict=True))
        pairs |= {(i, j) for i in inside1 for j in inside2 if keys1[i] == keys2[j]}
        assert piece.rows <= most or len({units[i] for i in inside1}) == 1
        # What the first table's rows of the piece meet is all there.
        met = {keys1[i] for i in inside1}
        assert {j for j in range(second.rows) if keys2[j] in met} <= set(inside2)
    expected = {(i, j) for i in range(first.rows) for j in range(second.rows) if keys1[i] == keys2[j]}
    assert pairs == expected
    rows = [row for piece in pieces for row in range(piece.low[0], piece.high[0])]
    assert rows == sorted(set(rows))


@settings(max_examples=examples(80))
@given(
    st.sampled_from(SHAPES), st.integers(1, 300), st.sampled_from([1, 20, 300]), st.integers(1, 40), st.integers(0, 9)
)
def test_packed_tables_are_cut_at_the_same_rows(shapes, rows, chunk_rows, most, seed):
    tables = [random_table(scope, rows, seed + i) for i, scope in enumerate(shapes)]
    packed = [PackedTable.pack(table, chunk_rows=chunk_rows) for table in tables]
    plain, same = (SortedCuts(found, ("k", "l"), ("k", "l")) for found in (tables, packed))
    assert plain.fitting(plain.whole(), most) == same.fitting(same.whole(), most)


@pytest.mark.parametrize("most", [1, 30, 1000, 100_000])
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_tables_on_disk_are_cut_at_the_same_rows(shape, most, monkeypatch, tmp_path):
    """Several threads look at once."""
    monkeypatch.setenv("OOCBE_THREADS", "5")
    tables = [random_table(scope, 3000 if most > 1 else 400, 5 + i) for i, scope in enumerate(SHAPES[shape])]
    stored = [
        PackedTable.on_disk(StoredTable.save(tmp_path / str(i), table, chunk_rows=170 if most > 1 else 25))
        for i, table in enumerate(tables)
    ]
    plain, same = (SortedCuts(found, ("k", "l"), ("k", "l")) for found in (tables, stored))
    assert plain.fitting(plain.whole(), most) == same.fitting(same.whole(), most)


@pytest.fixture
def chunks_read(monkeypatch):
    """Of each chunk read, whether it is still in memory."""
    read, words = [], ChunkFiles.words

    def noted(self):
        found = words(self)
        read.append(weakref.ref(found))
        return found

    monkeypatch.setattr(ChunkFiles, "words", noted)
    return read


@pytest.mark.parametrize("room", [None, 0, 2.5])
def test_chunks_are_kept_only_while_a_table_on_disk_is_cut_and_as_there_is_room(
    room, chunks_read, monkeypatch, tmp_path
):
    monkeypatch.setenv("OOCBE_THREADS", "5")
    table = random_table(SHAPES[0][0], 3000, 5)
    stored = PackedTable.on_disk(StoredTable.save(tmp_path / "t", table, chunk_rows=17))
    cuts = SortedCuts((stored,), ("k", "l"), ("k", "l"))
    largest = max(stored.columns[0].chunks(n, n + 1).nbytes for n in range(len(stored.columns[0].starts) - 1))
    kept = []
    key = PackedKeys.key

    def counted(self, row):
        found = key(self, row)
        kept.append(sum(reference() is not None for reference in chunks_read))
        return found

    monkeypatch.setattr(PackedKeys, "key", counted)
    at_once = []

    def run_noted(function, groups, interrupt):
        at_once.append(min(len(groups), 5))
        return run_all(function, groups, interrupt)

    monkeypatch.setattr(sorted_cuts, "run_all", run_noted)
    assert len(cuts.fitting(cuts.whole(), 30, None if room is None else int(room * largest))) > 1
    threads = 5 if room is None else max(1, int(room))
    assert at_once == [threads, threads]
    assert 0 < max(kept) <= threads + 1  # one of each, and of the caller
    assert all(reference() is None for reference in chunks_read)


@pytest.mark.parametrize(("rows", "found"), [(1, 1), (4, 1), (100, None)])
def test_a_sample_has_about_as_many_rows_as_asked_for(rows, found):
    """Of one row, behind which a large group begins, the memory of arrays of any size would be taken for its own."""
    groups = np.repeat([0, 1, 2], [4000, 1, 8000])
    table = Table.from_rows({"a": 8000, "k": 3}, np.stack([np.arange(12001) % 8000, groups], axis=1), groups)
    sample = SortedCuts((table,), ("k",), ("k",)).sample(rows)
    assert sample is None if found is None else sample.rows == found


def test_no_more_is_read_once_a_chunk_was_found_damaged(chunks_read, monkeypatch, tmp_path):
    monkeypatch.setenv("OOCBE_THREADS", "1")
    stored = StoredTable.save(tmp_path / "t", random_table(SHAPES[0][0], 3000, 5), chunk_rows=17)
    (tmp_path / "t" / "key_0" / "c" / "0").write_bytes(bytes((tmp_path / "t" / "key_0" / "c" / "0").stat().st_size))
    cuts = SortedCuts((PackedTable.on_disk(stored),), ("k", "l"), ("k", "l"))
    with pytest.raises(CorruptDataError, match="chunk 0 of key_0"):
        cuts.fitting(cuts.whole(), 30)
    assert not chunks_read  # those that were read whole


@pytest.mark.gpu
@pytest.mark.parametrize("piece_rows", [50, 3000, None])
@pytest.mark.parametrize("chunk_rows", [100, 1 << 20])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_packed_through_the_device(shape, dtype, chunk_rows, piece_rows):
    """Packed tables go through the device by themselves and come back packed; rows and dtypes are the operator's."""
    if why_unavailable():
        pytest.skip(f"no GPU: {why_unavailable()}")
    tables = [random_table(scope, 4000, 7 + i) for i, scope in enumerate(SHAPES[shape])]
    first, second = (replace(table, values=(table.values * 3).astype(dtype)) for table in tables)
    packed1, packed2 = (PackedTable.pack(table, chunk_rows=chunk_rows) for table in (first, second))
    gone = [name for name in first.scope if name in second.scope and name not in ("k", "l")] or ["k"]
    for operator, plain, packed in (
        (join_sum, (first, second), (packed1, packed2)),
        (join_maximise, (first, second, gone), (packed1, packed2, gone)),
        (maximise, (first, first.scope[0]), (packed1, first.scope[0])),
    ):
        expected = operator(*plain, backend="cpu")
        result = operator(*packed, backend="cuda", piece_rows=piece_rows)
        found = result.to_table()
        same_table(found, expected)
        if result.extent is not None:
            assert result.extent == (expected.values.min(), expected.values.max())
        numbers = [key_number(expected.keys, row) for row in range(expected.rows)]
        starts = result.row_starts.tolist()
        assert result.edge_keys == [(numbers[low], numbers[high - 1]) for low, high in pairwise(starts)]


@pytest.fixture(params=[None, 1 << 15, 1 << 26], ids=["fresh", "too little kept", "kept"])
def memory_of_results(request, monkeypatch):
    """Fresh memory for results, kept memory that most of them outgrow, and kept memory with room for all."""
    if why_unavailable():
        pytest.skip(f"no GPU: {why_unavailable()}")
    from oocbe.kernels.cuda.transfer.pinned import pinned_region

    regions = [] if request.param is None else [pinned_region(request.param)]
    monkeypatch.setattr(result_memory, "_regions", regions)
    yield regions
    for region in regions:
        region.close()


@pytest.mark.gpu
@pytest.mark.parametrize("piece_rows", [50, 3000])
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_streamed_through_the_device(shape, piece_rows, memory_of_results, monkeypatch):
    """Pieces of sorted tables go through the device by themselves; the result is the operator's."""
    first, second = (random_table(scope, 4000, 7 + i) for i, scope in enumerate(SHAPES[shape]))
    streamed: list[int] = []
    run = gpu_streaming.DevicePlan.to_memory
    monkeypatch.setattr(
        gpu_streaming.DevicePlan, "to_memory", lambda *arguments: (streamed.append(1), run(*arguments))[1]
    )
    gone = [name for name in first.scope if name in second.scope and name not in ("k", "l")] or ["k"]
    for operator, arguments in (
        (join_sum, (first, second)),
        (join_maximise, (first, second, gone)),
        (maximise, (first, first.scope[0])),
    ):
        expected, before = operator(*arguments, backend="cpu"), len(streamed)
        found = operator(*arguments, backend="cuda", piece_rows=piece_rows)
        same_table(found, expected)
        for region in memory_of_results if len(streamed) > before else ():
            if found.rows and found.layout.words == 1 and len(region.memory) > found.nbytes + (1 << 16):
                assert np.shares_memory(found.keys, region.memory)
    assert streamed


@pytest.mark.gpu
@pytest.mark.parametrize("piece_rows", [50, 3000, None])
@pytest.mark.parametrize("chunk_rows", [33, 1000, 1 << 20])
@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_from_disk_to_disk_through_the_device(shape, dtype, chunk_rows, piece_rows, monkeypatch, tmp_path):
    """Stored tables go through the device chunk by chunk, and the result is written as the operator would write it."""
    if why_unavailable():
        pytest.skip(f"no GPU: {why_unavailable()}")
    tables = [random_table(scope, 4000, 7 + i) for i, scope in enumerate(SHAPES[shape])]
    first, second = (replace(table, values=(table.values * 3).astype(dtype)) for table in tables)
    stored1, stored2 = (
        StoredTable.save(tmp_path / f"in{i}", table, chunk_rows=chunk_rows) for i, table in enumerate((first, second))
    )
    gone = [name for name in first.scope if name in second.scope and name not in ("k", "l")]
    monkeypatch.setattr(ExecutionContext, "chunk_rows", lambda *arguments: 70)
    passes: list[int] = []
    over = gpu_streaming.PiecesThroughDevice.over
    monkeypatch.setattr(
        gpu_streaming.PiecesThroughDevice,
        "over",
        lambda self, pieces, *rest: (passes.append(len(pieces)), over(self, pieces, *rest))[1],
    )
    calls = [(maximise, (first, first.scope[0]), (stored1, first.scope[0]))]
    if gone:
        calls.append((join_maximise, (first, second, gone), (stored1, stored2, gone)))
    for number, (operator, plain, stored) in enumerate(calls):
        expected = operator(*plain, backend="cpu")
        output = tmp_path / f"out{number}"
        found = operator(*stored, output=output, memory="64MiB", backend="cuda", piece_rows=piece_rows)
        assert len(passes) == number + 1
        found.verify()
        result = found.to_table()
        assert (result.layout, result.values.dtype, result.is_sorted) == (expected.layout, np.dtype(dtype), True)
        assert np.array_equal(result.keys, expected.keys)
        assert np.array_equal(result.values, expected.values)
        StoredTable.save(tmp_path / f"as{number}", expected, chunk_rows=70)
        for path in (tmp_path / f"as{number}").rglob("*"):
            if path.is_file():
                assert path.read_bytes() == (output / path.relative_to(tmp_path / f"as{number}")).read_bytes()


@pytest.mark.gpu
def test_a_damaged_chunk_on_its_way_to_the_device(tmp_path):
    if why_unavailable():
        pytest.skip(f"no GPU: {why_unavailable()}")
    stored = StoredTable.save(tmp_path / "in", random_table(SHAPES[0][0], 4000, 7), chunk_rows=20)
    victim = tmp_path / "in" / "values" / "c" / "2"
    data = bytearray(victim.read_bytes())
    data[-20] ^= 1
    victim.write_bytes(data)
    with pytest.raises(CorruptDataError, match="chunk 2"):
        maximise(stored, "e", output=tmp_path / "out", memory="64MiB", backend="cuda", piece_rows=50)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
