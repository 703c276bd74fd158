"""Random buckets of complete functions for the tests of their kernels, and their results by NumPy in wide types."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from oocbe.kernels.interface import CompleteFunction
from oocbe.model.infeasible import feasible_mask, infeasible_value, largest_feasible
from oocbe.model.semiring import LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT, Combination, Semiring

SUMS = (MIN_SUM, MAX_SUM)
INTEGERS, FLOATS = ("int16", "int32", "int64"), ("float32", "float64")
CASES = [(s, d) for s in (*SUMS, MAX_PRODUCT, SUM_PRODUCT) for d in (*INTEGERS, *FLOATS)]
CASES += [(LOG_SUM_EXP, d) for d in FLOATS]


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


def random_bucket(
    random, semiring: Semiring, dtype: str, sizes, eliminated: int, functions: int, whole: int = -1, alike: bool = False
) -> Bucket:
    """A bucket; function number ``whole`` has all axes, in the bucket's order where ``alike``."""
    kind = np.dtype(dtype)
    made, arrays = [], []
    for number in range(functions):
        axes = [a for a in range(len(sizes)) if number == whole or random.random() < 0.6]
        order = random.permutation(axes).astype(int).tolist()  # the first one fastest: a transposition of the bucket's
        if number == whole and alike:
            order = axes
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
