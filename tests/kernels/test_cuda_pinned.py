"""Pinned memory is used again, and no more of it held than is of use."""

import numpy as np
import pytest

from oocbe.errors import UsageError
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.kernels.cuda.transfer.pinned import PinnedMemory, pinned_memory, touched
from oocbe.runtime.stretches import ALIGNMENT, Region


def pool():
    made, gone = [], []

    def make(nbytes):
        made.append(nbytes // ALIGNMENT)
        return Region(np.zeros(nbytes, np.uint8), lambda: gone.append(nbytes // ALIGNMENT))

    return PinnedMemory(make), made, gone


def test_memory_that_is_free_is_used_again():
    memory, made, _ = pool()
    for pages in (16, 12, 1, 16, 17, 18):  # a region has an eighth more than was asked for
        memory.take(pages * ALIGNMENT)[:] = 1
    assert made == [18]
    assert memory.held_bytes() == 18 * ALIGNMENT


def test_regions_that_are_free_go_before_a_larger_one_is_taken():
    memory, made, gone = pool()
    held = memory.take(8 * ALIGNMENT)
    memory.take(16 * ALIGNMENT)
    memory.take(32 * ALIGNMENT)
    assert (made, gone) == ([9, 18, 36], [18])
    assert memory.held_bytes() == 45 * ALIGNMENT
    del held


def test_no_more_is_kept_than_is_allowed():
    memory, _, gone = pool()
    held = memory.take(8 * ALIGNMENT)
    memory.take(16 * ALIGNMENT)
    memory.keep_within(27 * ALIGNMENT)
    assert gone == []
    memory.keep_within(26 * ALIGNMENT)
    assert gone == [18]
    memory.keep_within(1)
    assert gone == [18]
    assert memory.held_bytes() == 9 * ALIGNMENT
    del held


@pytest.mark.parametrize("nbytes", [1, ALIGNMENT, (40 << 20) + 5])
def test_touched_memory_is_zero_and_may_be_written_to(nbytes):
    memory = touched(nbytes)
    assert len(memory) == nbytes
    assert not memory.any()
    memory[:] = 1


@pytest.mark.gpu
@pytest.mark.skipif(why_unavailable() is not None, reason="no device")
def test_the_device_copies_from_pinned_memory_and_to_it():
    import cupy

    source = pinned_memory().take(100_000)
    source[:] = np.arange(100_000) % 251
    assert cupy.cuda.runtime.pointerGetAttributes(source.ctypes.data).type == 1
    target = pinned_memory().take(100_000)
    target[:] = 0
    on_device = cupy.asarray(source)
    on_device.get(out=target)
    assert (source == target).all()


@pytest.mark.skipif(why_unavailable() is None, reason="there is a device")
def test_without_a_device_an_error_says_so():
    with pytest.raises(UsageError, match="cuda backend cannot be used"):
        pinned_memory().take(1)
