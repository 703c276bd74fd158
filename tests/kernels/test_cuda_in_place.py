"""Memory pinned where it is, on a device: copies right wherever an array begins, and streamed tables that fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oocbe.algebra.operators import join_maximise, maximise
from oocbe.kernels import backend_named
from oocbe.kernels.cuda.device import cupy, why_unavailable
from oocbe.kernels.cuda.transfer import pinned
from oocbe.runtime.stretches import fresh_memory, rounded
from oocbe.tables.table import Table
from tests.helpers.table_models import same_table

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(why_unavailable() is not None, reason="no device")]


@pytest.mark.parametrize("first", [0, 1, 511, 4097])
@pytest.mark.parametrize("rows", [0, 1, 4_700_001])
def test_uploads_of_parts_of_an_array(monkeypatch, rows, first):
    monkeypatch.setattr(pinned, "LEAST_BYTES", 1)
    whole = np.random.default_rng(rows).integers(0, 1 << 40, 5_000_003)
    upload = backend_named("cuda").upload
    for part in (whole[first : first + rows], whole[first : first + 2 * (rows // 4)].reshape(2, -1), whole[::2]):
        assert np.array_equal(upload(part).get(), part)
    number = id(whole)
    assert (number in pinned._pinned) == (rows > 1)
    del whole, part
    assert number not in pinned._pinned


def in_own_pages(array):
    """A copy whose pages have no other memory, as the C library gives it to large arrays."""
    whole = fresh_memory(rounded(array.nbytes)).view(array.dtype)
    whole[: array.size] = array.reshape(-1)
    return whole[: array.size].reshape(array.shape)


def random_table(scope, rows, seed):
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(0, list(scope.values()), (rows, len(scope))), axis=0)
    table = Table.from_rows(scope, keys, rng.integers(0, 1000, len(keys)).astype(np.int32))
    return replace(table, keys=in_own_pages(table.keys), values=in_own_pages(table.values))


def test_tables_that_fit_are_streamed_nevertheless(monkeypatch, tune):
    """And results of several steps of pinned memory are inputs of the next operator."""
    scopes = {"e": 3, "a": 60, "k": 5000}, {"b": 50, "e": 3, "k": 5000}
    first, second = (random_table(scope, 500_000, i) for i, scope in enumerate(scopes))
    expected = join_maximise(first, second, "e", backend="cpu")
    monkeypatch.setattr(pinned, "LEAST_BYTES", 1 << 20)
    tune(least_streamed_rows=0, least_pooled_bytes=1, least_device_piece_rows=1 << 14)
    found = join_maximise(first, second, "e", backend="cuda")
    same_table(found, expected)
    assert pinned.is_pinned(found.keys[0]) and pinned._pinned[id(pinned._owner(first.values))]
    same_table(maximise(found, found.scope[0], backend="cuda"), maximise(expected, expected.scope[0], backend="cpu"))
    for table in (first, second, found):
        for array in (table.keys[0], table.values):  # another library copies any part of them
            for part in (array, array[1:], array[len(array) // 2 :], array[: len(array) // 2]):
                assert np.array_equal(cupy().asarray(part).get(), part)
