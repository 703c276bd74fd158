"""Messages that must not be cut, on a device without memory for them: main memory takes them, or a refusal says why.

No device is needed: one is pretended that takes all buckets, and runs out of memory.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from oocbe.bounds.mini_buckets.mini_buckets import MiniBuckets
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine import bucket_engine
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.decision import (
    AttemptHistory,
    BucketConstraints,
    BucketSizes,
    Device,
    Input,
    MainMemory,
    Place,
    decide,
)
from oocbe.elimination.preparation.prepare import prepare
from oocbe.errors import ResourceError
from oocbe.kernels.choice import complete_kernels
from oocbe.stress.tables import grid_network

PROBLEM = grid_network(4, 4, seed=1)


class FullDevice(BucketEngine):
    """An engine whose device takes every bucket, and has memory for none.

    insists : whether nothing but the device may compute. room : what it says that it has.
    """

    def __init__(self, insists: bool, room: int = 1 << 40) -> None:
        super().__init__("cpu", device_work=1 << 62)
        self.insists, self._device_work, self._room = insists, 0, room

    def device(self, movable=None):
        return Device(self.insists, 32, lambda: self._room)

    def complete_kernels(self, joined_cells):
        return complete_kernels(0, "cpu")


@pytest.fixture
def asked(monkeypatch):
    """Joins that a device was asked for, none of which it has memory for."""
    found = []

    def join(*arguments):
        found.append(arguments)
        raise ResourceError("device memory ran out: used 5 bytes")

    monkeypatch.setattr(bucket_engine, "_join_on_device", join)
    return found


def mini_buckets(engine, tables, memory=1 << 30):
    prepared = prepare(PROBLEM, PROBLEM.semiring, range(len(PROBLEM.variables)))
    with MessageStore(memory) as store:
        return MiniBuckets(prepared, 3, store, engine, tables=tables).run()


def test_mini_buckets_go_to_main_memory_where_the_device_is_full(asked):
    expected = mini_buckets(BucketEngine("cpu"), "incomplete")
    found = mini_buckets(FullDevice(insists=False), "incomplete")
    assert (found.bound, found.total_rows) == (expected.bound, expected.total_rows)
    assert len(asked) == expected.mini_buckets  # once each


def test_a_device_that_is_insisted_on_is_named_in_the_refusal_of_rows(asked):
    with pytest.raises(ResourceError, match=r"bucket of .*: device memory ran out: used 5 bytes") as refused:
        mini_buckets(FullDevice(insists=True), "incomplete")
    assert len(asked) == 1
    assert "--memory" not in str(refused.value)


def test_a_device_that_is_insisted_on_is_named_in_the_refusal_of_a_complete_table():
    with pytest.raises(ResourceError, match=r"bucket of .* complete; requested .*, free 10 B of device memory") as said:
        mini_buckets(FullDevice(insists=True, room=10), "complete")
    assert "--device-memory" in str(said.value)
    assert "--memory" not in str(said.value)


def test_main_memory_that_is_short_on_the_way_to_a_device_is_named():
    with pytest.raises(ResourceError, match=r"complete; requested \d+ B, used \d+ B, limit 20 B. Raise --memory"):
        mini_buckets(FullDevice(insists=True), "complete", memory=20)


def test_tables_that_leave_a_full_device_take_main_memory():
    table = Input(10_000, 100, 1200, 1200, False, Place.DEVICE)
    bucket = BucketSizes(1000, 10_000, 4, 12, 0, [table, table])
    memory, wishes = MainMemory(1 << 20, 1 << 20), BucketConstraints("incomplete", may_cut=False)
    device = Device(False, 32, lambda: 1 << 30)
    there = decide(bucket, memory, device, wishes)
    back = decide(bucket, memory, device, wishes, AttemptHistory(rows_ran_out=True))
    assert back == replace(decide(bucket, memory, None, wishes), wanted=back.wanted)
    assert 12 * 3 * (there.most_rows - back.most_rows) == pytest.approx(2400, abs=36)
