"""Memory that is kept for results. That the rows are the same is tested with the pieces that stream."""

from types import SimpleNamespace

import numpy as np
import pytest

import oocbe
from oocbe.algebra import gpu_streaming, result_memory
from oocbe.algebra.gpu_streaming import PackedChunk, PackedResult, PlainResult
from oocbe.algebra.result_memory import ResultPool, kept_columns
from oocbe.algebra.sorted_cuts import SortedCuts
from oocbe.errors import ResourceError, UsageError
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.kernels.cuda.transfer.conveyor import Conveyor
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.machine import default_memory_limit
from oocbe.runtime.stretches import ALIGNMENT, Region
from oocbe.tables.layout import Layout
from oocbe.tables.packed_codec import encode
from oocbe.tables.table import Table
from tests.helpers.lazy_device import DeviceArray, take_the_place_of_cupy

KEPT = np.dtype(np.uint64), np.dtype(np.int32)


@pytest.fixture(scope="module", autouse=True)
def backend():
    """No operator runs here; the folder's fixture would run everything twice."""


@pytest.fixture
def region(monkeypatch):
    found = Region(np.zeros(12 * ALIGNMENT + 2 * ALIGNMENT, np.uint8), lambda: None)
    monkeypatch.setattr(result_memory, "_regions", [found])
    return found


class LateConveyor:
    """Stands for the device's: results arrive only when somebody waits for them."""

    def __init__(self):
        self.on_their_way = []

    def bring_back(self, columns, targets):
        self.on_their_way += zip(columns, targets, strict=True)

    def wait_for_targets(self):
        for column, target in self.on_their_way:
            target[:] = column
        self.on_their_way = []


LAYOUT = Layout(("a",), (1 << 20,))


def collected(parts):
    """A table of results that arrive in parts, 0, 1, 2 and so on."""
    result, conveyor = PlainResult(LAYOUT, np.dtype(np.int32), True), LateConveyor()
    first = 0
    for rows in parts:
        numbers = np.arange(first, first + rows)
        result.take(conveyor, (numbers.astype(np.uint64)[np.newaxis], numbers.astype(np.int32)))
        first += rows
    result.finish(conveyor)
    conveyor.wait_for_targets()
    return result.table(MAX_SUM, np.dtype(np.int32))


def lies_in(array, region):
    return np.shares_memory(array, region.memory)


@pytest.mark.parametrize(
    ("parts", "is_kept"), [([100], True), ([4000, 96], True), ([4000, 97], False), ([9000], False), ([], True)]
)
def test_results_that_outgrow_kept_memory_move(region, parts, is_kept):
    table = collected(parts)
    rows = sum(parts)
    assert table.rows == rows
    assert table.keys[0].tolist() == table.values.tolist() == list(range(rows))
    if rows:
        assert lies_in(table.keys, region) == lies_in(table.values, region) == is_kept
    left = region.largest()
    assert left == (14 * ALIGNMENT if not is_kept else left)
    del table
    assert region.is_free()


def packed_chunks(parts, rotations):
    """What the device packs, on the CPU."""
    ((keys, values),) = parts
    edges = int(keys[0][0]), int(keys[0][-1])
    words = [encode(column).view(DeviceArray) for column in (keys[0], values)]
    return [PackedChunk(words, len(values), edges, (int(values.min()), int(values.max())))]


@pytest.mark.parametrize(
    ("parts", "is_kept"),
    [([3000], True), ([3000, 2500, 2000], True), ([3000, 20_000, 3000], False), ([40_000], False), ([0, 10], True)],
)
def test_packed_results_that_outgrow_kept_memory_move(region, parts, is_kept, monkeypatch):
    monkeypatch.setattr(gpu_streaming, "packed_chunks", packed_chunks)
    result, conveyor = PackedResult(LAYOUT, np.dtype(np.int32), True), LateConveyor()
    rng = np.random.default_rng(1)
    numbers = np.sort(rng.permutation(1 << 20)[: sum(parts)])
    values = rng.integers(0, 1000, sum(parts)).astype(np.int32)
    first = 0
    for rows in parts:
        here = slice(first, first + rows)
        result.take(conveyor, result.prepared(numbers[here].astype(np.uint64)[np.newaxis], values[here]))
        first += rows
    result.finish(conveyor)
    conveyor.wait_for_targets()
    table = result.table(MAX_SUM, np.dtype(np.int32))
    assert table.row_starts.tolist() == np.cumsum([0, *(rows for rows in parts if rows)]).tolist()
    assert table.extent == (values.min(), values.max())
    found = table.to_table()
    assert np.array_equal(found.keys[0], numbers)
    assert np.array_equal(found.values, values)
    assert [lies_in(column.words, region) for column in table.columns] == [is_kept] * 2
    assert region.largest() > 0  # what the table does not need is free again
    del result, table
    assert region.is_free()


@pytest.mark.parametrize(("share", "limit"), [(1.0, 1 << 30), (0.5, 1 << 30), (1.0, 1 << 16)])
def test_packed_results_are_pinned_ahead(monkeypatch, tune, share, limit):
    """Also where more or fewer rows come than the first ones promised; no copy crosses two steps of pinning.

    A result that outgrows the limit of pinned memory is not pinned in the end, and others may copy any part of it.
    """
    device = take_the_place_of_cupy(monkeypatch)
    monkeypatch.setattr(gpu_streaming, "packed_chunks", packed_chunks)
    monkeypatch.setattr(result_memory, "_POOL", ResultPool())
    tune(least_pooled_bytes=1, result_pool_share=limit / default_memory_limit())
    numbers = np.arange(60_000)
    for _ in range(2):
        result = PackedResult(LAYOUT, np.dtype(np.int32), False)
        result._rotations = [0, 0]
        with Conveyor([]) as conveyor:
            for low in range(0, 60_000, 5000):
                here = numbers[low : low + 5000]
                chunk = [here.astype(np.uint64)[np.newaxis].view(DeviceArray), here.astype(np.int32)]
                result.take(conveyor, result.prepared(*chunk), share)
            result.finish(conveyor)
        result.close()
        table = result.table(MAX_SUM, np.dtype(np.int32))
        own = [
            size for address, size in device.pinned.items() if address in {c.words.ctypes.data for c in table.columns}
        ]
        assert sum(own) >= table.nbytes if limit > table.nbytes else not own
        assert all(device.may_copy(column.words[low:]) for column in table.columns for low in range(0, 3000, 500))
        found = table.to_table()
        assert np.array_equal(found.keys[0], numbers) and np.array_equal(found.values, numbers)
        del result, table, found


def test_a_packed_result_of_no_rows_is_empty(region):
    table = PackedResult(LAYOUT, np.dtype(np.int32), True).table(MAX_SUM, np.dtype(np.int32))
    assert table.rows == table.chunk_count == table.nbytes == 0
    assert table.to_table().rows == 0


def test_tables_live_side_by_side_and_outlive_the_block(region):
    first = collected([50])
    second = collected([60])
    region.close()
    third = collected([70])
    assert lies_in(first.values, region)
    assert lies_in(second.values, region)
    assert not lies_in(third.values, region)
    for table in (first, second, third):
        assert table.values.tolist() == table.keys[0].tolist() == list(range(table.rows))


def test_the_block_opened_last_counts_in_whatever_order_they_end(monkeypatch):
    regions = [Region(np.zeros(8 * ALIGNMENT, np.uint8), lambda: None) for _ in range(2)]
    monkeypatch.setattr("oocbe.kernels.cuda.transfer.pinned.pinned_region", lambda nbytes: regions[len(opened)])
    opened = []
    first, second = oocbe.result_memory("2MiB"), oocbe.result_memory("2MiB")
    for block in (first, second):
        block.__enter__()
        opened.append(block)
    assert lies_in(collected([5]).values, regions[1])
    first.__exit__(None, None, None)
    assert lies_in(collected([5]).values, regions[1])
    second.__exit__(None, None, None)
    assert kept_columns(KEPT) is None


def test_a_wider_result_takes_the_memory_of_the_narrower_one(region, monkeypatch, tune):
    """And that of the sample by which pieces are measured."""
    tune(least_device_piece_rows=0)
    tried = []

    class Pieces:
        def __init__(self, plan, dtype, result):
            self.result, self.dtype = result, dtype

        def row_bytes(self):
            tried.append("sample")

        def over(self, pieces, numbers, device_bytes):
            tried.append(self.dtype)
            if len(tried) == 2:
                raise gpu_streaming._WiderError(np.dtype(np.int64))
            self.result.take(LateConveyor(), (np.zeros((1, 3), np.uint64), np.zeros(3, np.int64)))
            return self.dtype

    monkeypatch.setattr(gpu_streaming, "PiecesThroughDevice", Pieces)
    monkeypatch.setattr(gpu_streaming, "rows_a_piece", lambda tables, row_bytes: 10)
    monkeypatch.setattr(gpu_streaming, "gpus", lambda seconds: [0])
    table = Table.from_rows({"a": 1 << 20}, [[1]], [1], MAX_SUM)
    cuts = SortedCuts((table,), ("a",), ("a",))
    step = SimpleNamespace(layout=LAYOUT, is_sorted=True, semiring=MAX_SUM, dtype_of=lambda extents: np.dtype(np.int32))
    found = gpu_streaming.DevicePlan((table,), cuts, step, None).to_memory()
    assert tried == ["sample", np.int32, np.int64]
    assert lies_in(found.values, region)


def test_columns_share_the_largest_stretch_by_their_items(region):
    kept = kept_columns(KEPT)
    keys, values = kept.columns
    assert len(keys) == len(values) == ALIGNMENT
    assert (keys.dtype, values.dtype) == KEPT
    assert kept_columns(KEPT) is None
    keys[:], values[:] = 1, 2
    kept.shorten([10, 10])
    assert region.largest() == 7 * ALIGNMENT  # between the first pages of keys and values
    assert (keys[:10] == 1).all()
    assert (values[:10] == 2).all()
    del kept, keys
    assert (values[:10] == 2).all()
    del values
    assert region.is_free()


def test_without_kept_memory_there_are_no_columns():
    assert kept_columns(KEPT) is None


@pytest.mark.parametrize("size", ["a lot", 5])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(UsageError, match="memory for results"), oocbe.result_memory(size):
        pass


def test_more_than_there_is_is_refused():
    with pytest.raises(ResourceError, match=r"memory for results: 1024\.0 TiB"), oocbe.result_memory(1 << 50):
        pass


@pytest.mark.skipif(why_unavailable() is None, reason="there is a device")
def test_without_a_device_an_error_says_so():
    with pytest.raises(UsageError, match="cuda backend cannot be used"), oocbe.result_memory("2MiB"):
        pass
