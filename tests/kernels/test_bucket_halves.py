"""A join on the device is taken to its leaves in halves where memory is short: the same rows, no item done twice.

The kernels are replaced: an item's children are its key with one more digit. Tried is who halves what, and when.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocbe.kernels.cuda.buckets import bucket_join
from oocbe.kernels.cuda.buckets.bucket_join import DeviceProgram, RowLimitError, _Frontier, _NoRoomError

DIGITS = 3


class OutOfMemory(Exception):
    """Stands for CuPy's error."""


class Program(DeviceProgram):
    """A join of ``levels`` levels whose leaves are all numbers of so many digits.

    most : items that a new frontier may have. failing : calls in which memory runs out.
    """

    def __init__(self, levels, most, failing):
        self.words, self.dtype, self.tables, self.least = 1, np.dtype(np.int64), [], None
        self.program = SimpleNamespace(levels=levels)
        self.runs = SimpleNamespace(part_start=[0] * (levels + 1))
        self.most, self.failing = most, failing
        self.calls, self.expanded = 0, []

    def _expand(self, frontier, level):
        self.calls += 1
        if frontier.items > 1 and frontier.items * DIGITS > self.most:
            raise _NoRoomError
        if self.calls in self.failing:
            raise OutOfMemory
        self.expanded += [(level, key) for key in frontier.keys[0].tolist()]
        keys = (frontier.keys[:, :, np.newaxis] * DIGITS + np.arange(DIGITS, dtype=np.uint64)).reshape(1, -1)
        none = np.zeros((0, keys.shape[1]), dtype=np.uint32)
        return _Frontier(keys, none, none, None, None)

    def _reduce(self, frontier):
        return frontier.keys, frontier.keys[0].astype(np.int64)


@pytest.fixture(autouse=True)
def host(monkeypatch):
    """Arrays in main memory, and an error that says that there is no more."""
    names = ("zeros", "empty", "asarray", "ascontiguousarray", "concatenate")
    monkeypatch.setattr(bucket_join, "cupy", lambda: SimpleNamespace(**{name: getattr(np, name) for name in names}))
    monkeypatch.setattr(bucket_join.memory, "is_out_of_memory", lambda error: isinstance(error, OutOfMemory))
    monkeypatch.setattr(bucket_join.memory, "free_blocks", lambda: None)


@given(st.integers(0, 5), st.integers(1, 300), st.sets(st.integers(1, 40), max_size=8))
def test_all_leaves_in_order_and_no_item_expanded_twice(levels, most, failing):
    program = Program(levels, most, failing)
    try:
        keys, values = program.join(1 << 30)
    except OutOfMemory:  # for one item alone
        return
    assert keys[0].tolist() == values.tolist() == list(range(DIGITS**levels))
    assert sorted(program.expanded) == [(level, key) for level in range(levels) for key in range(DIGITS**level)]


@pytest.mark.parametrize("most", [1, 10, 1000])
def test_the_rows_of_all_halves_count(most):
    assert len(Program(4, most, ()).join(81)[1]) == 81
    with pytest.raises(RowLimitError):
        Program(4, most, ()).join(80)


def test_memory_that_runs_out_for_one_item_is_an_error():
    with pytest.raises(OutOfMemory):
        Program(3, 1000, {1}).join(1 << 30)
