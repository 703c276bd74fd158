"""Prefix sums, and the greatest of counts, on the device."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.pairs.selection import COUNTS, PREFIX_TILE, PRODUCTS, UNITS, summed
from oocbe.tables.numbers import greatest
from tests.kernels.conftest import skip_without_gpu

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _device():
    skip_without_gpu()


LISTS = [(0,), (1,), (31,), (5000,), (0, 3), (PREFIX_TILE, 0), (PREFIX_TILE + 1, 7 * PREFIX_TILE), (70_001, 2)]


@pytest.mark.parametrize("lengths", LISTS)
def test_one_or_two_prefix_sums_in_a_launch_and_their_totals(lengths):
    random = np.random.default_rng(sum(lengths))
    pairs = [random.integers(0, 2000, (2, length)) for length in lengths]
    given = [tuple(cupy().asarray(numbers) for numbers in pair) for pair in pairs]
    for term, parts, expected in (
        (COUNTS, (1, 1), [first for first, _ in pairs]),
        (PRODUCTS, (1, 1), [first * second for first, second in pairs]),
        (UNITS, (1, 8), [-(-p[0] // n) * -(-p[1] // 512) for p, n in zip(pairs, (1, 8), strict=False)]),
    ):
        summands = [(*pair, part) for pair, part in zip(given, parts, strict=False)]
        found, totals = summed(term, *summands)
        for sums, numbers in zip(found, expected, strict=True):
            assert np.array_equal(sums.get(), [0, *np.cumsum(numbers)])
        assert totals.numbers().tolist() == [numbers.sum() for numbers in expected]


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
