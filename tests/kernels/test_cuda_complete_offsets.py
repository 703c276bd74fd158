"""Buckets of more cells than 32 bits count: what the device is asked to do stays within what its kernels can address.

No device is needed: launches are recorded, and their plans read as the kernel of :file:`complete.cu` reads them.
"""

from __future__ import annotations

from math import prod
from types import SimpleNamespace

import numpy as np
import pytest

from oocbe.kernels.bucket_axes import Axis, bucket_axes, cells
from oocbe.kernels.cuda.complete import complete
from oocbe.model.semiring import LOG_SUM_EXP, MIN_SUM

BITS_32 = 1 << 32


@pytest.fixture
def launches(monkeypatch):
    """Buckets that would be worked out one after the other: values, kept and eliminated axes, and the result."""
    found = []
    runtime = SimpleNamespace(getDevice=lambda: 0)
    fake = SimpleNamespace(empty=lambda count, dtype: Values(count), cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setattr(complete, "cupy", lambda: fake)
    monkeypatch.setattr(complete, "_in_runs", lambda *_: None)  # which goes through large tables as they lie
    monkeypatch.setattr(complete, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(complete, "_run", lambda values, kept, gone, out, operation: found.append((values, kept, gone)))
    monkeypatch.setattr(
        complete, "multiply", lambda product, values, out, operation: found.append((values, None, None))
    )
    return found


class Values:
    """An array that is never made."""

    def __init__(self, size):
        self.size = size


def check_offsets(values, kept, gone, itemsize):
    """Every offset that has 32 bits in the kernel fits; tiles and eliminated cells are as many as the bucket has."""
    functions = len(values)
    plan = complete._Tiles.of(kept, gone, functions, itemsize).plan.tolist()
    lows, highs, outers, low_cells, high_cells, outer_cells, inner_cells, prefix, _, whole = plan[:10]
    rest = plan[10:]

    def taken(axes, arrays):
        sizes, strides = rest[:axes], [rest[axes * (1 + f) : axes * (2 + f)] for f in range(arrays)]
        del rest[: axes * (1 + arrays)]
        return sizes, strides

    low_sizes, low_strides = taken(lows, functions)
    high_sizes, _ = taken(highs, functions + 1)
    outer_sizes, outer_strides = taken(outers, functions)
    inner_strides = rest[:functions]
    assert (prod(low_sizes), prod(high_sizes), prod(outer_sizes)) == (low_cells, high_cells, outer_cells)
    assert inner_cells * outer_cells == cells(gone)
    covered = low_cells * high_cells
    assert covered == cells(kept) if not whole else covered >= cells(kept) == prefix * whole * cells_above(kept, prefix)
    assert low_cells < BITS_32 and inner_cells < BITS_32
    for f, function in enumerate(values):
        assert sum((n - 1) * s for n, s in zip(low_sizes, low_strides[f], strict=True)) < BITS_32
        assert (inner_cells - 1) * inner_strides[f] < BITS_32
        reach = (inner_cells - 1) * inner_strides[f]
        reach += sum((n - 1) * s for n, s in zip(outer_sizes, outer_strides[f], strict=True))
        assert reach == sum((axis.size - 1) * axis.strides[f] for axis in gone) < function.size


def cells_above(kept, prefix):
    """Cells of the axes above the one that tiles cut, which ``prefix`` cells lie below."""
    below = 1
    for number, axis in enumerate(kept):
        if below == prefix:
            return cells(kept[number + 1 :])
        below *= axis.size
    raise AssertionError(f"no axis begins after {prefix} cells")


def launched(launches, scopes, sizes, eliminated, semiring, dtype):
    """Run a bucket of functions over scopes (fastest axis first) and check all launches; cells of the largest input."""
    strides, values = [], []
    for scope in scopes:
        row, step = [0] * len(sizes), 1
        for axis in scope:
            row[axis] = step
            step *= sizes[axis]
        strides.append(row)
        values.append(Values(step))
    kept, gone = bucket_axes(strides, sizes, eliminated)
    operation = complete.CellOperation.of(semiring.combination, semiring.marginalisation, np.dtype(dtype))
    complete._eliminate(values, kept, gone, operation)
    assert launches
    for inputs, their_kept, their_gone in launches:
        if their_kept is None:  # a product: its kernel has offsets of 32 bits all over
            assert all(v.size <= BITS_32 for v in inputs)
        else:
            check_offsets(inputs, their_kept, their_gone, np.dtype(dtype).itemsize)
    return max(v.size for inputs, _, _ in launches for v in inputs)


def test_parts_of_a_product_with_many_results(launches):
    """2^29 results of 2^13 eliminated cells each, in 16 parts: 2^33 cells in between."""
    largest = launched(launches, [(2, 0), (2, 1)], (1 << 14, 1 << 15, 1 << 13), 1, MIN_SUM, np.int32)
    assert largest == 1 << 33


def test_parts_along_a_long_eliminated_axis(launches):
    """2^29 results, 1024 values to be added up for each in 16 parts."""
    sizes = (1 << 14, 1 << 15, 1024)
    assert launched(launches, [(2, 0), (2, 1)], sizes, 1, LOG_SUM_EXP, np.float32) == 1 << 33


def test_joins_beforehand(launches):
    """Three functions, of which two are joined into more cells than 32 bits count."""
    sizes = (1 << 12, 1 << 11, 1 << 11, 128)
    scopes = [(3, 0), (3, 1), (3, 2), (0,), (1,)]
    launched(launches, scopes, sizes, 1, LOG_SUM_EXP, np.float64)
    sizes = (1 << 17, 1 << 17, 3, 2, 64)
    assert launched(launches, [(0,), (1,), (2, 3, 4)], sizes, 2, LOG_SUM_EXP, np.float32) > 0


@pytest.mark.parametrize("seed", range(30))
def test_any_bucket(seed, launches):
    random = np.random.default_rng(seed)
    axes = int(random.integers(2, 6))
    sizes = tuple(int(n) for n in 2 ** random.integers(1, 15, axes) - random.integers(0, 2, axes))
    eliminated = int(random.integers(1, axes))
    scopes = []
    for _ in range(int(random.integers(2, 6))):
        scope = random.permutation(axes)[: random.integers(1, axes + 1)].tolist()
        while prod(sizes[a] for a in scope) > 1 << 30:
            scope.pop()
        scopes.append(tuple(scope))
    semiring = [MIN_SUM, LOG_SUM_EXP][seed % 2]
    launched(launches, scopes, sizes, eliminated, semiring, np.float32)


def test_an_axis_that_reaches_far_is_cut():
    near = [Axis(8, (1, 3, 0)), Axis(5, (8, 0, 0))]
    assert complete.near_first(near, 2) == near
    far = Axis(24, (1 << 30, 1, 0))
    assert complete.near_first([far], 2) == [Axis(4, (1 << 30, 1, 0)), Axis(6, (1 << 32, 4, 0))]
    assert complete.near_first([Axis(7, (1 << 40, 0, 0))], 2) == [Axis(1, (1 << 40, 0, 0)), Axis(7, (1 << 40, 0, 0))]
    assert not complete.is_near([Axis(1 << 16, (1 << 16, 0)), Axis(1 << 16, (1, 0)), Axis(2, (1, 0))], 1)
    assert complete.is_near([Axis(1 << 16, (1 << 16, 0)), Axis(1 << 16, (1, 0))], 1)
