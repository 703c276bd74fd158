"""The memory arbiter and the streams: who holds what, results in order, and all of it stopped by the first error."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from contextlib import closing

import numpy as np
import pytest

from oocbe.errors import ResourceError
from oocbe.execution.budget import Budget
from oocbe.execution.partition import ScratchFile
from oocbe.execution.pipeline import run_in_order
from oocbe.execution.sources import InMemorySource, SliceSource
from oocbe.kernels.cpu import threads
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout
from oocbe.tables.table import Table


def test_reservations_add_up_and_end_with_their_blocks():
    budget = Budget(1000)
    with budget.reserve("a", 600), budget.reserve("b", 400):
        assert budget.used == 1000
    assert (budget.used, budget.peak) == (0, 1000)


def test_a_refusal_names_requested_used_limit_and_holders():
    budget = Budget(1 << 20)
    with budget.reserve("partition", 768 << 10):
        with (
            pytest.raises(
                ResourceError, match=r"stream 1 needs 512\.0 KiB.*768\.0 KiB of the limit of 1\.0 MiB.*partition"
            ),
            budget.reserve("stream 1", 512 << 10),
        ):
            pass
        with budget.reserve("stream 1", 256 << 10):
            assert budget.used == 1 << 20
    assert budget.used == 0


def test_reservations_of_nothing_may_overlap():
    budget = Budget(1000)
    with budget.reserve("a", 0), budget.reserve("a", 0), budget.reserve("a", 10):
        assert budget.used == 10
    with budget.reserve("a", 0), budget.reserve("a", 0):
        pass
    assert (budget.used, budget.peak) == (0, 10)


class Steps:
    """A piece that gives some numbers, and may wait for something, or fail, before the last one."""

    def __init__(self, first: int, count: int, wait=None, error=None) -> None:
        self.first, self.count, self.wait, self.error = first, count, wait, error
        self.stream = -1

    def __call__(self, stream):
        self.stream = stream
        for number in range(self.first, self.first + self.count):
            if number == self.first + self.count - 1:
                if self.wait is not None:
                    assert self.wait.wait(20)
                if self.error is not None:
                    raise self.error
            yield number


def stream_threads():
    return [t for t in threading.enumerate() if t.name.startswith("oocbe-stream")]


@pytest.mark.parametrize("streams", [1, 2, 8])
def test_results_come_in_order_on_streams_in_turn(streams):
    pieces = [Steps(10 * i, 1 + i % 4) for i in range(40)]
    expected = [n for p in pieces for n in range(p.first, p.first + p.count)]
    assert list(run_in_order(iter(pieces), streams)) == expected
    assert [p.stream for p in pieces] == [i % streams for i in range(40)]
    assert not stream_threads()


def test_pieces_are_at_work_at_once():
    """The first piece ends only when the third has begun, which is on a stream of its own."""
    begun = threading.Event()

    class Signal(Steps):
        def __call__(self, stream):
            begun.set()
            yield from super().__call__(stream)

    assert list(run_in_order([Steps(0, 1, wait=begun), Steps(1, 1), Signal(2, 1)], 3)) == [0, 1, 2]


def share_of_eight():
    """Of eight threads, those that are for the stream which asks."""
    return threads._inside.sharing.share(8)


class Shares:
    """A piece that ends when its stream has a share of eight threads."""

    def __init__(self, share):
        self.share, self.seen = share, threading.Event()

    def __call__(self, stream):
        deadline = time.monotonic() + 20
        while share_of_eight() != self.share and time.monotonic() < deadline:
            time.sleep(0.001)
        if share_of_eight() == self.share:
            self.seen.set()
        yield stream


def test_streams_at_work_share_the_threads():
    both = threading.Barrier(2, timeout=20)

    class Both:
        def __call__(self, stream):
            both.wait()
            share = share_of_eight()
            both.wait()
            yield share

    assert list(run_in_order([Both(), Both()], 2)) == [4, 4]


def test_a_stream_that_waits_to_hand_over_leaves_its_threads_to_the_others():
    other = Shares(8)
    with closing(run_in_order([Steps(0, 5), other], 2)) as results:
        next(results)
        assert other.seen.wait(30)  # nobody takes the first piece's results meanwhile
        assert list(results) == [1, 2, 3, 4, 1]


def test_a_stream_that_waits_for_streams_of_its_own_leaves_its_threads_to_the_others():
    other = Shares(8)

    class Nested:
        def __call__(self, stream):
            yield from run_in_order([Steps(0, 1, wait=other.seen)], 1)

    assert list(run_in_order([Nested(), other], 2)) == [0, 1]


def test_no_more_pieces_are_taken_than_there_are_streams():
    taken = []

    def pieces():
        for i in range(100):
            taken.append(i)
            yield Steps(i, 1)

    with closing(run_in_order(pieces(), 3)) as results:
        assert next(results) == 0
        assert len(taken) <= 3
    assert not stream_threads()


@pytest.mark.parametrize("failing", [0, 1, 7])
@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), KeyboardInterrupt()], ids=repr)
def test_the_first_error_stops_all(failing, error):
    pieces = [Steps(10 * i, 3, error=error if i == failing else None) for i in range(20)]
    found = []
    with pytest.raises(type(error)):
        found.extend(run_in_order(iter(pieces), 4))
    assert found == [n for p in pieces[:failing] for n in range(p.first, p.first + 3)] + [
        10 * failing,
        10 * failing + 1,
    ]
    assert not stream_threads()
    assert all(p.stream == -1 for p in pieces[failing + 5 :])


def test_an_error_between_pieces_stops_all():
    def pieces():
        yield Steps(0, 5)
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        list(run_in_order(pieces(), 2))
    assert not stream_threads()


def test_what_pieces_hold_is_free_after_an_error():
    """Without the collector of cycles: a scratch file would take a full disk's space until then."""
    held = []

    def piece(stream):
        rows = np.zeros(10)
        held.append(weakref.ref(rows))
        both.wait()
        raise OSError(len(rows))
        yield rows

    both = threading.Barrier(2)
    gc.disable()
    try:
        with pytest.raises(OSError, match="10"):
            list(run_in_order(iter([piece, piece]), 2))
        assert len(held) == 2
        assert all(rows() is None for rows in held)
    finally:
        gc.enable()


def test_scratch_gives_rows_back_in_any_ranges(tmp_path):
    rng = np.random.default_rng(1)
    layout = Layout(("a", "b"), (1 << 40, 1 << 40))
    scratch = ScratchFile(DiskBudget(tmp_path), layout, np.dtype(np.int32))
    keys, values = rng.integers(0, 1 << 40, (2, 950)).astype(np.uint64), np.arange(950, dtype=np.int32)
    for start in range(0, 950, 100):
        rows = slice(start, min(start + 100, 950))
        bounds = np.array([0, 10, 10, rows.stop - start], dtype=np.int64)
        assert scratch.append(keys[:, rows], values[rows], bounds) == start
    assert list(tmp_path.iterdir()) == []  # the file has no name that could be left behind
    for start, stop in [(0, 950), (5, 8), (99, 101), (100, 300), (949, 950), (310, 700)]:
        found = np.empty((2, stop - start), dtype=np.uint64), np.empty(stop - start, dtype=np.int32)
        scratch.read_into(start, *found)
        assert np.array_equal(found[0], keys[:, start:stop])
        assert np.array_equal(found[1], values[start:stop])
    assert [b for _, b in scratch.ranges(60)][-1] == 950
    assert max(b - a for a, b in scratch.ranges(60)) == 60


@pytest.mark.parametrize(
    ("values", "size"),
    [
        (np.array([-3, 252, 0], dtype=np.int32), 1),
        (np.array([-3, 253, 0], dtype=np.int32), 2),
        (np.array([1 << 40, (1 << 40) + (1 << 20), 1 << 40], dtype=np.int64), 3),
        (np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, 7], dtype=np.int64), 8),
        (np.array([np.iinfo(np.int32).min, np.iinfo(np.int32).max, 7], dtype=np.int32), 4),
        (np.array([-0.0, np.inf, np.nan], dtype=np.float32), 4),
        (np.array([1.5, -np.inf, 5e-324], dtype=np.float64), 8),
    ],
)
@pytest.mark.parametrize("bits", [1, 8, 29, 40, 64, 70])
def test_scratch_takes_the_bytes_that_numbers_need(values, size, bits, tmp_path):
    budget = DiskBudget(tmp_path)
    parts = (bits // 2, bits - bits // 2)
    layout = Layout(("a", "b"), (1 << parts[0], 1 << parts[1]))
    columns = [np.random.default_rng(part).integers(0, 1 << part, 3) for part in parts]
    keys = layout.pack(np.stack(columns, axis=1))
    scratch = ScratchFile(budget, layout, values.dtype)
    for _ in range(2):
        scratch.append(keys, values, np.array([0, 2, 3]))
    distances = [int(word.max()) - int(word.min()) for word in keys]
    assert budget.used == 6 * (sum(max(1, -(-distance.bit_length() // 8)) for distance in distances) + size)
    for start, stop in [(0, 6), (1, 2), (2, 5)]:
        found = np.empty((layout.words, stop - start), dtype=np.uint64), np.empty(stop - start, dtype=values.dtype)
        scratch.read_into(start, *found)
        assert np.array_equal(found[0], np.tile(keys, 2)[:, start:stop])
        assert found[1].tobytes() == np.tile(values, 2)[start:stop].tobytes()


def test_scratch_of_several_stripes(tmp_path, tune):
    tune(stretch_rows=16)
    rng = np.random.default_rng(3)
    scratch = ScratchFile(DiskBudget(tmp_path), Layout(("a",), (1 << 20,)), np.dtype(np.int64))
    keys, values = rng.integers(0, 1 << 20, (1, 100)).astype(np.uint64), rng.integers(-500, 500, 100)
    scratch.append(keys, values, np.array([0, 100]))
    for start, stop in [(0, 100), (3, 90), (16, 32)]:
        found = np.empty((1, stop - start), dtype=np.uint64), np.empty(stop - start, dtype=np.int64)
        scratch.read_into(start, *found)
        assert np.array_equal(found[0], keys[:, start:stop])
        assert np.array_equal(found[1], values[start:stop])


def test_slices_of_sources():
    keys = np.arange(50, dtype=np.uint64)[np.newaxis]
    source = InMemorySource(Table(Layout(("a",), (50,)), keys, np.arange(50), is_sorted=True))
    starts, counts = np.array([40, 3, 6, 20]), np.array([5, 3, 4, 0])
    slices = SliceSource(source, starts, counts)
    expected = [*range(40, 45), *range(3, 10)]
    assert slices.rows == 12
    for start in range(12):
        found = np.empty((1, 12 - start), dtype=np.uint64)
        slices.read_into(start, found, None)
        assert found[0].tolist() == expected[start:]
    assert list(slices.ranges(8)) == [(0, 5), (5, 12)]
    assert list(slices.ranges(5)) == [(0, 5), (5, 10), (10, 12)]
