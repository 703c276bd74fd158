"""Packed chunks made and read on the device: word for word as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.tables.codec import FRONT_WORDS, HEADER_WORDS, checked, encode

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
def test_chunks_are_the_same(cuda, dtype, rows):
    import cupy as cp

    from oocbe.kernels.cuda.bit_pack import measure, unpack

    for name, column in columns(rows, dtype):
        expected = encode(column)
        chunk, rotation = checked(expected.tobytes(), rows, column.dtype.itemsize)
        out = cp.empty(rows, dtype=dtype)
        unpack(cp.asarray(chunk), rows, FRONT_WORDS, out)
        assert out.get().tobytes() == column.tobytes(), name
        for start, stop in ((0, rows // 2), (rows // 3, rows), (rows // 2, rows // 2 + 1), (rows, rows)):
            part = cp.zeros(stop - start + 2, dtype=dtype)
            unpack(cp.asarray(chunk), rows, FRONT_WORDS, part[1:-1], start)
            assert part.get().tobytes() == bytes(part.itemsize) + column[start:stop].tobytes() + bytes(part.itemsize)
        measured = measure(cp.asarray(column), rotation)
        payload_words = int(measured.places[-1])
        assert payload_words == int(expected[2]), name
        made = measured.packed(FRONT_WORDS, payload_words)
        assert np.array_equal(made[FRONT_WORDS:].get(), expected[FRONT_WORDS:]), name
        assert len(made) == FRONT_WORDS + HEADER_WORDS * -(-rows // 1024) + payload_words + 1
