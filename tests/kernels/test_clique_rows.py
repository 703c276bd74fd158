"""The walk that finds the rows of a clique: all of them, and it heeds the flag while it makes room."""

from __future__ import annotations

import numpy as np

from oocbe.junction_trees.kernels.cpu import clique_rows


def walked(sizes, stop, most=1 << 40):
    """The rows of a clique that no table narrows, one separator variable."""
    none = np.empty(0, dtype=np.int64)
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    children = np.empty(0, dtype=np.int32)
    kind = np.empty(0, dtype=np.uint8)
    steps = (starts, none, none, none, children, none, none)
    return clique_rows.walk(np.array(sizes, dtype=np.int64), 1, *steps, kind, 1000, most, np.array([stop]))


def test_all_rows_come_in_order_however_often_room_grows():
    values, _, groups, finished = walked((30, 40, 50), 0)
    assert finished
    expected = np.indices((30, 40, 50), dtype=np.uint8).reshape(3, -1)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(groups, np.arange(31) * 40 * 50)


def test_numbers_of_tables_are_whole_where_room_grows():
    """Rows of a table are written when all rows of its node are known, which may be after rows were moved."""
    sizes = np.array([300, 15, 10], dtype=np.int64)
    steps = [np.array(own, dtype=np.int64) for own in ([0, 2, 4, 5], [0, 1, 0, 1, 1], [0, 0, 1, 1, 2], [-2] * 5)]
    none, tables = np.empty(0, dtype=np.int32), (np.array([2, 3]), np.array([0, 1]))
    flags = (np.empty(0, dtype=np.uint16), 1000, 1 << 40, np.zeros(1, dtype=np.int64))
    values, numbers, groups, finished = clique_rows.walk(sizes, 2, *steps, none, *tables, *flags)
    rows = np.arange(sizes.prod())
    assert finished
    np.testing.assert_array_equal(numbers, [rows // 10, rows])
    np.testing.assert_array_equal(values, np.unravel_index(rows, sizes))
    np.testing.assert_array_equal(groups, np.arange(300 * 15 + 1) * 10)


def test_the_flag_ends_a_walk_that_makes_room():
    """Before, only every 65,536th beginning of a row looked at it, and gigabytes were copied in between."""
    values, _, groups, finished = walked((30, 40, 50), 1)
    assert not finished
    assert (values.shape, len(groups)) == ((3, 0), 1)


def test_more_rows_than_there_may_be_end_it():
    assert not walked((30, 40, 50), 0, most=2000)[3]
