"""The conveyor on a device that does everything as late as it may: rows arrive whole, however memory is used again."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import time
from concurrent.futures import Future
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from numba import njit

from oocbe.kernels.cuda import backend
from oocbe.kernels.cuda.transfer import conveyor, pinned
from oocbe.kernels.cuda.transfer import pinned as columns_module
from oocbe.kernels.cuda.transfer.conveyor import SECONDS, Conveyor
from oocbe.kernels.cuda.transfer.pinned import pinned_region
from oocbe.runtime.stretches import fresh_memory
from tests.helpers.lazy_device import take_the_place_of_cupy

PIECES, ROWS = 12, 900


@pytest.fixture
def device(monkeypatch):
    return take_the_place_of_cupy(monkeypatch)


def column(rows, dtype, seed, is_pinned):
    numbers = np.random.default_rng(seed).integers(0, 1 << 30, rows).astype(dtype)
    if not is_pinned:
        return numbers
    memory = pinned_region(4096 * (1 + numbers.nbytes // 4096)).take(numbers.nbytes)
    memory.view(dtype)[:] = numbers
    return memory.view(dtype)


def made_pieces(is_pinned, sizes=None):
    sizes = sizes or [ROWS - 7 * number for number in range(PIECES)]
    return [
        [column(rows, dtype, 10 * number + place, is_pinned) for place, dtype in enumerate((np.uint64, np.int32))]
        for number, rows in enumerate(sizes)
    ]


def doubled(device, conveyor, columns):
    """What the kernels of these tests do."""
    results = [device.empty(len(c), c.dtype) for c in columns]

    def kernel():
        for result, source in zip(results, columns, strict=True):
            result[:] = source * 2

    device.queue(conveyor.stream, kernel)
    return results


class Unread:
    """A column on disk."""

    def __init__(self, numbers):
        self._numbers = numbers
        self.dtype, self.nbytes = numbers.dtype, numbers.nbytes

    def reads_into(self, target):
        bounds = np.linspace(0, len(target), 6).astype(int).tolist()
        return [(high - low, partial(self._read, target, low, high)) for low, high in pairwise(bounds)]

    def _read(self, target, low, high):
        target[low:high] = self._numbers[low:high]


@pytest.mark.parametrize("host_bytes", [None, 1 << 17])
@pytest.mark.parametrize("results", ["ordinary", "pinned", "delivered"])
@pytest.mark.parametrize("inputs", ["ordinary", "in place", "pinned", "unread"])
def test_rows_come_back_doubled(device, monkeypatch, inputs, results, host_bytes):
    monkeypatch.setattr(pinned, "LEAST_BYTES", 1 if inputs == "in place" else 1 << 30)
    pieces = made_pieces(inputs == "pinned")
    expected = [[c * 2 for c in columns] for columns in pieces]
    if inputs == "unread":
        pieces = [[Unread(c) for c in columns] for columns in pieces]
    found = [[column(len(c), c.dtype, 0, results == "pinned") for c in columns] for columns in expected]
    with Conveyor(pieces, host_bytes) as conveyor:

        def compute(number, columns):
            made = doubled(device, conveyor, columns)
            if results != "delivered":
                conveyor.bring_back(made, found[number])
                return
            conveyor.deliver(made, [partial(np.copyto, target) for target in found[number]])

        conveyor.pieces(compute)
    for columns, wanted in zip(found, expected, strict=True):
        for one, other in zip(columns, wanted, strict=True):
            assert np.array_equal(one, other)
    assert all(stream.is_idle for stream in device.streams)


def test_results_are_in_their_places_when_they_are_waited_for(device):
    pieces = made_pieces(False)
    found = [[np.zeros_like(c) for c in columns] for columns in pieces]
    with Conveyor(pieces) as conveyor:

        def compute(number, columns):
            conveyor.bring_back(doubled(device, conveyor, columns), found[number])
            if number % 5 == 0:
                conveyor.wait_for_targets()
                for one, other in zip(found[number], pieces[number], strict=True):
                    assert np.array_equal(one, other * 2)

        conveyor.pieces(compute)


def test_pinned_memory_stays_within_what_is_allowed(device):
    piece_bytes = 12 * ROWS + 2 * columns_module.ALIGNMENT
    allowed = 16 * piece_bytes
    pieces = made_pieces(False, [ROWS - number % 3 for number in range(40)])
    found = [[np.zeros_like(c) for c in columns] for columns in pieces]
    with Conveyor(pieces, allowed) as conveyor:
        conveyor.pieces(lambda number, columns: conveyor.bring_back(doubled(device, conveyor, columns), found[number]))
    assert 0 < device.most_pinned <= allowed


def test_those_who_fill_do_not_run_away_from_the_bus(device):
    pieces = made_pieces(False, [ROWS] * 60)
    seen = []

    def compute(number, columns):
        device.queue(conveyor.stream, lambda: seen.append(int(columns[0].astype(np.int64).sum())))

    with Conveyor(pieces) as conveyor:
        conveyor.pieces(compute)
    assert seen == [int(columns[0].astype(np.int64).sum()) for columns in pieces]
    assert device.most_pinned < 15 * 14 * ROWS


def pieces_of(whole, sizes):
    ends = np.cumsum([0, *sizes])
    return [[numbers[low:high] for numbers in whole] for low, high in pairwise(ends.tolist())]


def sums_of(device, pieces, host_bytes=None):
    """What the kernels see of pieces."""
    seen = []

    def compute(number, columns):
        device.queue(conveyor.stream, lambda: seen.append([int(column.sum(dtype=np.int64)) for column in columns]))

    with Conveyor(pieces, host_bytes) as conveyor:
        conveyor.pieces(compute)
    return seen


SIZES = [ROWS - 7 * number for number in range(PIECES)] + [0, 1, 8, 63, 64, 65, 5 * ROWS]


CORES_AND_BYTES = list(itertools.product((1, 2, 16), (None, 1, 1 << 16)))


@pytest.mark.parametrize(
    ("cores", "host_bytes"),
    [pytest.param(*own, marks=pytest.mark.slow if n % 4 else ()) for n, own in enumerate(CORES_AND_BYTES)],
)
def test_arrays_are_pinned_where_they_are_until_they_are_deleted(device, monkeypatch, cores, host_bytes):
    """Pieces of odd lengths, none and one row among them, whose columns begin anywhere, of two words of one array."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(pinned, "LEAST_BYTES", 1)
    rng = np.random.default_rng(1)
    whole = [*rng.integers(0, 250, (2, sum(SIZES) + 1)), rng.integers(0, 250, sum(SIZES)).astype(np.uint8)]
    pieces = pieces_of([column[-sum(SIZES) :] for column in whole], SIZES)
    expected = [[int(column.sum(dtype=np.int64)) for column in piece] for piece in pieces]
    assert sums_of(device, pieces, host_bytes) == expected
    known = dict(device.pinned)
    assert sum(known.values()) > 0.8 * sum(column.nbytes for column in whole)
    assert sums_of(device, pieces[3:], host_bytes) == expected[3:]
    assert device.pinned == known
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("oocbe-fill")]
    del whole, pieces
    gc.collect()
    assert not device.pinned


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_unpins_nothing(device, monkeypatch):
    monkeypatch.setattr(pinned, "LEAST_BYTES", 1)
    whole = [np.arange(10_000)]
    sums_of(device, pieces_of(whole, [5000, 5000]))
    assert device.pinned
    child = os.fork()
    if child == 0:
        whole.clear()
        gc.collect()
        os._exit(0 if device.pinned else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_arrays_that_cannot_be_pinned_are_copied(device, monkeypatch, tmp_path):
    """The system refuses; memory that may not be written to; a file's; that of an object that others see, too."""
    monkeypatch.setattr(pinned, "LEAST_BYTES", 1)
    for array in (fresh_memory(1 << 14), njit(lambda count: np.empty(count))(1 << 14)):
        assert pinned.pinned_in_place(array[5:], pinned.worth_pinning([array[9:]]))
    pin = pinned.pin

    def refuse_some(address, nbytes):
        if address == numbers.ctypes.data:
            raise MemoryError("could not be pinned")
        pin(address, nbytes)

    monkeypatch.setattr(pinned, "pin", refuse_some)
    numbers = np.random.default_rng(1).integers(0, 250, sum(SIZES))
    fixed = numbers.copy()
    fixed.flags.writeable = False
    np.save(tmp_path / "file.npy", numbers)
    shared = bytearray(numbers)
    views = [np.frombuffer(shared, np.int64, count) for count in (2000, -1)]
    for column in (numbers, fixed, np.load(tmp_path / "file.npy", mmap_mode="c"), *views):
        pieces = pieces_of([column], SIZES if len(column) > 2000 else [1500, 500])
        assert sums_of(device, pieces) == [[int(piece[0].sum())] for piece in pieces]


def test_other_libraries_copy_any_part_of_an_array_that_was_needed(device, monkeypatch):
    """The driver refuses a copy that begins in pinned memory and ends outside it, or in another step of pinning."""
    monkeypatch.setattr(pinned, "LEAST_BYTES", 80_000)
    few, many, small = (np.arange(count) for count in (100_000, 100_000, 9_999))
    pieces = [[few[500:600], many[20_000:50_000], small]]
    assert sums_of(device, pieces) == [[int(column.sum()) for column in pieces[0]]]
    assert device.pinned.pop(many.ctypes.data) == many.nbytes and few.ctypes.data not in device.pinned
    device.pinned[many.ctypes.data] = many.nbytes
    for whole in (few, many, small):
        for part in (whole, whole[550:], whole[20_500:], whole[:550], whole[-10:]):
            assert device.may_copy(part)
    monkeypatch.setattr(backend, "cupy", lambda: device)
    for part in (few[7:].reshape(-1, 3), few[:10_000]):
        assert np.array_equal(backend.CudaBackend.upload(part), part)
    assert few.ctypes.data in device.pinned


@pytest.mark.parametrize("are_arrays", [True, False])
def test_the_interpreter_is_handed_over_quickly_while_columns_are_read(device, are_arrays):
    """Threads that pin hardly need it, and each hand-over delays the one that queues kernels."""
    pieces = made_pieces(False) if are_arrays else [[Unread(c) for c in columns] for columns in made_pieces(False)]
    before, within = sys.getswitchinterval(), []
    with Conveyor(pieces) as conveyor:
        conveyor.pieces(lambda number, columns: within.append(sys.getswitchinterval()))
    assert within == [pytest.approx(before if are_arrays else SECONDS)] * len(pieces)
    assert sys.getswitchinterval() == before


@pytest.mark.parametrize("failing", [0, 4])
def test_an_error_ends_the_threads_that_fill(device, failing):
    def compute(number, columns):
        if number == failing:
            raise KeyError("a piece")

    with pytest.raises(KeyError, match="a piece"), Conveyor(made_pieces(False)) as conveyor:
        conveyor.pieces(compute)
    assert all(stream.is_idle for stream in device.streams)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("oocbe-fill")]


def test_memory_pinned_before_counts(device):
    large = [[Unread(c) for c in columns] for columns in made_pieces(False, [100_000] * 3)]
    with Conveyor(large) as conveyor:
        conveyor.pieces(lambda number, columns: None)
    assert device.most_pinned > 1_000_000
    device.most_pinned = 0
    with Conveyor(made_pieces(False), 200_000) as conveyor:
        conveyor.pieces(lambda number, columns: None)
    assert 0 < sum(device.pinned.values()) <= 200_000


def test_pinned_memory_is_used_again_only_when_the_consumer_is_through(device, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))  # several threads that consume
    pieces = made_pieces(False, [ROWS] * 30)
    found = []

    def consume_late(arrived):
        time.sleep(0.004)
        found.append(arrived.copy())

    with Conveyor(pieces, 1 << 15) as conveyor:

        def compute(number, columns):
            made = doubled(device, conveyor, columns)
            conveyor.deliver(made, [lambda arrived: found.append(arrived.copy()), consume_late])

        conveyor.pieces(compute)
    expected = sorted((c * 2).tolist() for columns in pieces for c in columns)
    assert sorted(array.tolist() for array in found) == expected


def test_large_results_are_delivered_within_what_is_allowed(device):
    """A piece's results are thirty times its rows: they leave in groups."""
    allowed = 1 << 20
    pieces = made_pieces(False)
    arrived = []
    with Conveyor(pieces, allowed) as conveyor:

        def compute(number, columns):
            results = [device.empty(30 * len(c), c.dtype) for c in columns * 4]
            device.queue(conveyor.stream, lambda: [result.fill(number) for result in results])
            conveyor.deliver(results, [lambda column: arrived.append((len(column), set(column.tolist())))] * 8)

        conveyor.pieces(compute)
    assert 0 < device.most_pinned <= allowed
    assert sorted(arrived) == sorted((30 * len(columns[0]), {n}) for n, columns in enumerate(pieces) for _ in range(8))


def test_inputs_memory_is_free_again_while_results_wait_for_the_disk(device):
    may_go_on = threading.Event()
    pieces = made_pieces(False, [ROWS] * 60)
    allowed = 20 * 12 * ROWS
    with Conveyor(pieces, allowed) as conveyor:

        def compute(number, columns):
            conveyor.stream.synchronize()
            if number == 0:
                conveyor.deliver([device.empty(1, np.int64)], [lambda column: may_go_on.wait(60)])

        try:
            conveyor.pieces(compute)
            most = device.most_pinned
        finally:
            may_go_on.set()
    assert most <= allowed


class Failing(Unread):
    """A column of which one part cannot be read, or none."""

    def __init__(self, numbers, at_once):
        super().__init__(numbers)
        self._at_once = at_once

    def reads_into(self, target):
        if self._at_once:
            raise KeyError("no parts")
        return super().reads_into(target)

    def _read(self, target, low, high):
        if low:
            raise KeyError("a part")


@pytest.mark.parametrize("cores", [2, 16])
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("failing", [0, 1, PIECES - 1])
def test_what_cannot_be_read_ends_the_run(device, failing, at_once, cores, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    pieces = [[Unread(c) for c in columns] for columns in made_pieces(False)]
    pieces[failing][1] = Failing(pieces[failing][1]._numbers, at_once)
    done = []
    with pytest.raises(KeyError, match="part"), Conveyor(pieces) as conveyor:
        conveyor.pieces(lambda number, columns: done.append(number))
    assert len(done) <= failing
    assert all(stream.is_idle for stream in device.streams)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("oocbe-")]


def test_a_wait_that_ends_just_when_it_looks_up_gives_the_result():
    class Late(Future):
        """Done between the time running out and the look whether it is."""

        def result(self, timeout=None):
            if timeout is not None:
                self.set_result(7)
                raise TimeoutError
            return super().result()

    assert conveyor.wait(Late()) == 7


def test_one_large_piece_does_not_make_all_large(device):
    sizes = [100] * 30
    sizes[20] = 100_000
    pieces = made_pieces(False, sizes)
    with Conveyor(pieces) as conveyor:
        conveyor.pieces(lambda number, columns: None)
    assert device.most_pinned < 2 * 12 * 100_000


@pytest.mark.parametrize("is_pinned", [False, True])
def test_an_error_leaves_nothing_on_its_way(device, is_pinned):
    pieces = made_pieces(is_pinned)
    found = [[column(len(c), c.dtype, 0, is_pinned) for c in columns] for columns in pieces]

    def fail():
        with Conveyor(pieces) as conveyor:

            def compute(number, columns):
                if number == 4:
                    raise KeyError(number)
                conveyor.bring_back(doubled(device, conveyor, columns), found[number])

            conveyor.pieces(compute)

    with pytest.raises(KeyError):
        fail()
    assert all(stream.is_idle for stream in device.streams)
    for number in range(4):
        for one, other in zip(found[number], pieces[number], strict=True):
            assert np.array_equal(one, other * 2)


@pytest.mark.parametrize("interrupted", [0, 1, 2])
def test_an_interrupt_at_the_end_leaves_nothing_on_its_way(device, interrupted):
    """Kept memory of results may be used again, or let go, as soon as the conveyor has ended, however it does."""
    pieces = made_pieces(True)
    region = pinned_region(1 << 20)
    found = [[region.take(c.nbytes).view(c.dtype) for c in columns] for columns in pieces]
    with Conveyor([]) as conveyor:
        pass
    conveyor = Conveyor(pieces)
    stream = device.streams[-3:][interrupted]
    synchronize, calls = stream.synchronize, []

    def interrupt():
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        synchronize()

    def run():
        with conveyor:
            conveyor.pieces(
                lambda number, columns: conveyor.bring_back(doubled(device, conveyor, columns), found[number])
            )
            stream.synchronize = interrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    others = [other for other in device.streams[-3:] if other is not stream]
    assert all(other.is_idle for other in others)
    stream.synchronize = synchronize


def test_memory_is_not_let_go_while_a_copy_is_on_its_way(device):
    """The stand-in itself: it notices what the other tests rely on."""
    region = pinned_region(4096)
    memory = region.take(100)
    stream, array = device.cuda.Stream(non_blocking=True), device.empty(100, np.uint8)
    device.cuda.runtime.memcpyAsync(memory.ctypes.data, array.data.ptr, 100, 2, stream.ptr)
    with pytest.raises(AssertionError, match="on its way"):
        device.cuda.runtime.hostUnregister(memory.ctypes.data)
    gc.collect()
