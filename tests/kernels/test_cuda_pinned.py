"""Pinned memory is used again, and no more of it held than is of use."""

import numpy as np
import pytest

from oocbe.errors import UsageError
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.kernels.cuda.pinned import PinnedMemory, pinned_memory, touched
from oocbe.stretches import ALIGNMENT, Region


def pool():
    made, gone = [], []

    def make(nbytes):
        made.append(nbytes)
        return Region(np.zeros(nbytes, np.uint8), lambda memory: gone.append(len(memory)))

    return PinnedMemory(make), made, gone


def test_memory_that_is_free_is_used_again():
    memory, made, _ = pool()
    for size in (5 * ALIGNMENT, 4 * ALIGNMENT, 1, 5 * ALIGNMENT):
        memory.take(size)[:] = 1
    assert made == [5 * ALIGNMENT]
    assert memory.held_bytes() == 5 * ALIGNMENT


def test_regions_that_are_free_go_before_a_larger_one_is_taken():
    memory, made, gone = pool()
    held = memory.take(ALIGNMENT)
    memory.take(2 * ALIGNMENT)
    memory.take(3 * ALIGNMENT)
    assert (made, gone) == ([ALIGNMENT, 2 * ALIGNMENT, 3 * ALIGNMENT], [2 * ALIGNMENT])
    assert memory.held_bytes() == 4 * ALIGNMENT
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
