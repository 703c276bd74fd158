"""Packed chunks: what goes in comes out, in few bits, through every interface; damage is an error and nothing worse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oocbe.errors import CorruptDataError
from oocbe.tables.packed_codec import BLOCK, FRONT_WORDS, HEADER_WORDS, decode, encode, rows_in
from tests.helpers.effort import examples

DTYPES = ["uint64", "int64", "int32", "float64", "float32"]


def unpacked(data: bytes, rows: int, dtype) -> np.ndarray:
    out = np.empty(rows, dtype=dtype)
    decode(data, rows, out)
    return out


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=examples(320))
@given(data=st.data())
def test_any_column_comes_back(dtype, data):
    column = data.draw(hnp.arrays(dtype, st.integers(0, 40)))
    column = np.repeat(column, data.draw(st.integers(1, 60)))
    packed = encode(column).tobytes()
    assert rows_in(packed) == len(column)
    assert same_bits(unpacked(packed, len(column), dtype), column)


@pytest.mark.parametrize("width", [0, 1, 2, 7, 31, 32, 33, 63, 64])
@pytest.mark.parametrize("rows", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_every_width_and_length(width, rows):
    rng = np.random.default_rng(width)
    column = (
        rng.integers(0, 1 << 64, rows, dtype=np.uint64) >> np.uint64(64 - width) if width else np.full(rows, 7, "u8")
    )
    assert same_bits(unpacked(encode(column).tobytes(), rows, "u8"), column)


@pytest.mark.parametrize("shift", [0, 5, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_range_of_rows(dtype, shift):
    rng = np.random.default_rng(1)
    column = (np.cumsum(rng.integers(1, 9, 5000)) << shift).astype(dtype)
    packed = encode(column).tobytes()
    for start, stop in [(0, 0), (0, 1), (1023, 1025), (1024, 2048), (100, 4999), (4999, 5000), (5000, 5000)]:
        out = np.empty(stop - start, dtype=dtype)
        decode(packed, 5000, out, start)
        assert same_bits(out, column[start:stop])


def bits_a_row(column: np.ndarray) -> float:
    return 8 * encode(column).nbytes / len(column)


def test_sorted_keys_take_the_bits_of_their_gaps():
    rng = np.random.default_rng(2)
    gaps = rng.integers(1, 17, 50_000).astype(np.uint64)
    keys = np.cumsum(gaps) + np.uint64(1 << 60)
    assert bits_a_row(keys) < 4.5
    assert bits_a_row(np.arange(50_000, dtype=np.uint64)) < 0.5


def test_keys_sorted_by_their_low_bits_pack_like_sorted_ones():
    rng = np.random.default_rng(3)
    keys = np.sort(rng.choice(1 << 24, 1 << 18, replace=False)).astype(np.uint64)
    turned = (keys << np.uint64(50)) | (keys >> np.uint64(14))
    assert bits_a_row(turned) < bits_a_row(keys) + 0.1
    assert same_bits(unpacked(encode(turned).tobytes(), len(keys), "u8"), turned)


def test_values_take_the_bits_of_their_range():
    rng = np.random.default_rng(4)
    small = rng.integers(-500, 500, 50_000)
    assert bits_a_row(small) < 10.5
    assert bits_a_row(small.astype(np.int32)) < 10.5
    assert bits_a_row(small.astype(np.float64)) < 32


def test_damage_anywhere_in_the_headers_never_reads_out_of_bounds():
    rng = np.random.default_rng(5)
    column = np.cumsum(rng.integers(1, 1000, 4000)).astype(np.uint64)
    whole = encode(column)
    front = 8 * (FRONT_WORDS + HEADER_WORDS * 4)
    refused = 0
    for place in range(front):
        for bit in range(8):
            data = bytearray(whole.tobytes())
            data[place] ^= 1 << bit
            try:
                unpacked(bytes(data), 4000, "u8")  # a base may be any number: only a checksum sees that
            except CorruptDataError:
                refused += 1
    assert refused > front * 8 / 3


@pytest.mark.parametrize("length", [0, 1, 8, 39, 40, 48, -8, -1])
def test_cut_chunks_are_refused(length):
    data = encode(np.arange(3000, dtype=np.uint64) ** 2).tobytes()
    with pytest.raises(CorruptDataError):
        unpacked(data[:length], 3000, "u8")
    with pytest.raises(CorruptDataError):
        unpacked(data + bytes(8), 3000, "u8")


def test_another_row_count_or_item_size_is_refused():
    data = encode(np.arange(3000, dtype=np.uint64)).tobytes()
    with pytest.raises(CorruptDataError, match="3,000 rows instead of 2,999"):
        unpacked(data, 2999, "u8")
    with pytest.raises(CorruptDataError, match="4-byte items"):
        unpacked(data, 3000, "i4")


def test_zarr_finds_the_codec_and_refuses_what_it_cannot_pack(tmp_path):
    import zarr

    from oocbe.tables.zarr_codec import PackedCodec

    column = np.arange(25, dtype=np.int32) * 3
    array = zarr.create_array(
        tmp_path / "a", shape=(25,), chunks=(10,), dtype="i4", serializer=PackedCodec(), compressors=None
    )
    array[:] = column
    assert np.array_equal(zarr.open_array(tmp_path / "a", mode="r")[:], column)
    assert np.array_equal(zarr.open_array(tmp_path / "a", mode="r")[7:13], column[7:13])
    with pytest.raises(ValueError, match="packs one dimension"):
        zarr.create_array(
            tmp_path / "b", shape=(5, 5), chunks=(5, 5), dtype="i4", serializer=PackedCodec(), compressors=None
        )
