"""Complete tables on the device, in what large buckets reach only: products, tiles cut, long eliminated axes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oocbe.kernels.cuda.complete import complete
from oocbe.kernels.interface import CompleteFunction
from oocbe.model.infeasible import feasible_mask, infeasible_value
from oocbe.model.semiring import LOG_SUM_EXP, MAX_SUM, MIN_SUM, SUM_PRODUCT
from tests.helpers.complete_buckets import CASES, check, expected, random_bucket

pytestmark = pytest.mark.gpu


@pytest.fixture
def small_thresholds(monkeypatch):
    """Products, parts of eliminated axes and tiny tiles in small buckets, too."""
    monkeypatch.setattr(complete, "LEAST_SHARED", 1)
    monkeypatch.setattr(complete, "LEAST_SIDE", 1)
    monkeypatch.setattr(complete, "LEAST_CONTIGUOUS", 1)
    monkeypatch.setattr(complete, "MANY_USES", 3)
    monkeypatch.setattr(complete, "LONG_INNER", 3)
    monkeypatch.setattr(complete, "MANY_ELIMINATED", 4)
    monkeypatch.setattr(complete, "TILE_CELLS", 40)
    monkeypatch.setattr(complete, "LEAST_TILE_CELLS", 8)


@pytest.mark.parametrize(("semiring", "dtype"), CASES, ids=str)
def test_small_buckets_as_large_ones(cuda, small_thresholds, semiring, dtype):
    @settings(max_examples=60)
    @given(
        sizes=st.lists(st.integers(1, 7), min_size=1, max_size=6),
        eliminated=st.integers(0, 3),
        functions=st.integers(1, 9),
        seed=st.integers(0, 2**32 - 1),
    )
    def run(sizes, eliminated, functions, seed):
        bucket = random_bucket(
            np.random.default_rng(seed), semiring, dtype, sizes, min(eliminated, len(sizes)), functions
        )
        if semiring is SUM_PRODUCT and dtype == "int16":
            assume(expected(bucket, semiring).max() <= np.iinfo(dtype).max)
        check(cuda, bucket, semiring, dtype)

    run()


@pytest.mark.parametrize(("semiring", "dtype"), CASES, ids=str)
def test_tables_gone_through_as_they_lie(cuda, monkeypatch, semiring, dtype):
    """One table with all axes in any order, reduced or multiplied by another one, in runs of few and of many cells."""
    monkeypatch.setattr(complete, "LEAST_CELLS", 1)
    monkeypatch.setattr(complete, "LEAST_RUN", 1)
    monkeypatch.setattr(complete, "FEW_RESULTS", 1)

    @settings(max_examples=60)
    @given(
        sizes=st.lists(st.integers(1, 7), min_size=1, max_size=6),
        eliminated=st.integers(0, 6),
        longest=st.sampled_from([6, 40, 600, 2048]),
        seed=st.integers(0, 2**32 - 1),
    )
    def run(sizes, eliminated, longest, seed):
        assume(np.dtype(dtype) != np.int16 or math.prod(sizes) <= MOST_SUMMED)
        monkeypatch.setattr(complete, "MOST_RUN", longest)
        random, gone = np.random.default_rng(seed), min(eliminated, len(sizes))
        functions = 1 if gone else 2
        bucket = random_bucket(
            random, semiring, dtype, sizes, gone, functions, int(random.integers(functions)), not gone
        )
        check(cuda, bucket, semiring, dtype)

    run()


MOST_SUMMED = 3_000
"""Values of less than ten whose sum has 16 bits."""

ABSENT = 1_000_000
"""Stands for what is infeasible in expected sums of integers."""


def make(random, semiring, dtype, scopes, sizes) -> tuple[list[CompleteFunction], list[np.ndarray]]:
    """Functions over scopes (fastest axis first), and arrays with an axis for each of the bucket's, in wide types."""
    kind, functions, arrays = np.dtype(dtype), [], []
    for scope in scopes:
        shape = [sizes[a] for a in reversed(scope)]
        dense = random.integers(0, 9, shape) if kind.kind == "i" else random.random(shape).round(3)
        feasible = random.random(shape) < 0.9
        bad = infeasible_value(kind, semiring.combination, semiring.marginalisation)
        strides, step = [0] * len(sizes), 1
        for axis in scope:
            strides[axis] = step
            step *= sizes[axis]
        functions.append(CompleteFunction(np.where(feasible, dense, bad).astype(kind).ravel(), tuple(strides)))
        wide_bad = bad if kind.kind == "f" or semiring is SUM_PRODUCT else np.sign(int(bad)) * ABSENT
        wide = np.where(feasible, dense, wide_bad).T
        order = np.argsort(scope)
        arrays.append(wide.transpose(order).reshape([n if a in scope else 1 for a, n in enumerate(sizes)]))
    return functions, arrays


LARGE = {
    # columns, rows, batch, shared
    "both by the shared axis": ((130, 200, 3, 21), [(3, 1, 2), (3, 0, 2)]),
    "neither by the shared axis": ((130, 200, 3, 21), [(1, 2, 3), (0, 2, 3)]),
    "a smaller side": ((40, 300, 3, 16), [(3, 1, 2), (0, 3, 2)]),
    "functions on both sides": ((100, 90, 5, 10), [(3, 1, 2), (3, 0), (2,), (3,), (0, 2), (1,)]),
    "one that touches both": ((12, 11, 9, 10), [(3, 0, 1), (3, 2, 1), (0, 2)]),
    "the fastest axis on both sides": ((8, 60, 70, 16), [(3, 0, 1), (3, 0, 2)]),
}


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("semiring", [MIN_SUM, MAX_SUM, SUM_PRODUCT], ids=str)
@pytest.mark.parametrize("shape", LARGE)
def test_products(cuda, semiring, dtype, shape):
    sizes, scopes = LARGE[shape]
    if semiring is SUM_PRODUCT and dtype == "int16":
        pytest.skip("sums of products that int16 does not hold")
    functions, arrays = make(np.random.default_rng(7), semiring, dtype, scopes, sizes)
    kind = np.dtype(dtype)
    joined = arrays[0]
    for array in arrays[1:]:
        joined = joined * array if semiring is SUM_PRODUCT else joined + array
    rows = joined.max(-1) if semiring is MAX_SUM else joined.min(-1) if semiring is MIN_SUM else joined.sum(-1)
    codes = (semiring.combination, semiring.marginalisation)
    found = cuda.eliminate_complete(functions, sizes, 1, *codes, dtype=kind)
    wanted = rows.T.ravel()
    if semiring is not SUM_PRODUCT:
        feasible = np.abs(wanted) < ABSENT // 2
        assert np.array_equal(feasible_mask(found, *codes), feasible)
        found, wanted = found[feasible], wanted[feasible]
    if kind.kind == "i":
        assert np.array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-4 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("sizes", [(1 << 20,), (100_003,), (3, 1 << 18), (1 << 18, 3)], ids=str)
@pytest.mark.parametrize("semiring", [MIN_SUM, SUM_PRODUCT, LOG_SUM_EXP], ids=str)
def test_long_eliminated_axes(cuda, semiring, sizes):
    """To one value, and to a few, along the fastest axis and across it."""
    random = np.random.default_rng(3)
    values = random.random(int(np.prod(sizes)))
    codes = (semiring.combination, semiring.marginalisation)
    for eliminated in range(len(sizes)):
        strides = np.cumprod([1, *sizes])[: len(sizes)].tolist()
        order = [a for a in range(len(sizes)) if a != eliminated] + [eliminated]
        function = CompleteFunction(values, tuple(strides[a] for a in order))
        found = cuda.eliminate_complete([function], [sizes[a] for a in order], 1, *codes, dtype=np.dtype(np.float64))
        table = values.reshape(sizes[::-1]).T
        wanted = semiring.reduce(np.moveaxis(table, eliminated, -1), axis=-1)
        np.testing.assert_allclose(found, np.ravel(wanted), rtol=1e-9)


def test_a_bucket_is_checked_against_the_processor(cuda):
    """More cells than one tile and one place of the high axes, in a shape of real buckets."""
    random = np.random.default_rng(9)
    sizes = [5] * 8 + [5]
    scopes = [(8, 0, 1, 3, 5), (8, 2, 4, 6, 7), (8, 0, 7), (1, 2)]
    functions, _ = make(random, MIN_SUM, "int32", scopes, sizes)
    from oocbe.kernels.cpu.complete.complete import eliminate_complete

    codes = (MIN_SUM.combination, MIN_SUM.marginalisation)
    expected = eliminate_complete(functions, sizes, 1, *codes, dtype=np.dtype(np.int32))
    found = cuda.eliminate_complete(functions, sizes, 1, *codes, dtype=np.dtype(np.int32))
    assert np.array_equal(found, expected)
