"""Operators on complete, incomplete and mixed tables against the dictionary model of the incomplete ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe import (
    CompleteTable,
    ModelError,
    ResourceError,
    StoredCompleteTable,
    Table,
    ValueRangeError,
    join_maximise,
    join_sum,
    maximise,
)
from oocbe.algebra.complete import eliminate_tables
from oocbe.model.infeasible import largest_feasible
from oocbe.model.semiring import LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SEMIRINGS, SUM_PRODUCT
from tests.helpers.effort import examples
from tests.helpers.table_models import SIZES, check, model_join, model_maximise, model_of, rows_of


def forms(data, table: Table):
    """The table itself, or the same as a complete one, in any order of its variables."""
    if not data.draw(st.booleans()):
        return table
    scope = data.draw(st.permutations(table.scope))
    narrow = table.dtype.kind == "i" and data.draw(st.booleans())
    return CompleteTable.from_table(table, scope, np.int16 if narrow else None)


def rows(table) -> Table:
    return table.to_table() if isinstance(table, CompleteTable) else table


@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
class TestMixed:
    @settings(max_examples=examples(60))
    @given(data=st.data())
    def test_conversion(self, semiring, data):
        table = data.draw(rows_of(semiring))
        scope = data.draw(st.permutations(table.scope))
        complete = CompleteTable.from_table(table, scope)
        assert complete.scope == tuple(scope)
        assert complete.rows == table.rows
        assert model_of(complete) == model_of(table)
        back = complete.to_table(table.scope)
        assert np.array_equal(back.keys, table.keys)
        assert np.array_equal(back.values, table.values)
        assert back.is_sorted
        for assignment in np.ndindex(*(SIZES[name] for name in table.scope)):
            named = dict(zip(table.scope, assignment, strict=True))
            assert complete.value_at(named) == table.value_at(named)

    @settings(max_examples=examples(68))
    @given(data=st.data())
    def test_join_sum(self, semiring, data):
        t1, t2 = data.draw(rows_of(semiring)), data.draw(rows_of(semiring))
        result = join_sum(forms(data, t1), forms(data, t2))
        check(rows(result), model_join(model_of(t1), model_of(t2), semiring), {*t1.scope, *t2.scope})

    @settings(max_examples=examples(48))
    @given(data=st.data())
    def test_maximise(self, semiring, data):
        t = data.draw(rows_of(semiring).filter(lambda t: t.scope))
        gone = data.draw(st.lists(st.sampled_from(t.scope), unique=True))
        result = maximise(forms(data, t), gone)
        check(rows(result), model_maximise(model_of(t), gone, semiring), {*t.scope} - {*gone})

    @settings(max_examples=examples(80))
    @given(data=st.data())
    def test_join_maximise(self, semiring, data):
        t1, t2 = data.draw(rows_of(semiring)), data.draw(rows_of(semiring))
        scope = sorted({*t1.scope, *t2.scope})
        gone = data.draw(st.lists(st.sampled_from(scope), unique=True)) if scope else []
        result = join_maximise(forms(data, t1), forms(data, t2), gone)
        expected = model_maximise(model_join(model_of(t1), model_of(t2), semiring), gone, semiring)
        check(rows(result), expected, {*scope} - {*gone})

    @settings(max_examples=examples(40))
    @given(data=st.data())
    def test_any_number_at_once(self, semiring, data):
        tables = [data.draw(rows_of(semiring, 1)) for _ in range(data.draw(st.integers(1, 4)))]
        scope = sorted({name for t in tables for name in t.scope})
        gone = data.draw(st.lists(st.sampled_from(scope), unique=True)) if scope else []
        result = eliminate_tables([CompleteTable.from_table(t) for t in tables], gone)
        expected = model_of(tables[0])
        for table in tables[1:]:
            expected = model_join(expected, model_of(table), semiring)
        check(result.to_table(), model_maximise(expected, gone, semiring), {*scope} - {*gone})


def test_a_table_with_most_rows_is_written_out_and_a_sparse_one_looked_up():
    random = np.random.default_rng(1)
    dense = CompleteTable.from_array("ab", random.integers(0, 100, (8, 8)).astype(np.int32), MIN_SUM)
    full = Table.from_rows({"b": 8}, np.arange(8)[:, None], np.arange(8, dtype=np.int32), MIN_SUM)
    assert isinstance(join_sum(dense, full), CompleteTable)
    sparse = Table.from_rows({"c": 9, "b": 8, "a": 8}, [[1, 2, 3], [8, 7, 0]], np.array([5, 6], np.int32), MIN_SUM)
    looked_up = join_sum(sparse, dense)
    assert isinstance(looked_up, Table)
    values = dense.to_dict()
    assert looked_up.to_dict() == {(1, 2, 3): 5 + values[3, 2], (8, 7, 0): 6 + values[0, 7]}


def test_integers_widen_before_they_meet_the_infeasible_value():
    near = largest_feasible(np.int32) - 1
    t = CompleteTable.from_array("a", np.array([near, -5], np.int32), MIN_SUM)
    assert join_sum(t, t).dtype == np.int64
    assert join_sum(t, t).to_dict() == {(0,): 2 * near, (1,): -10}
    small = CompleteTable.from_array("a", np.array([2000, -5], np.int16), MIN_SUM)
    assert join_sum(small, small).dtype == np.int16
    assert join_sum(small, join_sum(small, small)).dtype == np.int32
    top = CompleteTable.from_array("a", np.array([largest_feasible(np.int64), 0]), MIN_SUM)
    with pytest.raises(ValueRangeError, match="float64"):
        join_sum(top, top)


def test_integers_that_look_infeasible_are_refused_or_widened():
    with pytest.raises(ValueRangeError, match="wider dtype"):
        CompleteTable.from_array("a", np.array([largest_feasible(np.int16) + 1, 0], np.int16))
    wide = Table.from_rows({"a": 2}, [[0], [1]], np.array([2**30, 0], np.int32))
    assert CompleteTable.from_table(wide).dtype == np.int64
    with pytest.raises(ModelError, match="not negative"):
        CompleteTable.from_array("a", [-1.0, 2.0], MAX_PRODUCT)


def test_infinite_costs_are_infeasible():
    t = CompleteTable.from_array("a", [np.inf, 2.0], MIN_SUM)
    assert (t.rows, t.density, t.value_at([0]), t.value_at({"a": 1})) == (1, 0.5, None, 2.0)
    assert CompleteTable.from_array("a", [-np.inf, 2.0], LOG_SUM_EXP).rows == 1
    assert CompleteTable.from_array("a", [0.0, 2.0], SUM_PRODUCT, feasible=[True, True]).rows == 1


def test_what_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr("oocbe.tables.complete.default_memory_limit", lambda: 1 << 20)
    wide = {f"x{i}": 2 for i in range(40)}
    with pytest.raises(ResourceError, match=r"memory limit of 1\.0 MiB"):
        CompleteTable.from_table(Table.from_rows(wide, [[0] * 40], [1]))
    parts = [CompleteTable.from_array((f"a{i}",), np.zeros(1 << 12)) for i in range(2)]
    with pytest.raises(ResourceError, match=r"complete table over 2 variables takes 128\.0 MiB"):
        join_sum(*parts)


def test_parts_must_fit():
    with pytest.raises(ModelError, match="2 variables and 1 domain"):
        CompleteTable.from_array("ab", [1, 2])
    t = CompleteTable.from_array("a", [1, 2])
    with pytest.raises(ModelError, match="values of shape"):
        replace(t, values=np.zeros(3, np.int32))
    with pytest.raises(ModelError, match="must be int16"):
        replace(t, values=np.zeros(2, np.uint8))
    with pytest.raises(ModelError, match="semiring"):
        join_sum(t, CompleteTable.from_array("a", [1, 2], MIN_SUM))
    with pytest.raises(ModelError, match="neither scope"):
        join_maximise(t, t, "z")
    with pytest.raises(ModelError, match="not in scope"):
        maximise(t, "z")


def test_complete_tables_stay_complete_out_of_core(memory_folder):
    t = CompleteTable.from_array("ab", np.arange(6).reshape(2, 3), MAX_SUM)
    stored = join_sum(t, t, output=memory_folder / "joined")
    assert isinstance(stored, StoredCompleteTable)
    assert stored.to_complete().to_dict() == {k: 2 * v for k, v in t.to_dict().items()}
    assert maximise(stored, "a").to_dict() == {(k,): v for k, v in enumerate([6, 8, 10])}
    assert "4 key bits" not in repr(t)
    assert "6 values" in repr(t)
