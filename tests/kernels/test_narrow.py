"""Numbers in fewer bytes come back as they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocbe.kernels.cpu.packing.fields import narrow, widen


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@given(st.integers(0, 70), st.integers(1, 8), st.integers(0, (1 << 64) - 1), st.integers(0, 1000))
def test_there_and_back(dtype, rows, size, base, seed):
    size = min(size, np.dtype(dtype).itemsize)
    distances = np.random.default_rng(seed).integers(0, (1 << 8 * size) - 1, rows, dtype=np.uint64, endpoint=True)
    numbers = (distances + np.uint64(base)).astype(dtype)
    data, found = np.empty(rows * size, dtype=np.uint8), np.empty(rows, dtype=dtype)
    narrow(numbers, np.uint64(base), size, data)
    widen(data, np.uint64(base), size, found)
    assert np.array_equal(found, numbers)
    assert [
        int.from_bytes(data[i : i + size].tobytes(), "little") for i in range(0, len(data), size)
    ] == distances.tolist()
