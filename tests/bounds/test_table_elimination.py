"""The elimination of a variable from dense functions is that of their sum, cell by cell."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.bounds.kernels.cpu.table_elimination import BLOCK_CELLS, eliminate_variable
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.kernels.cpu.values import neutral_value
from oocbe.model.semiring import Marginalisation
from tests.helpers.effort import examples

SIZES = [(3,), (1, 1), (4, 200), (2, 3, BLOCK_CELLS), (2, BLOCK_CELLS - 1, 2), (3, 9, 7, 5), (2, 1, 3, 4, 5, 6)]


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("sizes", SIZES)
def test_every_cell_is_the_least_sum_and_its_first_value(sizes, dtype):
    worst = np.full(1, neutral_value(Marginalisation.MIN, np.dtype(dtype)))
    for seed in range(examples(40)):
        random = np.random.default_rng(seed)
        total, permitted, functions, strides = np.zeros(sizes, dtype), np.ones(sizes, bool), [], []
        for _ in range(int(random.integers(5))):
            shape = [size if random.integers(2) else 1 for size in sizes]
            largest = 2 if random.integers(2) else 1 << 57
            own, allows = random.integers(-largest, largest, shape).astype(dtype), random.random(shape) >= 0.2
            allows |= bool(random.integers(2))
            total, permitted = total + own, permitted & allows
            functions.append((own.ravel(), allows.ravel()))
            steps = zip(shape, own.strides, strict=True)
            strides.append([step // own.itemsize if size > 1 else 0 for size, step in steps])
        cells = int(np.prod(sizes[1:]))
        best, is_left, choice = np.empty(cells, dtype), np.empty(cells, bool), np.empty(cells, np.uint8)
        eliminate_variable(
            np.concatenate([best[:0], *(own for own, _ in functions)]),
            np.concatenate([is_left[:0], *(allows for _, allows in functions)]),
            starts_of([len(own) for own, _ in functions]),
            np.array(strides, dtype=np.int64).reshape(-1, len(sizes)),
            np.array(sizes),
            worst,
            best,
            is_left,
            choice,
        )
        total = np.where(permitted, total, worst)
        assert (is_left == permitted.any(axis=0).ravel()).all()
        assert (best == np.where(is_left, total.min(axis=0).ravel(), 0)).all()
        assert (choice == total.argmin(axis=0).ravel()).all()
