"""Tables through a device that does all as late as it may, with the CPU's kernels: the operator's rows come back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oocbe.algebra import gpu_streaming, result_memory
from oocbe.algebra.dispatch import planned
from oocbe.algebra.gpu_streaming import PiecesThroughDevice
from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.algebra.result_memory import ResultPool
from oocbe.errors import DiskError, ResourceError
from oocbe.kernels import backend_named
from oocbe.kernels.cuda.pairs import extents
from oocbe.kernels.cuda.transfer import growing, pinned
from oocbe.kernels.cuda.transfer.pinned import PinnedMemory, pinned_region
from oocbe.tables.table import Table
from tests.helpers.lazy_device import DeviceArray, take_the_place_of_cupy
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
def device(monkeypatch):
    found = take_the_place_of_cupy(monkeypatch)
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
    return found


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
    pin, most = growing.GrowingMemory.pin, pinned_share * expected.nbytes

    def short(memory, high):
        if high > most:
            raise MemoryError
        pin(memory, high)

    monkeypatch.setattr(growing.GrowingMemory, "pin", short)
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


DTYPES, KEPT, PIECES = ("int32", "int64", "float64"), (None, 1 << 15, 1 << 24), (20, 300, 10**6)
"""Of values; bytes of memory that is kept, none, too few and enough; rows of pieces."""


@pytest.mark.parametrize(
    ("kept", "piece_rows", "dtype"),
    [(kept, rows, DTYPES[(i + j) % 3]) for i, kept in enumerate(KEPT) for j, rows in enumerate(PIECES)],
)
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_rows_are_those_of_the_operator(device, monkeypatch, shape, dtype, piece_rows, kept):
    first, second = (random_table(scope, 2000, 7 + i, dtype) for i, scope in enumerate(SHAPES[shape]))
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

    def narrow(self, moving, tables):
        if sum(table.rows for table in tables) > 60:
            refused.append(1)
            raise ResourceError("no room")
        return attempt(self, moving, tables)

    monkeypatch.setattr(PiecesThroughDevice, "_try", narrow)
    same_table(
        plan([first, second], "e").to_memory(200),
        join_maximise(first, second, "e", backend="cpu"),
    )
    assert refused


def test_rows_that_stay_together_and_find_no_room_are_named(device, monkeypatch):
    first, second = (random_table(scope, 2000, 7 + i, "int32") for i, scope in enumerate(SHAPES[0]))
    taken = []

    def refuse(self, moving, tables):
        taken.append(sum(table.rows for table in tables))
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

    def refuse(self, moving, tables):
        attempts.append(tables)
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
