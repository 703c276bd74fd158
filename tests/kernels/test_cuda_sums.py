"""Prefix sums on the device."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.kernels.cuda.buckets.flags import MOST_SUMMED, SUM_THREADS, prefix_sum
from oocbe.kernels.cuda.device import cupy
from tests.kernels.conftest import skip_without_gpu

pytestmark = pytest.mark.gpu

LENGTHS = (0, 1, 31, 32, 33, SUM_THREADS - 1, SUM_THREADS, SUM_THREADS + 1, 5000, MOST_SUMMED, MOST_SUMMED + 1)


@pytest.fixture(autouse=True)
def _device():
    skip_without_gpu()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("is_in_place", [False, True])
def test_prefix_sums_of_short_and_long_lists(length, is_in_place):
    counts = np.random.default_rng(length).integers(0, 1 << 40, length)
    given = cupy().asarray(counts)
    found = prefix_sum(given, into=given if is_in_place else None)
    assert found.dtype == np.int64
    assert np.array_equal(found.get(), np.cumsum(counts))
    assert np.array_equal(given.get(), found.get() if is_in_place else counts)
