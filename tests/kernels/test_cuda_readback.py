"""Numbers read back from the device: those that were there when the call was made."""

import numpy as np
import pytest

from oocbe.kernels.cuda.device import why_unavailable

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(why_unavailable() is not None, reason="no device")]


@pytest.mark.parametrize("dtype", ["int32", "float32", "uint32", "int64", "uint64", "float64"])
@pytest.mark.parametrize("count", [1, 2, 16, 17, 50])
def test_numbers_arrive_in_order(dtype, count):
    import cupy

    from oocbe.kernels.cuda.transfer.readback import Readback

    numbers = (np.arange(500) * 1234567 - 9).astype(dtype)
    on_device = cupy.asarray(numbers)
    sizes = [1 + place % 9 for place in range(count)]
    found = Readback(*(on_device[3 * place : 3 * place + size] for place, size in enumerate(sizes))).numbers()
    expected = np.concatenate([numbers[3 * place : 3 * place + size] for place, size in enumerate(sizes)])
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


def test_later_work_does_not_change_what_is_read():
    import cupy

    from oocbe.kernels.cuda.transfer.readback import Readback

    array = cupy.arange(1000)
    readbacks = []
    for _ in range(20):
        array += 1
        readbacks.append(Readback(array[-1:], array[:1]))
    del array
    assert [readback.numbers().tolist() for readback in readbacks] == [[1000 + t, 1 + t] for t in range(20)]
