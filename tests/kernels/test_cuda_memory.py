"""The limit of device memory: kept, and a clear error where it is too small."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.errors import ResourceError
from oocbe.kernels.cuda.memory import free_blocks, held_bytes, set_limit, used_bytes
from oocbe.machine import device_memory_limit
from oocbe.operators import join_sum, maximise
from oocbe.tables.layout import Layout
from oocbe.tables.table import Table

pytestmark = pytest.mark.gpu
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


def test_too_small_a_limit_is_a_clear_error(limited):
    limited(4 * MIB)
    with pytest.raises(ResourceError, match=r"device memory ran out.*used [\d,]+ bytes, limit [\d,]+ bytes"):
        maximise(table(1_000_000, 1, "a"), "a", backend="cuda")
    assert maximise(table(10_000, 1, "a"), "a", backend="cuda").rows == 40


def test_what_a_failed_call_took_is_given_back(limited):
    used = used_bytes()
    limited(30 * MIB)
    with pytest.raises(ResourceError):
        join_sum(table(300_000, 1, "a"), table(300_000, 2, "b"), backend="cuda")
    assert used_bytes() == used


def test_free_blocks_of_other_sizes_are_given_back_first(limited, cuda):
    limit = limited(40 * MIB)
    for size in range(1, 8):
        cuda.backend.upload(np.zeros(size * MIB, dtype=np.uint8))
    assert held_bytes() > 20 * MIB
    assert maximise(table(600_000, 1, "a"), "a", backend="cuda").rows == 2344
    assert held_bytes() <= limit


def test_the_environment_sets_the_limit(limited, monkeypatch):
    monkeypatch.setenv("OOCBE_DEVICE_MEMORY", "5GiB")
    assert set_limit(device_memory_limit()) == 5 << 30
    assert set_limit(6 << 30) == 6 << 30


def test_pinned_memory_of_a_copy_that_nobody_waits_for(cuda):
    """It must not be given to somebody else while the copy is on its way."""
    import cupy as cp

    from oocbe.kernels.cuda.readback import Readback

    work = cp.zeros(1 << 26)
    for _ in range(50):
        work += 1
    Readback(cp.full(1, 7, dtype=np.int64))
    memory = cp.cuda.alloc_pinned_memory(8)
    found = np.frombuffer(memory, np.int64, 1)
    found[0] = 42
    cp.cuda.Device().synchronize()
    assert found[0] == 42
