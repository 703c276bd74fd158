"""The kernel for buckets of complete tables against NumPy's broadcasting in wide types, in every semiring and dtype."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.kernels import backend_named
from oocbe.kernels.interface import CompleteFunction
from oocbe.model.infeasible import infeasible_value, largest_feasible
from oocbe.model.semiring import LOG_SUM_EXP, MAX_SUM, SUM_PRODUCT, Combination
from tests.helpers.complete_buckets import CASES, FLOATS, INTEGERS, SUMS, Bucket, check, random_bucket
from tests.helpers.effort import examples


@pytest.fixture(autouse=True)
def _has_the_kernel(request):
    kernels = request.getfixturevalue("kernels") if "kernels" in request.fixturenames else None
    if kernels is not None and not hasattr(kernels.backend, "eliminate_complete"):
        pytest.skip(f"the {kernels.backend.name} backend has no kernel for complete tables")


@pytest.mark.parametrize(("semiring", "dtype"), CASES, ids=str)
@settings(max_examples=examples(80))
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


@pytest.mark.parametrize(("semiring", "dtype"), CASES, ids=str)
@settings(max_examples=examples(80))
@given(
    sizes=st.lists(st.integers(1, 5), max_size=6),
    eliminated=st.integers(0, 6),
    functions=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
    piece_rows=st.sampled_from([None, None, 1, 7]),
)
def test_small_buckets_as_if_they_were_large(semiring, dtype, sizes, eliminated, functions, seed, piece_rows):
    """On the CPU, every bucket is arranged, and every result with few cells is made in two steps."""
    from oocbe.kernels.cpu.complete import complete, complete_copy

    backend = backend_named("cpu")
    bucket = random_bucket(np.random.default_rng(seed), semiring, dtype, sizes, min(eliminated, len(sizes)), functions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(complete, "SMALL_CELLS", 0)
        patch.setattr(complete, "FEW_CELLS", 4)
        patch.setattr(complete_copy, "LEAST_RUN", 4)
        check(backend, bucket, semiring, dtype, piece_rows)


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


def shapes_and_cases() -> list:
    """Each shape with each semiring and each dtype, and each of their pairs with some shape; the others are slow."""
    made = []
    for (turn, shape), (place, case) in itertools.product(enumerate(SHAPES), enumerate(CASES)):
        is_quick = (turn + place) % (2 if case[0] is LOG_SUM_EXP else 4) == 0  # which has dtypes of floats alone
        marks = () if is_quick else pytest.mark.slow
        made.append(pytest.param(shape, *case, id="-".join(map(str, (shape, *case))), marks=marks))
    return made


@pytest.mark.parametrize(("shape", "semiring", "dtype"), shapes_and_cases())
def test_shapes_of_buckets(kernels, shape, semiring, dtype):
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


@pytest.mark.parametrize(("semiring", "dtype"), CASES, ids=str)
@settings(max_examples=examples(80))
@given(
    sizes=st.lists(st.integers(1, 4), max_size=6),
    eliminated=st.integers(2, 6),
    functions=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_runs_with_many_cells_are_eliminated_axis_by_axis(semiring, dtype, sizes, eliminated, functions, seed):
    from oocbe.kernels.cpu.complete import complete

    bucket = random_bucket(np.random.default_rng(seed), semiring, dtype, sizes, min(eliminated, len(sizes)), functions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(complete, "LARGEST_PIECE", 4)
        check(backend_named("cpu"), bucket, semiring, dtype)
