"""Prefix sums, and the greatest of counts, on the device."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.kernels.cuda.buckets.flags import MOST_SUMMED, SUM_THREADS, prefix_sum
from oocbe.kernels.cuda.device import cupy
from oocbe.tables.limbs import greatest
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


@pytest.mark.parametrize("rows", [1, 31, 257, 100_000, 1_000_003])
@pytest.mark.parametrize("limbs", [1, 2, 3, 8])
def test_the_greatest_of_counts(rows, limbs):
    """Also where it is the first or the last row, or several rows have the greatest limb."""
    random = np.random.default_rng(rows + limbs)
    values = random.integers(0, 1 << 64, (rows, limbs), dtype=np.uint64)
    values[:, -1] >>= np.uint64(62)
    for place in (None, 0, rows - 1):
        if place is not None:
            values[place] = np.uint64((1 << 64) - 1)
        given = values.view(np.int64)
        assert greatest(cupy().asarray(given)) == greatest(given)
        if place is not None:
            values[place] = 0
