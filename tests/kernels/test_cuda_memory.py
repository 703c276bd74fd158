"""The limit of device memory: kept, and a clear error where it is too small."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.errors import ResourceError
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.transfer import memory
from oocbe.kernels.cuda.transfer.memory import (
    failed_allocations,
    free_blocks,
    held_by,
    held_bytes,
    set_limit,
    used_bytes,
    with_retry,
)
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.machine import device_memory_limit
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedTable
from oocbe.tables.table import Table

MIB = 1 << 20


@pytest.fixture
def limited(cuda):
    free_blocks()
    base = held_bytes()
    yield lambda limit: set_limit(base + limit)
    set_limit()


def table(rows: int, seed: int, name: str) -> Table:
    keys = np.random.default_rng(seed).permutation(rows).astype(np.uint64)[np.newaxis]
    return Table(Layout((name, "k"), (1 << 8, 1 << 20)), keys, np.arange(rows, dtype=np.int32))


@pytest.mark.gpu
def test_too_small_a_limit_is_a_clear_error(limited):
    limited(4 * MIB)
    with pytest.raises(ResourceError, match=r"device memory ran out.*used [\d,]+ bytes, limit [\d,]+ bytes"):
        maximise(table(1_000_000, 1, "a"), "a", backend="cuda")
    assert maximise(table(10_000, 1, "a"), "a", backend="cuda").rows == 40


@pytest.mark.gpu
def test_what_a_failed_call_took_is_given_back(limited):
    used = used_bytes()
    limited(30 * MIB)
    with pytest.raises(ResourceError):
        join_sum(table(300_000, 1, "a"), table(300_000, 2, "b"), backend="cuda")
    assert used_bytes() == used


@pytest.mark.gpu
def test_free_blocks_of_other_sizes_are_given_back_first(limited, cuda):
    limit = limited(40 * MIB)
    for size in range(1, 8):
        cuda.backend.upload(np.zeros(size * MIB, dtype=np.uint8))
    assert held_bytes() > 20 * MIB
    assert maximise(table(600_000, 1, "a"), "a", backend="cuda").rows == 2344
    assert held_bytes() <= limit


@pytest.mark.gpu
def test_the_environment_sets_the_limit(limited, monkeypatch):
    monkeypatch.setenv("OOCBE_DEVICE_MEMORY", "5GiB")
    assert set_limit(device_memory_limit()) == 5 << 30
    assert set_limit(6 << 30) == 6 << 30


@pytest.mark.gpu
def test_pinned_memory_of_a_copy_that_nobody_waits_for(cuda):
    """It must not be given to somebody else while the copy is on its way."""
    import cupy as cp

    from oocbe.kernels.cuda.transfer.readback import Readback

    work = cp.zeros(1 << 26)
    for _ in range(50):
        work += 1
    Readback(cp.full(1, 7, dtype=np.int64))
    memory = cp.cuda.alloc_pinned_memory(8)
    found = np.frombuffer(memory, np.int64, 1)
    found[0] = 42
    cp.cuda.Device().synchronize()
    assert found[0] == 42


class Holder:
    """Holds an array on the device that may be elsewhere."""

    def __init__(self, array=None):
        self.array = array

    def free_device_memory(self):
        has_array, self.array = self.array is not None, None
        return has_array


@pytest.mark.gpu
def test_who_holds_memory_for_no_need_is_asked_last(limited, cuda):
    limited(64 * MIB)
    holder = Holder(cuda.backend.upload(np.zeros(40 * MIB, dtype=np.uint8)))
    held_by(holder)
    cuda.backend.upload(np.zeros(16 * MIB, dtype=np.uint8))
    assert holder.array is not None
    cuda.backend.upload(np.zeros(48 * MIB, dtype=np.uint8))
    assert holder.array is None


@pytest.mark.parametrize("has_more", [False, True])
@pytest.mark.parametrize("thread", ["own", "another"])
def test_only_holders_of_the_thread_that_ran_out_are_asked(monkeypatch, has_more, thread):
    monkeypatch.setattr(memory, "is_out_of_memory", lambda error: isinstance(error, MemoryError))
    monkeypatch.setattr(memory, "free_blocks", lambda: None)
    monkeypatch.setattr(memory, "used_bytes", lambda: 5)
    monkeypatch.setattr(memory, "limit_bytes", lambda: 7)
    holder = Holder([] if has_more else None)
    declare = threading.Thread(target=held_by, args=(holder,)) if thread == "another" else None
    if declare is None:
        held_by(holder)
    else:
        declare.start()
        declare.join()
    calls = []

    @with_retry
    def call():
        calls.append(None)
        if holder.array is not None or not has_more:
            raise MemoryError("no room")
        return 3

    if has_more and thread == "own":
        assert call() == 3
        assert len(calls) == 3
    else:
        with pytest.raises(ResourceError, match="no room; used 5 bytes, limit 7 bytes"):
            call()
        assert len(calls) == 2


def test_an_allocation_that_failed_takes_no_memory(monkeypatch):
    hooks = []

    class Hook:
        def __enter__(self):
            hooks.append(self)

        def __exit__(self, *_):
            hooks.clear()

    def call():
        for pointer, nbytes in ((0, 1000), (1, 30), (2, 50)):  # CuPy reports 0 where it raises an error
            hooks[0].malloc_postprocess(mem_size=nbytes, mem_ptr=pointer)
        hooks[0].free_postprocess(mem_size=30, mem_ptr=1)
        return "result"

    monkeypatch.setattr(memory, "cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(MemoryHook=Hook)))
    assert memory.peak_of(call) == ("result", 80, 50)


def groups_of(groups: int, own: str, each: int) -> Table:
    """Rows (e, own, k) of ``groups`` values of k, ``each`` of the own variable and two of e."""
    layout = Layout(("e", own, "k"), (2, each, groups))
    cells = np.arange(groups * each * 2, dtype=np.uint64)
    e, a, k = cells % 2, cells // 2 % each, cells // (2 * each)
    shifts = [np.uint64(layout.field(name).shift) for name in layout.scope]
    keys = (e << shifts[0] | a << shifts[1] | k << shifts[2])[np.newaxis]
    return Table(layout, keys, (cells % 1000).astype(np.int32), MAX_SUM, is_sorted=True)


@pytest.mark.gpu
@pytest.mark.parametrize("form", [lambda table: table, PackedTable.pack])
def test_results_much_longer_than_their_tables_are_computed_in_pieces_of_their_size(limited, cuda, form, monkeypatch):
    """Packing the result of a piece that was too long ended the operation; of rows, most pieces failed at first."""
    tables = [groups_of(8_000, own, 64) for own in ("a", "b")]
    expected = join_maximise(*tables, "e", backend="cpu")
    limited(60 * MIB)
    before = failed_allocations()
    found = join_maximise(*map(form, tables), "e", backend=cuda.backend)
    assert failed_allocations() - before <= 2
    found = found.to_table() if isinstance(found, PackedTable) else found
    assert (found.values == expected.values).all()
    assert (found.keys == expected.keys).all()


@pytest.mark.gpu
def test_arrays_that_leave_are_waited_for_before_blocks_are_returned(limited):
    class Leaving:
        array = None

        def free_device_memory(self) -> bool:
            had, self.array = self.array is not None, None
            return had

    limited(4 * MIB)
    leaving, blocks = Leaving(), []
    leaving.array = cupy().empty(3 * MIB, dtype=np.uint8)
    held_by(leaving, is_leaving=True)
    with patch.object(memory, "free_blocks", lambda: blocks.append(1)):
        assert with_retry(cupy().empty)(3 * MIB, dtype=np.uint8).nbytes == 3 * MIB
    assert not blocks
    assert leaving.array is None
