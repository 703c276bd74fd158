"""Work shared by several GPUs: order, limits and failures, with devices that compute nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from oocbe.errors import ResourceError, UsageError
from oocbe.kernels.cuda.gpus import MOST_FAILURES, GpuError, GpuPool, Turns, by_gpus, gpus, on_gpus
from oocbe.model.settings.machine import use_gpus
from tests.helpers.lazy_device import DeviceError, take_the_place_of_cupy


@pytest.fixture
def devices(monkeypatch):
    return take_the_place_of_cupy(monkeypatch, 3)


def test_the_limit_is_the_innermost_one_or_that_of_the_environment(devices, monkeypatch):
    assert gpus(0) == [0, 1, 2]
    monkeypatch.setenv("OOCBE_GPUS", "2")
    assert gpus(0) == [0, 1]
    with use_gpus(1):
        assert gpus(0) == [0]
    with devices.cuda.Device(2):
        assert gpus(0) == [2, 0]
    monkeypatch.setenv("OOCBE_GPUS", "none")
    with pytest.raises(UsageError, match="OOCBE_GPUS"):
        gpus(0)


def test_each_device_is_the_current_one_of_its_thread(devices):
    found = {}
    on_gpus([0, 2], lambda position: found.update({position: (devices.number, threading.get_ident())}), lambda: None)
    assert {position: number for position, (number, _) in found.items()} == {0: 0, 1: 2}
    assert found[0][1] == threading.get_ident() != found[1][1]
    assert devices.number == 0


def test_results_are_passed_on_in_order(devices):
    turns, found = Turns(), []

    def work(position):
        for number in range(position, 30, 3):
            turns.wait(number)
            found.append(number)
            turns.done()

    on_gpus([0, 1, 2], work, turns.stop)
    assert found == list(range(30))


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_ends_the_waits_of_all_devices(devices, failing):
    turns = Turns()

    def work(position):
        if position == failing:
            raise ZeroDivisionError
        turns.wait(failing)  # its turn never comes
        turns.wait(failing + 1)

    with pytest.raises(ZeroDivisionError):
        on_gpus([0, 1, 2], work, turns.stop)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("oocbe-gpu")]


def test_attempts_leave_out_failed_devices(devices):
    attempts = []

    def attempt(numbers):
        attempts.append(list(numbers))
        if len(numbers) > 1:
            raise GpuError(numbers[0], ResourceError("no memory"))
        return "done"

    assert by_gpus([0, 1, 2], attempt) == "done"
    assert attempts == [[0, 1, 2], [1, 2], [2]]
    error = ResourceError("no memory")

    def fail(numbers):
        raise GpuError(numbers[-1], error)

    with pytest.raises(ResourceError, match=r"^all GPUs failed: GPU 1: no memory; GPU 0: no memory$"):
        by_gpus([0, 1], fail)
    with pytest.raises(ResourceError, match=r"^no memory$") as raised:
        by_gpus([0], fail)
    assert raised.value is error


def test_a_pool_gives_each_call_a_device_of_its_own(devices):
    pool, all_busy = GpuPool(2), threading.Barrier(2)

    def call():
        all_busy.wait(timeout=10)
        return devices.number

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: pool.do(call), range(8)))
    assert sorted(found) == [0] * 4 + [1] * 4
    assert devices.limits == {1: 1 << 30}


@pytest.mark.parametrize("error", [ResourceError("no memory"), DeviceError("lost")])
def test_a_pool_leaves_out_a_device_that_fails(devices, error):
    """One without memory only after several calls, whose pieces may be too large for any device."""
    pool, calls = GpuPool(2), []

    def call():
        calls.append(devices.number)
        if devices.number == 1:
            raise error
        return devices.number

    failed = 0
    for _ in range(20):
        try:
            assert pool.do(call) == 0
        except ResourceError:
            failed += 1
    assert calls.count(1) == (1 if isinstance(error, DeviceError) else MOST_FAILURES)
    assert failed == calls.count(1) - 1
    assert calls[-5:] == [0] * 5
