"""A join on the device is taken to its leaves in halves where memory is short: the same rows, no item done twice.

The kernels are replaced: an item's children are its key with one more digit. Tried is who halves what, and when.
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocbe.elimination.engine.bucket_engine import TooManyRowsError, _join_on_device
from oocbe.errors import ResourceError
from oocbe.kernels.cuda.buckets import bucket_join
from oocbe.kernels.cuda.buckets.bucket_join import DeviceProgram, RowLimitError, _Frontier, _NoRoomError
from oocbe.model.semiring import MIN_SUM
from oocbe.tables.layout import Layout, Schema

DIGITS = 3


class OutOfMemory(Exception):
    """Stands for CuPy's error."""


class Program(DeviceProgram):
    """A join of ``levels`` levels whose leaves are all numbers of so many digits.

    most : items that a new frontier may have. failing : calls in which memory runs out.
    """

    def __init__(self, levels, most, failing):
        self.words, self.dtype, self.tables, self._may_share = 1, np.dtype(np.int64), [], False
        none = np.zeros((0, 1), dtype=np.uint32)
        self._root = _Frontier(np.zeros((1, 1), dtype=np.uint64), none, none, None, None)
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

    def _concatenated(self, parts):
        return np.concatenate([k for k, _ in parts], axis=1), np.concatenate([v for _, v in parts])


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


def test_a_half_is_copied_when_the_one_before_it_is_gone(monkeypatch):
    live, at_once = weakref.WeakValueDictionary(), []

    class Watched(bucket_join._Descent):
        def __init__(self, *fields):
            super().__init__(*fields)
            live[id(self)] = self
            at_once.append(len(live))

    monkeypatch.setattr(bucket_join, "_Descent", Watched)
    assert len(Program(6, 9, ()).join(1 << 30)[1]) == DIGITS**6
    assert len(at_once) > 100
    # Eight that were halved, each of which keeps its second half for later, and the one at work.
    assert max(at_once) == 9


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_join_that_ran_out_of_memory_is_attempted_once_more(monkeypatch, failures):
    """What the attempt before held is gone by then."""
    made = []

    class Attempt(Program):
        def __init__(self, *given):
            assert all(reference() is None for reference in made)
            made.append(weakref.ref(self))
            super().__init__(3, 1000, {1} if len(made) <= failures else ())

    def join(row_limit):
        layout = Layout(("a",), (DIGITS**3,))
        return _join_on_device(None, Schema(layout, np.dtype(np.int64), MIN_SUM), [], row_limit)

    monkeypatch.setattr(bucket_join, "DeviceProgram", Attempt)
    monkeypatch.setattr(bucket_join.memory, "used_bytes", lambda: 5)
    monkeypatch.setattr(bucket_join.memory, "limit_bytes", lambda: 7)
    if failures == 2:
        with pytest.raises(ResourceError, match="device memory ran out: ; used 5 bytes, limit 7 bytes"):
            join(27)
    else:
        assert join(27).values.tolist() == list(range(27))
        with pytest.raises(TooManyRowsError):
            join(26)
    assert len(made) == 2 if failures == 2 else len(made) == failures + 2
