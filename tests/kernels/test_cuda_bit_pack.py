"""Packed chunks made and read on the device: word for word as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.tables.packed_codec import checked, encode

pytestmark = pytest.mark.gpu
ROWS = [1, 2, 1023, 1024, 1025, 5000, 200_003]


def columns(rows: int, dtype: str):
    rng = np.random.default_rng(rows)
    yield "constant", np.full(rows, 7).astype(dtype)
    yield "ascending", np.cumsum(rng.integers(1, 9, rows)).astype(dtype)
    yield "descending", -np.cumsum(rng.integers(1, 9, rows)).astype(dtype)
    yield "multiples", (rng.integers(0, 50, rows) << 9).astype(dtype)
    size = np.dtype(dtype).itemsize
    yield "anything", rng.integers(0, 256, (rows, size), dtype=np.uint8).view(dtype)[:, 0].copy()
    if dtype == "uint64":
        for width in (1, 2, 31, 32, 33, 63):
            yield f"{width} bits", rng.integers(0, 1 << width, rows, dtype=np.uint64)
        groups = np.sort(rng.integers(0, 1 << 20, rows, dtype=np.uint64))
        yield "sorted by the low bits", groups | rng.integers(0, 1 << 30, rows, dtype=np.uint64) << np.uint64(20)


@pytest.mark.parametrize("dtype", ["uint64", "int64", "int32", "float64", "float32"])
@pytest.mark.parametrize("rows", ROWS)
def test_chunks_are_unpacked(cuda, dtype, rows):
    import cupy as cp

    from oocbe.kernels.cuda.packing.bit_pack import Wanted, unpack

    wanted, expected = [], []
    for name, column in columns(rows, dtype):
        chunk, _ = checked(encode(column).tobytes(), rows, column.dtype.itemsize)
        for start, stop in ((0, rows), (0, rows // 2), (rows // 3, rows), (rows // 2, rows // 2 + 1), (rows, rows)):
            part = cp.zeros(stop - start + 2, dtype=dtype)
            ends = np.array([0, len(chunk)]), np.array([0, rows])
            wanted.append(Wanted(cp.asarray(chunk), *ends, part[1:-1], start))
            expected.append((name, part, bytes(part.itemsize) + column[start:stop].tobytes() + bytes(part.itemsize)))
    unpack(wanted)
    for name, part, numbers in expected:
        assert part.get().tobytes() == numbers, name


@pytest.mark.parametrize("rows", ROWS)
def test_chunks_are_the_same(cuda, rows):
    """Columns of all kinds at once, more than one launch takes."""
    import cupy as cp

    from oocbe.kernels.cuda.packing.bit_pack import MOST_PARTS, DeviceColumn, Measured

    made = [
        (f"{name} of {dtype}", column)
        for count in (rows, 3000, 1024)
        for dtype in ("uint64", "int64", "int32", "float64", "float32")
        for name, column in columns(count, dtype)
    ]
    assert len(made) > MOST_PARTS
    chunks = [checked(encode(column).tobytes(), len(column), column.itemsize) for _, column in made]
    measured = Measured(
        [DeviceColumn(cp.asarray(c), rotation) for (_, c), (_, rotation) in zip(made, chunks, strict=True)]
    )
    found = zip(made, chunks, measured.summaries(), measured.packed(), strict=True)
    for (name, column), (expected, _), summary, chunk in found:
        assert chunk.get().tobytes() == expected.tobytes(), name
        assert summary.payload_words == int(expected[2]), name
        items = (
            column.view(f"i{column.itemsize}").astype(np.int64).view(np.uint64) if column.dtype.kind != "u" else column
        )
        assert (summary.first, summary.last) == (int(items[0]), int(items[-1])), name
        extent = (int(column.min()), int(column.max())) if column.dtype.kind == "i" else None
        assert summary.extent == extent, name


@pytest.mark.parametrize("parts", [1, 64, 65, 128, 129])
def test_any_number_of_columns(cuda, parts):
    import cupy as cp

    from oocbe.kernels.cuda.packing.bit_pack import DeviceColumn, Measured, Wanted, unpack

    made = [np.arange(number, 1500 + 7 * number, dtype=np.int64) ** 2 for number in range(parts)]
    measured = Measured([DeviceColumn(cp.asarray(column), 0) for column in made])
    chunks = measured.packed()
    out = [cp.empty(len(column), np.int64) for column in made]
    places, rows = (np.cumsum([0, *map(len, arrays)]) for arrays in (chunks, made))
    end_to_end = cp.empty(int(rows[-1]), np.int64)
    unpack([Wanted(cp.concatenate(chunks), places, rows, end_to_end, 0)])
    assert np.array_equal(end_to_end.get(), np.concatenate(made))
    unpack([Wanted(c, np.array([0, len(c)]), np.array([0, len(o)]), o, 0) for c, o in zip(chunks, out, strict=True)])
    for column, found, chunk in zip(made, out, chunks, strict=True):
        assert np.array_equal(found.get(), column)
        assert np.array_equal(chunk.get(), encode(column))


def test_extents_at_both_ends_of_the_range(cuda):
    import cupy as cp

    from oocbe.kernels.cuda.packing.bit_pack import DeviceColumn, Measured

    info = np.iinfo(np.int64)
    cases = [[info.max], [info.min], [info.min, info.max], [0, -1], [info.max] * 3000, [info.min] * 3000]
    measured = Measured([DeviceColumn(cp.asarray(np.array(case, dtype=np.int64)), 0) for case in cases])
    assert [summary.extent for summary in measured.summaries()] == [(min(case), max(case)) for case in cases]
