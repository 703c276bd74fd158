"""The kernel for buckets of complete tables against NumPy's broadcasting in wide types, in every semiring and dtype."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.infeasible import feasible_mask, infeasible_value, largest_feasible
from oocbe.kernels.interface import CompleteFunction
from oocbe.semiring import LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT, Combination, Semiring

SUMS = (MIN_SUM, MAX_SUM)
INTEGERS, FLOATS = ("int16", "int32", "int64"), ("float32", "float64")
CASES = [(s, d) for s in (*SUMS, MAX_PRODUCT, SUM_PRODUCT) for d in (*INTEGERS, *FLOATS)]
CASES += [(LOG_SUM_EXP, d) for d in FLOATS]


@pytest.fixture(autouse=True)
def _has_the_kernel(kernels):
    if not hasattr(kernels.backend, "eliminate_complete"):
        pytest.skip(f"the {kernels.backend.name} backend has no kernel for complete tables")


@dataclass
class Bucket:
    """Random functions over some axes, and what they are made of.

    ``arrays`` have one axis a bucket axis, of size 1 where the function lacks it, in bucket order; float64 or Python's
    integers, with the semiring's zero where an assignment is infeasible.
    """

    functions: list[CompleteFunction]
    arrays: list[np.ndarray]
    sizes: list[int]
    eliminated: int


def random_bucket(random, semiring: Semiring, dtype: str, sizes, eliminated: int, functions: int) -> Bucket:
    kind = np.dtype(dtype)
    made, arrays = [], []
    for _ in range(functions):
        axes = [a for a in range(len(sizes)) if random.random() < 0.6]
        order = random.permutation(axes).astype(int).tolist()  # the first one fastest: a transposition of the bucket's
        shape = tuple(sizes[a] for a in axes)
        feasible = random.random(shape) < random.choice([0.5, 0.95, 1.0])
        if kind.kind == "f":
            dense = random.random(shape) + 0.1
        elif semiring.combination is Combination.ADD:
            most = largest_feasible(kind) // max(1, functions)
            dense = random.integers(-most, most + 1, shape)
        else:
            dense = random.integers(0, 4, shape)
        stored = np.where(feasible, dense, infeasible_value(kind, semiring.combination, semiring.marginalisation))
        strides = [0] * len(sizes)
        step = 1
        for axis in order:
            strides[axis] = step
            step *= sizes[axis]
        offset = int(random.integers(0, 5))
        flat = np.empty(stored.size + offset, dtype=kind)
        flat[offset:] = stored.transpose([axes.index(a) for a in reversed(order)]).ravel()
        made.append(CompleteFunction(flat[offset:], tuple(strides)))
        exact = np.where(feasible, np.asarray(dense).astype(object if kind.kind == "i" else float), semiring.zero)
        arrays.append(np.asarray(exact).reshape([sizes[a] if a in axes else 1 for a in range(len(sizes))]))
    return Bucket(made, arrays, list(sizes), eliminated)


def expected(bucket: Bucket, semiring: Semiring) -> np.ndarray:
    """Result cells, the first axis fastest."""
    shape = tuple(bucket.sizes)
    joined = np.full(shape, semiring.one, dtype=bucket.arrays[0].dtype if bucket.arrays else object)
    for array in bucket.arrays:
        joined = np.asarray(joined + array if semiring.combination is Combination.ADD else joined * array)
    kept = len(shape) - bucket.eliminated
    rows = joined.reshape(*shape[:kept], math.prod(shape[kept:]))
    reduced = semiring.reduce(rows.astype(np.float64) if semiring is LOG_SUM_EXP else rows, axis=-1)
    return np.asarray(reduced).transpose().ravel()


def check(kernels, bucket: Bucket, semiring: Semiring, dtype: str, piece_rows=None) -> None:
    codes = (semiring.combination, semiring.marginalisation)
    kind = np.dtype(dtype)
    found = kernels.eliminate_complete(
        bucket.functions, bucket.sizes, bucket.eliminated, *codes, dtype=kind, piece_rows=piece_rows
    )
    wanted = expected(bucket, semiring)
    assert found.dtype == kind
    assert found.shape == wanted.shape
    feasible = wanted.astype(np.float64) != semiring.zero
    assert np.array_equal(feasible_mask(found, *codes), feasible)
    assert (found[~feasible] == infeasible_value(kind, *codes)).all()
    if kind.kind == "i":
        assert found[feasible].tolist() == wanted[feasible].tolist()
    else:
        tolerance = 1e-4 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(found[feasible], wanted[feasible].astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("semiring", "dtype"), CASES, ids=str)
@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), max_size=6),
    eliminated=st.integers(0, 6),
    functions=st.integers(0, 6),
    seed=st.integers(0, 2**32 - 1),
    piece_rows=st.sampled_from([None, None, 1, 7]),
)
def test_against_broadcasting(kernels, semiring, dtype, sizes, eliminated, functions, seed, piece_rows):
    eliminated = min(eliminated, len(sizes))
    if functions == 0 and dtype in FLOATS:
        functions = 1
    bucket = random_bucket(np.random.default_rng(seed), semiring, dtype, sizes, eliminated, functions)
    check(kernels, bucket, semiring, dtype, piece_rows)


SHAPES = {
    "matrix product": ((67, 45, 33), 1, [(0, 2), (2, 1)]),
    "product of transposed": ((67, 45, 33), 1, [(2, 0), (1, 2)]),
    "join": ((130, 40, 6), 0, [(0, 1), (2, 0)]),
    "outer join": ((513, 300), 0, [(0,), (1,)]),
    "maximise the last": ((3000, 17), 1, [(0, 1)]),
    "maximise the first": ((3000, 17), 1, [(1, 0)]),
    "binary": ((2,) * 16, 1, [tuple(range(16)), (0, 3, 15), (1, 2, 4, 15), (7, 15)]),
    "two large, binary": ((2,) * 16, 1, [(*range(0, 10), 15), (*range(3, 15), 15)]),
    "to a number": ((40, 50, 60), 3, [(0, 1), (1, 2), (2, 0)]),
    "five": ((30, 4, 7, 9), 1, [(0, 3), (1, 3), (2, 3), (0, 1, 3), (0, 2, 3)]),
}


@pytest.mark.parametrize(("semiring", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_of_buckets(kernels, semiring, dtype, shape):
    sizes, eliminated, scopes = SHAPES[shape]
    random = np.random.default_rng(5)
    kind, functions, arrays = np.dtype(dtype), [], []
    for scope in scopes:
        dims = [sizes[a] for a in reversed(scope)]
        if semiring.combination is Combination.ADD:
            most = 1000 // len(scopes)
            dense = random.integers(-most, most, dims)
        else:
            # Bits, and sums of them that int16 holds: more would be the range analysis's to refuse.
            dense = (random.random(dims) < 0.02).astype(np.int64)
        feasible = random.random(dims) < 0.9
        stored = np.where(feasible, dense, infeasible_value(kind, semiring.combination, semiring.marginalisation))
        steps = np.cumprod([1, *(sizes[a] for a in scope)])[:-1]
        strides = [0] * len(sizes)
        for axis, step in zip(scope, steps, strict=True):
            strides[axis] = int(step)
        functions.append(CompleteFunction(stored.astype(kind).ravel(), tuple(strides)))
        exact = np.where(feasible, dense, semiring.zero).transpose()
        order = np.argsort(scope)
        shaped = exact.transpose(order).reshape([n if a in scope else 1 for a, n in enumerate(sizes)])
        arrays.append(shaped.astype(np.float64))
    check(kernels, Bucket(functions, arrays, list(sizes), eliminated), semiring, dtype)


def test_ones_are_marginalised_where_there_is_no_function(kernels):
    def counted(semiring, dtype):
        codes = (semiring.combination, semiring.marginalisation)
        return kernels.eliminate_complete([], [3, 5], 1, *codes, dtype=np.dtype(dtype)).tolist()

    assert counted(SUM_PRODUCT, np.int32) == [5, 5, 5]
    assert counted(MAX_SUM, np.int16) == [0, 0, 0]
    assert counted(LOG_SUM_EXP, np.float64) == pytest.approx([math.log(5)] * 3)


def test_sums_of_many_infeasible_values_do_not_wrap(kernels):
    for dtype in map(np.dtype, INTEGERS):
        for semiring in SUMS:
            codes = (semiring.combination, semiring.marginalisation)
            bad = infeasible_value(dtype, *codes)
            feasible = largest_feasible(dtype) // 9
            functions = [CompleteFunction(np.array([bad, feasible, -feasible], dtype), (1,)) for _ in range(9)]
            found = kernels.eliminate_complete(functions, [3], 0, *codes, dtype=dtype)
            assert found.tolist() == [bad, 9 * feasible, -9 * feasible]
