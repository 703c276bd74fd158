"""Tables through a device that does all as late as it may, with the CPU's kernels: the operator's rows come back."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest

from oocbe.algebra import gpu_streaming, result_memory
from oocbe.algebra.gpu_streaming import PiecesThroughDevice, PlainResult
from oocbe.algebra.operators import join_maximise, join_sum, maximise, planned
from oocbe.algebra.result_memory import ResultPool
from oocbe.errors import DiskError, ResourceError
from oocbe.kernels import backend_named
from oocbe.kernels.cuda import gpus
from oocbe.kernels.cuda.pairs import extents
from oocbe.kernels.cuda.transfer import pinned
from oocbe.kernels.cuda.transfer.pinned import PinnedMemory, pinned_region
from oocbe.model.settings.machine import use_gpus
from oocbe.tables.table import Table
from tests.helpers.lazy_device import DeviceArray, DeviceError, take_the_place_of_cupy
from tests.helpers.table_models import same_table

SHAPES = [
    ({"e": 3, "a": 4, "k": 5, "l": 3}, {"b": 6, "e": 3, "k": 5, "l": 3}),
    ({"e": 3, "a": 1 << 40, "k": 7, "l": 1 << 30}, {"b": 5, "e": 3, "k": 7, "l": 1 << 30}),
]


@pytest.fixture(scope="module", autouse=True)
def backend():
    """The kernels are named here; the folder's fixture would run everything twice."""


class ExtentsOfHost:
    """Least and greatest values of NumPy arrays."""

    def __init__(self, columns):
        self._found = [np.array([v.min(), v.max()]) for v in columns]

    def read(self):
        return self._found


@pytest.fixture
def cpu_kernels(monkeypatch):
    """Have the CPU's kernels compute the pieces."""
    piece, attempt = PiecesThroughDevice._piece, PiecesThroughDevice._try

    def arrived(self, moving, *arguments):
        moving.stream.synchronize()  # the CPU's kernels run when they are called
        return piece(self, moving, *arguments)

    def on_device(self, *arguments):
        keys, values = attempt(self, *arguments)
        return np.ascontiguousarray(keys).view(DeviceArray), np.ascontiguousarray(values).view(DeviceArray)

    monkeypatch.setattr(PiecesThroughDevice, "_piece", arrived)
    monkeypatch.setattr(PiecesThroughDevice, "_try", on_device)
    monkeypatch.setattr(gpu_streaming, "_stacked", np.stack)
    monkeypatch.setattr(extents, "Extents", ExtentsOfHost)


@pytest.fixture(params=[1, 3])
def device(request, monkeypatch, cpu_kernels):
    """With one device, tables are copied into pinned memory; with several, pinned where they are."""
    monkeypatch.setattr(pinned, "LEAST_BYTES", 1 if request.param > 1 else 1 << 30)
    return take_the_place_of_cupy(monkeypatch, request.param)


@pytest.fixture
def several(monkeypatch, cpu_kernels):
    return take_the_place_of_cupy(monkeypatch, 3)


def random_table(scope, rows, seed, dtype):
    rng = np.random.default_rng(seed)
    tuples = np.unique(rng.integers(0, list(scope.values()), (rows, len(scope))), axis=0)
    table = Table.from_rows(scope, tuples, np.arange(len(tuples)))
    return replace(table, values=(table.values * 3).astype(dtype))


def plan(tables, *gone):
    """The way of a step through the device."""
    return planned(tables, gone).device_plan(tables, backend_named("cpu"))


@pytest.mark.parametrize("pinned_share", [1.0, 0.6, 0.1])
@pytest.mark.parametrize("piece_rows", [20, 300])
def test_results_use_the_pinned_memory_of_earlier_ones(device, monkeypatch, tune, piece_rows, pinned_share):
    """Also where fewer bytes may be pinned, or can be, than the result has."""
    monkeypatch.setattr(result_memory, "_POOL", ResultPool())
    tables = [random_table(scope, 2000, 7 + i, "int32") for i, scope in enumerate(SHAPES[0])]
    expected = join_maximise(*tables, "e", backend="cpu")
    pin, most = pinned.GrowingMemory.pin, pinned_share * expected.nbytes

    def short(memory, high):
        if high > most:
            raise MemoryError
        pin(memory, high)

    monkeypatch.setattr(pinned.GrowingMemory, "pin", short)
    tune(least_pooled_bytes=1)
    addresses, pinned_bytes = [], []
    for _ in range(3):
        result = plan(tables, "e").to_memory(piece_rows)
        same_table(result, expected)
        addresses.append(result.values.ctypes.data)
        pinned_bytes.append(sum(device.pinned.values()))
        del result
    if pinned_share == 1:
        assert addresses[1] == addresses[2]
        assert pinned_bytes[1] == pinned_bytes[2] > expected.nbytes
    tune(result_pool_share=0)
    same_table(plan(tables, "e").to_memory(piece_rows), expected)
    assert result_memory._POOL.free_bytes() == 0


def test_results_are_inputs_of_the_next_step(device, monkeypatch, tune):
    """Pinned in steps, as the first piece has few of the result's rows, and then as one: no copy may cross two."""
    monkeypatch.setattr(result_memory, "_POOL", ResultPool())
    tune(least_pooled_bytes=1)
    scopes = {"e": 3, "a": 40, "k": 50}, {"b": 30, "e": 3, "k": 50}
    second = random_table(scopes[1], 3000, 8, "int32")
    tuples, values = random_table(scopes[0], 3000, 7, "int32").to_rows()
    is_in = (tuples[:, 2] > 10) | (tuples[:, 1] == 0)
    first = Table.from_rows(scopes[0], tuples[is_in], values[is_in])
    steps = []
    unify = pinned.GrowingMemory.unify

    def counted(memory):
        steps.append(len(memory.bounds) - 1)
        unify(memory)
        assert memory.pinned >= memory.used

    monkeypatch.setattr(pinned.GrowingMemory, "unify", counted)
    joined = plan([first, second], "e").to_memory(300)
    assert min(steps) > 1
    for column in (joined.keys[0], joined.values):
        assert device.may_copy(column[10:])
    first = joined.scope[0]
    same_table(plan([joined], first).to_memory(5000), maximise(joined, first, backend="cpu"))


DTYPES, KEPT, PIECES = ("int32", "int64", "float64"), (None, 1 << 15, 1 << 24), (20, 300, 10**6)
"""Of values; bytes of memory that is kept, none, too few and enough; rows of pieces."""


@pytest.mark.parametrize(
    ("kept", "piece_rows", "dtype"),
    [(kept, rows, DTYPES[(i + j) % 3]) for i, kept in enumerate(KEPT) for j, rows in enumerate(PIECES)],
)
def test_rows_are_those_of_the_operator(device, monkeypatch, dtype, piece_rows, kept):
    scopes = SHAPES[(KEPT.index(kept) + PIECES.index(piece_rows)) % 2]
    first, second = (random_table(scope, 2000, 7 + i, dtype) for i, scope in enumerate(scopes))
    regions = [] if kept is None else [pinned_region(kept)]
    monkeypatch.setattr(result_memory, "_regions", regions)
    grouped1, grouped2 = (maximise(table, "e", backend="cpu") for table in (first, second))
    same_table(plan([grouped1, grouped2]).to_memory(piece_rows), join_sum(grouped1, grouped2, backend="cpu"))
    same_table(
        plan([first, second], "e").to_memory(piece_rows),
        join_maximise(first, second, "e", backend="cpu"),
    )
    same_table(plan([first], "e").to_memory(piece_rows), maximise(first, "e", backend="cpu"))
    assert all(stream.is_idle for stream in device.streams)
    assert all(region.is_free() for region in regions)


def test_values_that_need_a_wider_dtype_are_computed_again(device):
    """The first pieces' sums fit int32, a later one's do not."""
    first, second = (random_table(scope, 2000, 7 + i, "int64") for i, scope in enumerate(SHAPES[0]))
    first.values[-1] = 1 << 40
    found = plan([first, second], "e").to_memory(50)
    assert found.values.max() > 1 << 40
    same_table(found, join_maximise(first, second, "e", backend="cpu"))


def test_a_piece_that_the_device_has_no_room_for_is_halved(device, monkeypatch):
    first, second = (random_table(scope, 2000, 7 + i, "int32") for i, scope in enumerate(SHAPES[0]))
    attempt, refused = PiecesThroughDevice._try, []

    def narrow(self, whole, cut, columns):
        if cut.rows > 60:
            refused.append(1)
            raise ResourceError("no room")
        return attempt(self, whole, cut, columns)

    monkeypatch.setattr(PiecesThroughDevice, "_try", narrow)
    monkeypatch.setattr(gpu_streaming, "failed_allocations", lambda: len(refused))
    same_table(
        plan([first, second], "e").to_memory(200),
        join_maximise(first, second, "e", backend="cpu"),
    )
    assert 0 < len(refused) <= 6, "later pieces are cut before they are tried, on each device"


def test_a_group_without_room_has_later_pieces_cut_in_few_parts(device, monkeypatch):
    """In parts as small as the last that failed, 400 groups would be computed one by one."""
    scopes = {"e": 3, "a": 4, "k": 400}, {"b": 6, "e": 3, "k": 400}
    first, second = (random_table(scope, 2000, 7 + i, "int32") for i, scope in enumerate(scopes))
    first.values[0] = 1 << 20
    attempt, sizes, refused = PiecesThroughDevice._try, [], []

    def narrow(self, whole, cut, columns):
        sizes.append(cut.rows)
        if cut.rows > 15 and any((table.values == 1 << 20).any() for table in self._parts(whole, cut, columns)):
            refused.append(1)
            raise ResourceError("no room")
        return attempt(self, whole, cut, columns)

    monkeypatch.setattr(PiecesThroughDevice, "_try", narrow)
    monkeypatch.setattr(gpu_streaming, "failed_allocations", lambda: len(refused))
    same_table(plan([first, second], "e").to_memory(1000), join_maximise(first, second, "e", backend="cpu"))
    assert len(refused) > 3
    assert len(sizes) < 100


def test_a_sample_that_the_device_has_no_room_for_has_the_smallest_pieces(device, monkeypatch, tune):
    """Its upload ended the operation, also where another device had room."""

    def full(column):
        raise MemoryError("out of device memory")

    @contextmanager
    def refused():
        try:
            yield
        except MemoryError as error:
            raise ResourceError(str(error)) from None

    monkeypatch.setattr(gpu_streaming, "cupy", lambda: SimpleNamespace(asarray=full))
    monkeypatch.setattr(gpu_streaming, "with_retry", lambda call: refused()(call))
    tables = [random_table(scope, 2000, 7 + i, "int32") for i, scope in enumerate(SHAPES[0])]
    tune(least_device_piece_rows=100)
    way = plan(tables, "e")
    result = PlainResult(way.step.layout, way.dtype, way.step.is_sorted)
    assert PiecesThroughDevice(way, way.dtype, result).row_bytes() == inf
    monkeypatch.setattr(gpu_streaming, "device_room", lambda: 1 << 20)
    assert gpu_streaming.rows_a_piece(tables, row_bytes=inf) == 100


def test_rows_that_stay_together_and_find_no_room_are_named(device, monkeypatch):
    first, second = (random_table(scope, 2000, 7 + i, "int32") for i, scope in enumerate(SHAPES[0]))
    taken = []

    def refuse(self, whole, cut, columns):
        taken.append(cut.rows)
        raise ResourceError("device memory ran out")

    monkeypatch.setattr(PiecesThroughDevice, "_try", refuse)
    together = r"\d+ rows of the table over \('b', 'e', 'k', 'l'\) and the table over \('e', 'a', 'k', 'l'\)"
    with pytest.raises(ResourceError, match=rf"^{together} have to be in one piece: device memory ran out$"):
        plan([first, second], "e").to_memory(10**6)
    assert taken == sorted(taken, reverse=True)
    assert len(taken) > 2


def test_a_full_disk_halves_no_piece(device, monkeypatch):
    """It shows while results on their way are waited for; fewer rows at a time would not help."""
    first, second = (random_table(scope, 2000, 7 + i, "int32") for i, scope in enumerate(SHAPES[0]))
    attempts = []

    def refuse(self, *piece):
        attempts.append(piece)
        raise DiskError("the disk is full")

    monkeypatch.setattr(PiecesThroughDevice, "_try", refuse)
    with pytest.raises(DiskError, match=r"^the disk is full$"):
        plan([first, second], "e").to_memory(10**6)
    assert len(attempts) == 1


def test_memory_that_cannot_be_pinned_is_a_resource_error(device, monkeypatch):
    first, second = (random_table(scope, 2000, 7 + i, "int32") for i, scope in enumerate(SHAPES[0]))

    def refuse(nbytes):
        raise MemoryError("8 bytes of main memory could not be pinned: 2")

    monkeypatch.setattr(pinned, "_POOL", PinnedMemory(refuse))
    with pytest.raises(ResourceError, match="pinned memory for pieces on their way: 8 bytes"):
        plan([first, second], "e").to_memory(100)


def tables():
    return [random_table(scope, 2000, 7 + i, "int32") for i, scope in enumerate(SHAPES[0])]


def devices_at_work(monkeypatch, several, fails=lambda number, pieces: None):
    """Numbers of the devices of all pieces so far; ``fails`` gets the number of a piece's, and all, and may raise."""
    attempt, pieces = PiecesThroughDevice._try, []

    def recorded(self, *piece):
        pieces.append(several.number)
        fails(several.number, pieces)
        return attempt(self, *piece)

    monkeypatch.setattr(PiecesThroughDevice, "_try", recorded)
    return pieces


@pytest.mark.parametrize(("limit", "expected"), [(None, {0, 1, 2}), (2, {0, 1}), (1, {0})])
def test_pieces_go_to_all_devices_within_the_limit(several, monkeypatch, limit, expected):
    pieces = devices_at_work(monkeypatch, several)
    with use_gpus(limit):
        found = plan(tables(), "e").to_memory(50)
    same_table(found, join_maximise(*tables(), "e", backend="cpu"))
    assert set(pieces) == expected and max(map(pieces.count, expected)) - min(map(pieces.count, expected)) <= 1
    assert several.limits == dict.fromkeys(expected - {0}, 1 << 30)
    assert all(stream.is_idle for stream in several.streams)


def test_short_work_starts_no_device(several, monkeypatch, tune):
    monkeypatch.setattr(gpus, "_started", {0})
    pieces = devices_at_work(monkeypatch, several)
    plan(tables(), "e").to_memory(50)
    assert set(pieces) == {0}
    tune(streamed_bytes_a_second=1e-9)
    plan(tables(), "e").to_memory(50)
    assert set(pieces) == {0, 1, 2}


@pytest.mark.parametrize("error", [ResourceError("device memory ran out"), DeviceError("the device is lost")])
@pytest.mark.parametrize("failing", [0, 1])
def test_others_do_the_work_of_a_device_that_fails(several, monkeypatch, caplog, failing, error):
    """In the middle; one that is lost is not used again."""

    def fail(number, pieces):
        if number == failing and len(pieces) > 10:
            raise error

    pieces = devices_at_work(monkeypatch, several, fail)
    same_table(plan(tables(), "e").to_memory(50), join_maximise(*tables(), "e", backend="cpu"))
    assert f"GPU {failing}: " in caplog.text and str(error) in caplog.text
    assert set(pieces[-8:]) == {0, 1, 2} - {failing}
    again = len(pieces)
    plan(tables(), "e").to_memory(50)
    assert (failing in pieces[again:]) == isinstance(error, ResourceError)


def test_the_errors_of_all_devices_are_reported(several, monkeypatch):

    def fail(number, pieces):
        raise DeviceError(f"device {number} is lost")

    devices_at_work(monkeypatch, several, fail)
    reported = r"^all GPUs failed: GPU (\d): device \1 is lost(; GPU (\d): device \3 is lost){2}$"
    with pytest.raises(ResourceError, match=reported):
        plan(tables(), "e").to_memory(50)


def test_a_result_without_room_is_not_tried_on_other_devices(several, monkeypatch):
    pieces = devices_at_work(monkeypatch, several)

    def full(self, *_):
        raise ResourceError("a result of more than 3 rows does not fit main memory")

    monkeypatch.setattr(PlainResult, "take", full)
    with pytest.raises(ResourceError, match=r"^a result of more than 3 rows"):
        plan(tables(), "e").to_memory(50)
    assert len(pieces) <= 6


def test_an_interrupt_ends_all_devices(several, monkeypatch):

    def interrupt(number, pieces):
        if number == 0 and len(pieces) > 5:
            raise KeyboardInterrupt

    devices_at_work(monkeypatch, several, interrupt)
    with pytest.raises(KeyboardInterrupt):
        plan(tables(), "e").to_memory(50)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("oocbe-gpu")]
    assert all(stream.is_idle for stream in several.streams)
