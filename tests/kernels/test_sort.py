"""Radix sort against NumPy's stable sort: bit ranges, any number of words, all payload widths, tiny pieces."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.kernels.cpu.pairs.sort import BUCKET_ROWS
from oocbe.kernels.cpu.pairs.sort import sort_rows as sort_on_cpu


def bits_of(keys, ranges):
    """The sorted-by bits of each row as one Python integer."""
    numbers, place = [0] * keys.shape[1], 0
    for word, shift, bits in ranges:
        for row in range(keys.shape[1]):
            numbers[row] |= (int(keys[word, row]) >> shift & (1 << bits) - 1) << place
        place += bits
    return numbers


RANGES = {
    "all of one word": [(0, 0, 64)],
    "low bits": [(0, 0, 9)],
    "middle bits": [(0, 13, 21)],
    "high part first": [(0, 40, 3), (0, 0, 21)],
    "high bits last": [(0, 0, 5), (0, 61, 3)],
    "many short ranges": [(0, 5, 2), (0, 50, 1), (0, 20, 3), (0, 9, 4)],
    "nothing": [],
}


@pytest.mark.parametrize("piece_rows", [None, 1, 7])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("ranges", RANGES.values(), ids=RANGES)
def test_one_word(kernels, ranges, dtype, piece_rows):
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 1 << 64, (1, 100), dtype=np.uint64)
    values = np.arange(100).astype(dtype)
    before = keys.copy()
    found_keys, found_values = kernels.sort_rows(keys, values, ranges, piece_rows)
    order = sorted(range(100), key=bits_of(keys, ranges).__getitem__)
    assert found_values.tolist() == order
    assert found_values.dtype == dtype
    assert np.array_equal(found_keys, keys[:, order])
    assert np.array_equal(keys, before)


@pytest.mark.parametrize("piece_rows", [None, 2])
@pytest.mark.parametrize("words", [2, 4])
def test_several_words(kernels, words, piece_rows):
    rng = np.random.default_rng(2)
    keys = rng.integers(0, 4, (words, 300), dtype=np.uint64) << np.uint64(31)
    ranges = [(1, 30, 5), *((word, 0, 64) for word in range(words) if word != 1)]
    found_keys, found_values = kernels.sort_rows(keys, np.arange(300), ranges, piece_rows)
    order = sorted(range(300), key=bits_of(keys, ranges).__getitem__)
    assert found_values.tolist() == order
    assert np.array_equal(found_keys, keys[:, order])


@pytest.mark.parametrize("rows", [0, 1, 100_000])
def test_many_threads_and_rows(kernels, rows, monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", "3")
    keys = np.random.default_rng(3).integers(0, 1 << 30, (1, rows), dtype=np.uint64)
    found_keys, found_values = kernels.sort_rows(keys, np.arange(rows), [(0, 0, 64)])
    order = np.argsort(keys[0], kind="stable")
    assert np.array_equal(found_values, order)
    assert np.array_equal(found_keys[0], keys[0, order])


def test_bits_equal_in_all_rows_cost_no_copy():
    keys, values = np.full((1, 5), 77, dtype=np.uint64), np.arange(5)
    found_keys, found_values = sort_on_cpu(keys, values, [(0, 0, 64)])
    assert np.shares_memory(found_keys, keys)
    assert np.shares_memory(found_values, values)


def test_owned_keys_are_used_as_a_buffer():
    keys = np.random.default_rng(4).integers(0, 1 << 16, (1, 1000), dtype=np.uint64)
    values, order = np.arange(1000), np.argsort(keys[0], kind="stable")
    found_keys, found_values = sort_on_cpu(keys, values, [(0, 0, 16)], own=True)
    assert np.shares_memory(found_keys, keys)
    assert np.array_equal(values, np.arange(1000))
    assert np.array_equal(found_values, order)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("ranges", [[(0, 0, 17)], [(0, 0, 64)], [(0, 40, 6), (0, 3, 25)]], ids=str)
@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_large_tables(kernels, ranges, dtype, skewed):
    """In buckets, and where nearly all rows would fall into one bucket."""
    rows = BUCKET_ROWS + 5
    rng = np.random.default_rng(5)
    keys = rng.integers(0, 1 << 64, (1, rows), dtype=np.uint64)
    if skewed:
        keys[0, 10:] &= np.uint64((1 << 10) - 1)
    found_keys, found_values = kernels.sort_rows(keys, np.arange(rows).astype(dtype), ranges)
    order = np.argsort(np.array(bits_of(keys, ranges), dtype=np.uint64), kind="stable")
    assert np.array_equal(found_values, order)
    assert np.array_equal(found_keys[0], keys[0, order])
