"""Bounds propagated on the device: they are the processor's, bit for bit, and so is what is said of them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from oocbe.errors import UsageError
from oocbe.formats import read_model
from oocbe.model.linear_system import LinearSystem
from oocbe.propagation.bounds import propagate_bounds
from oocbe.propagation.kernels.cpu.linear_rows import CHUNK, tile_rows
from oocbe.propagation.kernels.cuda import linear_rows
from oocbe.propagation.propagate import propagate
from oocbe.runtime.deadline import Deadline
from tests.helpers.linear_systems import KINDS, sparse_system
from tests.kernels.conftest import skip_without_gpu

INF = math.inf


@pytest.fixture(params=["host", "device"])
def on_device(request, monkeypatch):
    """Propagates on the device, with the loop over rounds on either side."""
    skip_without_gpu()
    from oocbe.propagation.kernels.cuda.linear_rows import DeviceRows

    def propagated(rows, *arguments):
        return whole(rows, *arguments, is_loop_on_device=request.param == "device")

    whole = DeviceRows.propagate
    monkeypatch.setattr(DeviceRows, "propagate", propagated)
    return lambda system, **limits: propagate_bounds(system, backend="cuda", **limits)


def assert_same(found, expected):
    assert (found.status, found.reason) == (expected.status, expected.reason)
    assert (found.row, found.variable) == (expected.row, expected.variable)
    assert found.rounds == expected.rounds
    if expected.lower.dtype == object:
        assert found.lower.tolist() == expected.lower.tolist() and found.upper.tolist() == expected.upper.tolist()
    else:
        assert found.lower.tobytes() == expected.lower.tobytes()
        assert found.upper.tobytes() == expected.upper.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("limits", [{}, {"tolerance": 1e-9}, {"rounds": 2, "progress": 1e-3}])
@pytest.mark.parametrize("kind", KINDS)
def test_all_lengths_of_rows(on_device, kind, limits):
    for seed in range(6):
        system = sparse_system(seed, kind)
        assert_same(on_device(system, **limits), propagate_bounds(system, simultaneous=True, backend="cpu", **limits))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_many_small_systems(on_device, kind):
    for seed in range(100, 160):
        system = sparse_system(seed, kind, rows=1 + seed % 9, variables=1 + seed % 40, lengths=(0, 1, 2, 3, 5, 9))
        assert_same(on_device(system), propagate_bounds(system, simultaneous=True, backend="cpu"))


@pytest.mark.gpu
def test_more_tiles_than_run_at_once(on_device):
    for seed in (1, 2):
        system = sparse_system(seed, "fractions", rows=60_000, variables=150_000, lengths=(0, 1, 3, 8, 20, 40, 90))
        assert_same(on_device(system), propagate_bounds(system, simultaneous=True, backend="cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_that_the_second_cache_does_not_hold(on_device, kind, monkeypatch):
    monkeypatch.setattr(linear_rows, "_cached_bytes", lambda: 0)
    for seed in range(6):
        system = sparse_system(seed, kind)
        assert_same(on_device(system), propagate_bounds(system, simultaneous=True, backend="cpu"))
    system = sparse_system(1, kind, rows=6_000, variables=15_000, lengths=(0, 1, 3, 8, 20, 40, 90))
    assert_same(on_device(system), propagate_bounds(system, simultaneous=True, backend="cpu"))


@pytest.mark.gpu
def test_real_instances(on_device, data):
    expected = json.loads(data("mps/linear_reference.json").read_text())
    seen = 0
    for name, entry in expected.items():
        if "pilot87" in name or entry["nnz"] > 60_000:
            continue
        system = read_model(data(name))
        found = on_device(system)
        assert_same(found, propagate_bounds(system, simultaneous=True, backend="cpu"))
        assert found.status == entry["status"], name
        finite = found.upper[np.isfinite(found.upper)].astype(float).sum()
        assert abs(finite - entry["sum_finite_upper"]) <= 1e-8 + 1e-5 * abs(finite), name
        seen += 1
    assert seen >= 10


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "lower", "upper"),
    [
        ([({}, 1, INF)], [0], [1]),
        ([({0: 1, 1: 1}, 3, INF)], [0, 0], [1, 1]),
        ([({0: 1}, 1, 1), ({0: -2}, -1, INF)], [0], [9]),
        ([({0: 1e300}, -INF, 1e19)], [-1e19], [1e19]),
        ([({0: 2**51, 1: 2**51, 2: 1}, 3 * 2**51 + 1, 3 * 2**51 + 1)], [0, 0, 0], [2, 2, 2**51]),
        ([], [0.25], [0.75]),
        ([({0: 1, 1: 1}, 2, 9)], [-INF, 0], [INF, 4]),
        ([({0: 2, 1: -1}, -INF, -1), ({1: 1, 0: -1}, -INF, 0)], [-8, -8], [-0.0, -0.0]),
    ],
)
def test_corners(on_device, rows, lower, upper):
    for integral in (True, False):
        system = LinearSystem.from_rows(rows, lower, upper, integral)
        assert_same(on_device(system), propagate_bounds(system, simultaneous=True, backend="cpu"))


@pytest.mark.gpu
def test_limits_on_the_device(on_device):
    endless = LinearSystem.from_rows([({0: 1, 1: -1}, 1, INF), ({1: 1, 0: -1}, 0, INF)], [0, 0], [INF, INF])
    for rounds in (0, 1, 7, 3000):
        found = on_device(endless, rounds=rounds)
        assert_same(found, propagate_bounds(endless, rounds=rounds, simultaneous=True, backend="cpu"))
        assert (found.status, len(found.rounds)) == ("limit", rounds)
    with Deadline(1e9) as deadline:
        deadline.interrupt()
        deadline.end = 0.0
        found = on_device(endless)
    assert found.status == "limit" and "time" in found.reason and not found.rounds


@pytest.mark.gpu
def test_the_public_function_takes_a_backend():
    skip_without_gpu()
    system = sparse_system(2, "integers", rows=30, variables=500)
    on_device, here = (propagate(system, backend=backend) for backend in ("cuda", "cpu"))
    assert on_device.status == here.status and on_device.domains == here.domains


def test_an_unknown_backend_is_refused():
    with pytest.raises(UsageError, match="unknown backend 'gpu'"):
        propagate_bounds(sparse_system(2, "integers", rows=3, variables=9), backend="gpu")


def test_tiles_hold_what_a_block_has_room_for():
    random = np.random.default_rng(0)
    for lengths in (random.integers(0, 40, 5000), np.zeros(3000, dtype=int), np.array([5000, 1, CHUNK, 1, 5000]), []):
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        tiles = np.full(len(starts), -1, dtype=np.int64)
        count = tile_rows(starts, tiles)
        firsts = tiles[: count + 1]
        assert firsts[0] == 0 and firsts[-1] == len(lengths) and (np.diff(firsts) > 0).all()
        entries, rows = np.diff(starts[firsts]), np.diff(firsts)
        assert ((entries <= CHUNK) | (rows == 1)).all() and (rows <= CHUNK).all()
        assert (entries[:-1] + entries[1:] > CHUNK)[(rows < CHUNK)[:-1]].all() or len(lengths) < 2
