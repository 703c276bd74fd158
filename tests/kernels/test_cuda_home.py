"""What comes back from the device: whole arrays, and a few rows of a sorted table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocbe.kernels.cuda.pairs import extents
from oocbe.kernels.cuda.pairs.extents import rows_around
from oocbe.kernels.cuda.transfer import conveyor
from oocbe.kernels.cuda.transfer.conveyor import bring_home
from tests.helpers.lazy_device import take_the_place_of_cupy


class Elsewhere(np.ndarray):
    """An array that says how many of its items were brought here."""

    brought = 0

    def get(self):
        Elsewhere.brought += self.size
        return np.array(self)


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(conveyor, "LARGE_BYTES", 1)
    return take_the_place_of_cupy(monkeypatch)


def test_large_arrays_come_by_way_of_pinned_memory_once_they_are_written(device):
    expected = [np.arange(3000, dtype=np.uint64).reshape(2, 1500), np.arange(1500, dtype=np.int32)]
    arrays = [device.empty(a.size, a.dtype).reshape(a.shape) for a in expected]

    def kernel():
        for array, numbers in zip(arrays, expected, strict=True):
            array[:] = numbers

    device.queue(device.current, kernel)
    for array, numbers in zip(bring_home(arrays), expected, strict=True):
        assert (array.shape, array.dtype) == (numbers.shape, numbers.dtype)
        assert np.array_equal(array, numbers)
    assert device.most_pinned > 0
    assert all(stream.is_idle for stream in device.streams)


def test_without_pinned_memory_the_driver_copies(device, monkeypatch):
    def refuse(*_):
        raise MemoryError

    monkeypatch.setattr(conveyor, "Conveyor", refuse)
    device.asnumpy = lambda source, out: np.copyto(out, source)
    array = device.empty(10, np.int16)
    array[:] = np.arange(10)
    (found,) = bring_home([array])
    assert found.tolist() == list(range(10))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [0, 1, 1000, 30_000_001])
def test_arrays_of_a_device(cuda, rows):
    import cupy as cp

    keys = cp.arange(2 * rows, dtype=np.uint64).reshape(2, rows)
    values = cp.arange(rows, dtype=np.int16)
    values += 1
    found = bring_home([keys, values, keys[:, ::2]])
    assert np.array_equal(found[0], np.arange(2 * rows, dtype=np.uint64).reshape(2, rows))
    assert np.array_equal(found[1], np.arange(rows, dtype=np.int16) + np.int16(1))
    assert np.array_equal(found[2], found[0][:, ::2])


@given(st.sets(st.integers(0, 1 << 70), max_size=200), st.data(), st.sampled_from([1, 2, 3, 7, 1000]))
def test_a_row_is_among_the_few_around_it(numbers, data, samples):
    ordered = sorted(numbers)
    wanted = data.draw(st.sampled_from(ordered) if ordered else st.just(5)) + data.draw(st.sampled_from([-1, 0, 0, 1]))
    wanted = max(0, wanted)
    keys = np.array([[n & (1 << 64) - 1 for n in ordered], [n >> 64 for n in ordered]], dtype=np.uint64)
    Elsewhere.brought = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extents, "SAMPLES", samples)
        key = np.array([wanted & (1 << 64) - 1, wanted >> 64], dtype=np.uint64)
        low, around = rows_around(keys.view(Elsewhere), key)
    assert np.array_equal(around, keys[:, low : low + around.shape[1]])
    assert around.shape[1] <= samples
    assert (wanted in ordered) == any((around == key[:, np.newaxis]).all(axis=0))
    rounds = 1 if samples > 200 else 10 if samples > 1 else 201
    assert Elsewhere.brought <= 2 * samples * rounds


@given(st.sets(st.integers(0, 300), max_size=200), st.data(), st.sampled_from([2, 3, 7, 1000]))
def test_all_rows_of_a_range_of_keys_come_together(numbers, data, samples):
    ordered = np.array(sorted(numbers), dtype=np.uint64)
    first, last = sorted(data.draw(st.tuples(st.integers(0, 300), st.integers(0, 300))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extents, "SAMPLES", samples)
        ends = (np.array([n], dtype=np.uint64) for n in (first, last))
        low, around = rows_around(ordered[np.newaxis].view(Elsewhere), *ends)
    assert np.array_equal(around[0], ordered[low : low + around.shape[1]])
    wanted = ordered[(ordered >= first) & (ordered <= last)]
    assert set(wanted.tolist()) <= set(around[0].tolist())
    assert around.shape[1] <= max(samples, 2 * len(wanted) + 2)


@pytest.mark.gpu
def test_a_row_of_a_large_table_on_a_device(cuda):
    import cupy as cp

    keys = 3 * cp.arange(20_000_000, dtype=np.uint64)[np.newaxis]
    for row in (0, 1, 4095, 4096, 12_345_678, 19_999_999):
        low, around = rows_around(keys, np.array([3 * row], dtype=np.uint64))
        assert around[0, row - low] == 3 * row
        assert around.shape[1] <= extents.SAMPLES


def test_what_lies_together_is_copied_at_once(device, monkeypatch):
    """Bounds of 63,000 variables came pair by pair: 1.4 s instead of a millisecond."""
    monkeypatch.setattr(conveyor, "LARGE_BYTES", 1 << 40)
    copied = []

    def asnumpy(source, out):
        copied.append(source.shape)
        np.copyto(out, source)

    device.asnumpy = asnumpy
    bounds = device.empty(1000, np.float64).reshape(500, 2)
    bounds[:] = np.arange(1000).reshape(500, 2)
    part = bounds.reshape(2, 500)[:, :30]
    found = bring_home([bounds, part, bounds.reshape(-1)[::7]])
    assert copied == [(1000,), (30,), (30,), (143,)]
    assert np.array_equal(found[0], bounds)
    assert np.array_equal(found[1], part)
    assert np.array_equal(found[2], bounds.reshape(-1)[::7])
