"""Memory that is kept for results. That the rows are the same is tested with the pieces that stream."""

import numpy as np
import pytest

import oocbe
from oocbe.errors import ResourceError, UsageError
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.operators import result_memory
from oocbe.operators.result_memory import kept_columns
from oocbe.stretches import ALIGNMENT, Region

KEPT = np.dtype(np.uint64), np.dtype(np.int32)


@pytest.fixture(scope="module", autouse=True)
def backend():
    """No operator runs here; the folder's fixture would run everything twice."""


@pytest.fixture
def region(monkeypatch):
    found = Region(np.zeros(12 * ALIGNMENT + 2 * ALIGNMENT, np.uint8), lambda memory: None)
    monkeypatch.setattr(result_memory, "_region", found)
    return found


def test_columns_share_the_largest_stretch_by_their_items(region):
    kept = kept_columns(KEPT)
    keys, values = kept.columns
    assert len(keys) == len(values) == ALIGNMENT
    assert (keys.dtype, values.dtype) == KEPT
    assert kept_columns(KEPT) is None
    keys[:], values[:] = 1, 2
    kept.shorten(10)
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
