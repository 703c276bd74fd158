"""Rows to complete tables and back on the device: the same as in main memory, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.errors import ValueRangeError
from oocbe.kernels import backend_named
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.kernels.interface import CompleteFunction
from oocbe.model.infeasible import infeasible_value, largest_feasible
from oocbe.model.semiring import MAX_PRODUCT, MIN_SUM, SEMIRINGS
from oocbe.tables.complete import COMPLETE_DTYPES, CompleteTable
from oocbe.tables.layout import Layout
from oocbe.tables.residence import is_on_device, to_device, to_host
from oocbe.tables.table import Table

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(why_unavailable() is not None, reason=f"no CUDA device: {why_unavailable()}"),
]

SIZES = {
    "one variable": (1000,),
    "several": (3, 5, 1, 64, 7),
    "powers of two": (4, 8, 2, 16),
    "two words": (3, *(1,) * 70, 5, 9),
    "an empty word": (7, *(1,) * 140, 4, 3),
    "large": (10,) * 6,
    "none": (),
}


@pytest.fixture(scope="module", autouse=True)
def backend():
    """These tests are of the device alone; the folder's fixture would run them twice."""


def complete(sizes, semiring, dtype, share) -> CompleteTable:
    random = np.random.default_rng(len(sizes))
    layout = Layout(tuple(f"v{i}" for i in range(len(sizes))), sizes)
    values = random.integers(1, 1000, layout.complete_rows).astype(dtype)
    infeasible = infeasible_value(dtype, semiring.combination, semiring.marginalisation)
    return CompleteTable(layout, np.where(random.random(len(values)) < share, values, infeasible), semiring)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.6, 1.0])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
def test_there_and_back(semiring, sizes, share):
    import cupy as cp

    for dtype in COMPLETE_DTYPES:
        if dtype.kind == "i" and semiring.needs_floats:
            continue
        table = complete(sizes, semiring, dtype, share)
        there = CompleteTable(table.layout, cp.asarray(table.values), semiring)
        for scope in (table.scope, table.scope[::-1]):
            rows = there.to_table(scope)
            assert is_on_device(rows)
            assert there.rows == table.rows
            assert rows.is_sorted
            expected = table.to_table(scope)
            found = to_host(rows)
            assert found.layout == expected.layout
            assert found.values.dtype == expected.values.dtype
            assert np.array_equal(found.keys, expected.keys)
            assert np.array_equal(found.values, expected.values)
            back = CompleteTable.from_table(rows, table.scope, rows.values.dtype)
            assert is_on_device(back)
            expected = CompleteTable.from_table(expected, table.scope, found.values.dtype)
            assert np.array_equal(to_host(back).values, expected.values)


def test_values_that_cannot_be_told_from_infeasible_ones():
    layout = Layout(("a",), (4,))
    keys = np.array([[1, 2]], dtype=np.uint64)
    large = Table(layout, keys, np.array([1, largest_feasible(np.int32) + 1], dtype=np.int32), MIN_SUM, is_sorted=True)
    with pytest.raises(ValueRangeError, match="do not fit int32"):
        CompleteTable.from_table(to_device(large), dtype=np.int32)
    wide = CompleteTable.from_table(to_device(large))
    assert is_on_device(wide)
    assert to_host(wide).to_dict() == CompleteTable.from_table(large).to_dict()
    zero = Table(layout, keys, np.array([1.0, 0.5]), MAX_PRODUCT, is_sorted=True)
    assert to_host(CompleteTable.from_table(to_device(zero))).values.tolist() == [0, 1, 0.5, 0]


def test_more_cells_than_32_bits_count():
    import cupy as cp

    sizes = (*(10,) * 9, 5)
    if cp.cuda.runtime.memGetInfo()[1] < 50 << 30:
        pytest.skip("a device of less than 50 GiB")
    layout = Layout(tuple(f"v{i}" for i in range(10)), sizes)
    infeasible = infeasible_value(np.int16, 0, 0)
    values = cp.full(layout.complete_rows, infeasible, dtype=np.int16)
    cells = np.random.default_rng(0).choice(layout.complete_rows, 100_000, replace=False)
    numbers = (cells % 4001).astype(np.int16)
    values[cp.asarray(cells)] = cp.asarray(numbers)
    table = CompleteTable(layout, values, MIN_SUM)
    assert table.rows == len(cells)
    rows = to_host(table.to_table(layout.scope[::-1]))
    digits = [cells // 10**i % size for i, size in enumerate(sizes)][::-1]
    keys = sum(
        digit.astype(np.uint64) << np.uint64(f.shift) for digit, f in zip(digits, rows.layout.fields, strict=True)
    )
    order = np.argsort(keys)
    assert np.array_equal(rows.keys[0], keys[order])
    assert np.array_equal(rows.values, numbers[order])
    back = CompleteTable.from_table(to_device(rows), layout.scope)
    assert bool((back.values.astype(np.int16)[cp.asarray(cells)] == cp.asarray(numbers)).all())
    assert back.rows == len(cells)
    del back
    kernels = backend_named("cuda")
    least = kernels.eliminate_complete([CompleteFunction(values, table.steps)], sizes, 1, 0, 0, np.dtype(np.int16))
    expected = values[: 10**9]
    for digit in range(1, 5):
        expected = cp.minimum(expected, values[digit * 10**9 : (digit + 1) * 10**9])
    assert bool((least == expected).all())
