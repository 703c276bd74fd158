"""Tables in memory, complete or not: what they refuse rather than change, and values of single assignments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocbe.algebra.operators import join_sum
from oocbe.errors import ModelError, TimeLimitError, ValueRangeError
from oocbe.model.semiring import LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT, Semiring
from oocbe.runtime.deadline import Deadline
from oocbe.tables.columns import RADIX_ROWS
from oocbe.tables.complete import CompleteTable
from oocbe.tables.stored import StoredCompleteTable, StoredTable
from oocbe.tables.table import Table


@pytest.mark.parametrize(
    ("tuples", "values"),
    [
        ([[0, 0], [1, 0]], [1, 2, 3]),
        ([[0, 0], [1, 0]], [1]),
        ([[0], [1], [1], [0]], [1, 2, 3, 4]),
        ([[0, 1, 1, 0]], [1, 2]),
        ([[[0, 1], [1, 0]]], [1, 2]),
        ([0, 1], [1]),
        ([[0, 1], [1]], [1, 2]),
        ([[0, 1], [1, 0]], [[1, 2]]),
        ([[0, 0.5], [1, 0]], [1, 2]),
        ([[0, 1]], 7),
        ([], [1]),
        ([[0, -1]], [1]),
        ([[0, 2]], [1]),
        ([[0, 1 << 64]], [1]),
        ([[0, 1], [0, 1]], [1, 2]),
    ],
)
def test_rows_that_are_none_are_refused(tuples, values):
    with pytest.raises(ModelError, match="table over"):
        Table.from_rows({"a": 2, "b": 2}, tuples, values)


def test_rows_of_any_number():
    assert Table.from_rows({"a": 2, "b": 2}, [], []).rows == 0
    assert Table.from_rows({"a": 2, "b": 2}, np.empty((0, 2)), np.empty(0, np.int32)).values.dtype == np.int32
    assert Table.from_rows({}, [[]], [5]).to_dict() == {(): 5}
    assert Table.from_rows({"a": 2}, np.array([[True]]), [5]).to_dict() == {(1,): 5}


FORMS = ["rows", "rows on disk", "cells", "cells on disk"]


@pytest.fixture(params=FORMS)
def table(request, tmp_path):
    rows = Table.from_rows({"a": 3, "b": 2}, [[0, 0], [0, 1], [2, 1]], [1, 2, 3])
    if request.param == "rows":
        return rows
    if request.param == "rows on disk":
        return StoredTable.save(tmp_path / "t", rows)
    cells = CompleteTable.from_table(rows)
    return cells if request.param == "cells" else StoredCompleteTable.save(tmp_path / "t", cells)


def test_values_of_assignments(table):
    assert [table.value_at(t) for t in ([0, 0], (0, 1), np.array([2, 1]), [1, 1])] == [1, 2, 3, None]
    assert table.value_at({"b": 1, "c": 7, "a": np.int32(2)}) == 3


@pytest.mark.parametrize(
    "assignment",
    [{"a": 3, "b": 0}, {"a": 4, "b": 0}, {"a": -1, "b": 1}, [0, 2], [0, 1 << 70], {"a": 0}, [0], [0, 0, 0], [0.0, 1.0]],
    ids=str,
)
def test_assignments_outside_the_domains_are_refused(table, assignment):
    with pytest.raises(ModelError):
        table.value_at(assignment)


CHANGES = [
    pytest.param([0.5, 1.0], MIN_SUM, np.int32, id="a fraction"),
    pytest.param([1.7, 1.0], MAX_SUM, np.int64, id="another one"),
    pytest.param([(1 << 53) + 1, 1], MIN_SUM, np.float64, id="an integer between two floats"),
    pytest.param([-(1 << 53) - 1, 1], LOG_SUM_EXP, np.float64, id="a negative one"),
    pytest.param([(1 << 24) + 1, 1], MIN_SUM, np.float32, id="between two of float32"),
    pytest.param([(1 << 60) - 1, 1], MAX_SUM, np.float64, id="near the end of int64"),
    pytest.param([(1 << 63) - 1, 1], MAX_PRODUCT, np.float64, id="at the end of int64"),
    pytest.param([1e300, 1.0], MIN_SUM, np.float32, id="too large for float32"),
    pytest.param([-1e39, 1.0], MAX_SUM, np.float32, id="too small for float32"),
    pytest.param([1e-60, 1.0], MAX_PRODUCT, np.float32, id="a factor that would be 0"),
    pytest.param([-1e-60, 1.0], SUM_PRODUCT, np.float32, id="a negative one that would be 0"),
]


@pytest.mark.parametrize(("values", "semiring", "dtype"), CHANGES)
def test_values_are_refused_rather_than_changed(values, semiring, dtype):
    table = Table.from_rows({"a": 2}, [[0], [1]], np.array(values), semiring)
    with pytest.raises(ValueRangeError, match=r"complete table over \('a',\)+: \w+ does not hold \S+; use another"):
        CompleteTable.from_table(table, dtype=dtype)


KEPT = [
    pytest.param([3.0, -2.0], MIN_SUM, np.int16, id="integers as floats"),
    pytest.param([1 << 53, -(1 << 53)], MIN_SUM, np.float64, id="the largest integers"),
    pytest.param([1 << 59, -(1 << 60) + 256], MAX_SUM, np.float64, id="even ones beyond"),
    pytest.param([1 << 24, 3 << 24], MAX_SUM, np.float32, id="of float32"),
    pytest.param([1e-60, 0.1], MIN_SUM, np.float32, id="rounded to float32"),
    pytest.param([0.1, 2.0], MAX_PRODUCT, np.float32, id="a factor rounded to float32"),
]


@pytest.mark.parametrize(("values", "semiring", "dtype"), KEPT)
def test_values_that_are_kept(values, semiring, dtype):
    array = np.array(values)
    table = Table.from_rows({"a": 3}, [[0], [2]], array, semiring)
    made = CompleteTable.from_table(table, dtype=dtype)
    assert made.dtype == dtype
    assert made.to_dict() == {(0,): array[0].astype(dtype), (2,): array[1].astype(dtype)}


@given(
    st.lists(st.integers(-(1 << 60) + 1, (1 << 60) - 1), min_size=1, max_size=5),
    st.sampled_from([np.float32, np.float64]),
)
def test_integers_become_floats_exactly_or_not_at_all(values, dtype):
    table = CompleteTable.from_array(["a"], np.array(values, dtype=np.int64), MIN_SUM).to_table()
    exact = all(int(dtype(value)) == value for value in values)
    if exact:
        assert [int(v) for v in CompleteTable.from_table(table, dtype=dtype).values] == values
    else:
        with pytest.raises(ValueRangeError):
            CompleteTable.from_table(table, dtype=dtype)


@pytest.mark.parametrize("semiring", [MIN_SUM, SUM_PRODUCT], ids=str)
def test_operators_on_integers_and_floats_round_as_floats_do(semiring: Semiring):
    """The same in both forms: there, floats are what is asked for."""
    large = Table.from_rows({"a": 2}, [[0], [1]], np.array([(1 << 53) + 1, 1]), semiring)
    half = Table.from_rows({"a": 2}, [[0], [1]], np.array([0.5, 0.25]), semiring)
    complete = join_sum(CompleteTable.from_table(large), CompleteTable.from_table(half), backend="cpu")
    assert complete.to_dict() == join_sum(large, half, backend="cpu").to_dict()


def test_counting_rows_of_a_complete_table_looks_at_the_deadline():
    """Hundreds of millions of cells took most of a second after a time limit had come."""
    table = CompleteTable.from_array("a", np.arange(6, dtype=np.int32), MIN_SUM)
    with Deadline(0.0) as deadline:
        deadline.interrupt()
        with pytest.raises(TimeLimitError):
            _ = table.rows
    assert table.rows == 6


def test_a_value_outside_its_domain_is_named_with_its_row_and_variable():
    with pytest.raises(ModelError, match=r"row 1 \(the first is 0\): 5 lies outside the domain of b, which is 0 to 2"):
        Table.from_rows({"a": 2, "b": 3}, [(0, 0), (1, 5)], [3, 4])


@pytest.mark.parametrize("size", [1 << 20, 1 << 40])  # keys of one word, and of two
def test_many_rows_are_sorted_by_the_radix_sort(monkeypatch, size):
    for name in ("lexsort", "argsort"):
        monkeypatch.setattr(np, name, lambda keys: pytest.fail("five times as slow"))
    rows = np.random.default_rng(8).permutation(RADIX_ROWS)
    table = Table.from_rows({"a": size, "b": size}, np.column_stack([rows, rows]), rows.astype(np.int32))
    assert table.values.tolist() == list(range(RADIX_ROWS)) and table.values.dtype == np.int32
