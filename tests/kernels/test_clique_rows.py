"""The walk that finds the rows of a clique: all of them, and it heeds the flag while it makes room."""

from __future__ import annotations

import numpy as np

from oocbe.kernels.cpu.trees import clique_rows


def walked(sizes, stop, most=1 << 40):
    """The rows of a clique that no table narrows, one separator variable."""
    none = np.empty(0, dtype=np.int64)
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    children = np.empty(0, dtype=np.int32)
    kind = np.empty(0, dtype=np.uint8)
    steps = (starts, none, none, none, children, none, none)
    return clique_rows.walk(np.array(sizes, dtype=np.int64), 1, *steps, kind, most, np.array([stop]))


def test_all_rows_come_in_order_however_often_room_grows():
    values, _, groups, finished = walked((30, 40, 50), 0)
    assert finished
    expected = np.indices((30, 40, 50), dtype=np.uint8).reshape(3, -1)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(groups, np.arange(31) * 40 * 50)


def test_the_flag_ends_a_walk_that_makes_room():
    """Before, only every 65,536th beginning of a row looked at it, and gigabytes were copied in between."""
    values, _, groups, finished = walked((30, 40, 50), 1)
    assert not finished
    assert (values.shape, len(groups)) == ((3, 0), 1)


def test_more_rows_than_there_may_be_end_it():
    assert not walked((30, 40, 50), 0, most=2000)[3]
