"""Messages come out in order, in the layout their bucket needs, and no sort runs between the first and the last."""

from __future__ import annotations

import itertools
import tempfile
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.elimination.buckets import bucket_message
from oocbe.elimination.buckets.buckets import ConstraintIndex
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.factors import members_of
from oocbe.elimination.preparation.prepare import prepare
from oocbe.kernels.cpu.backend import CpuBackend
from oocbe.kernels.cpu.pairs import sort as sort_kernels
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.tables.residence import rows_in_main_memory
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.effort import examples
from tests.helpers.small_problems import make_problem, star, structures, without_bound

SORTS = [
    (np, "lexsort"),
    (np, "argsort"),
    (np, "sort"),
    (np, "unique"),
    (sort_kernels, "sort_rows"),
    (CpuBackend, "sort_rows"),
]


def numbers_of(keys) -> list[int]:
    """Keys as Python integers of any size."""
    return [sum(int(word) << (64 * w) for w, word in enumerate(column)) for column in keys.T]


def check_messages(prepared, buckets) -> int:
    """Assert the order and layout of every message received; how many there were."""
    count = 0
    for bucket in buckets:
        for message in bucket.messages:
            count += 1
            table = message.table()
            assert table.is_sorted
            numbers = numbers_of(table.keys)
            assert all(a < b for a, b in itertools.pairwise(numbers))
            assert message.scope[0] == bucket.variable
            places = [prepared.position[v] for v in message.scope]
            assert places == sorted(places)
            assert table.layout == prepared.layout(message.scope)
            assert (table.to_rows()[0] < np.array([prepared.problem.sizes[v] for v in message.scope])).all()
            assert table.values.dtype == prepared.dtype
    return count


@settings(max_examples=examples(100))
@given(structures(), st.sampled_from([None, 1, 3, 7]), st.booleans())
def test_messages_are_sorted_without_a_sort(structure, block_rows, dominance):
    problem = without_bound(make_problem(structure))
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    prepared = prepare(problem, problem.semiring, order)  # this is where the problem's own large tables are sorted
    with MessageStore(1 << 30) as store, pytest.MonkeyPatch.context() as patch:
        for module, name in SORTS:
            patch.setattr(module, name, lambda *arguments, name=name, **more: pytest.fail(f"{name} was called"))
        patch.setenv("OOCBE_THREADS", "2")
        engine = BucketEngine("cpu", block_rows=block_rows)
        outcome = Forward(prepared, dominance, store, engine=engine).run()
        patch.undo()
        check_messages(prepared, outcome.buckets)


def test_wide_messages_are_sorted_without_a_sort(monkeypatch):
    """130 variables around a hub, at most one of them on: keys of three words."""
    count = 130
    pairs = itertools.combinations(range(1, count + 1), 2)
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(count + 1)),
        tuple(Function.from_array((0, v), [[0, v], [1, 3 * v % 50]]) for v in range(1, count + 1)),
        tuple(Constraint(p, [[1, 1]]) for p in pairs),
    )
    prepared = prepare(problem, MIN_SUM, range(count + 1))
    with MessageStore(1 << 30) as store:
        for module, name in SORTS:
            monkeypatch.setattr(module, name, lambda *arguments, name=name, **more: pytest.fail(f"{name} was called"))
        outcome = Forward(prepared, False, store, engine=BucketEngine("cpu", block_rows=5)).run()
        monkeypatch.undo()
        assert outcome.buckets[1].messages[0].table().layout.words == 3
        assert outcome.largest_rows == count + 1
        assert check_messages(prepared, outcome.buckets) == count


def test_subtrees_and_totals_are_reported():
    """A chain of four: rows and buckets as told to the observer add up."""
    problem = Problem(
        tuple(Variable(f"x{v}", 3) for v in range(4)),
        tuple(Function.from_array((v, v + 1), np.arange(9).reshape(3, 3)) for v in range(3)),
    )
    prepared = prepare(problem, MIN_SUM, range(4))
    told = []
    with MessageStore(1 << 30) as store:
        outcome = Forward(prepared, False, store).run(lambda *event: told.append(event))
    assert [place for place, _, _ in told] == [1, 2, 3, 4]
    assert [rows for _, rows, _ in told] == [3, 3, 3, 1]
    assert outcome.total_rows == 10
    assert (outcome.largest_rows, outcome.width) == (3, 1)


@pytest.mark.parametrize("words", [1, 2, 3])
def test_find_row(words):
    random = np.random.default_rng(words)
    keys = np.unique(random.integers(0, 5, size=(100, words)), axis=0)
    keys = keys[np.lexsort(keys.T)].T.astype(np.uint64).copy()
    for row in range(keys.shape[1]):
        assert rows_in_main_memory(keys, keys[:, row].copy()) == (row, row + 1)
    known = set(numbers_of(keys))
    for key in itertools.product(range(6), repeat=words):
        column = np.array(key, dtype=np.uint64)
        if numbers_of(column[:, None])[0] not in known:
            low, high = rows_in_main_memory(keys, column)
            assert low == high
        numbers = [numbers_of(keys[1:, [row]])[0] if words > 1 else 0 for row in range(keys.shape[1])]
        above = numbers_of(column[1:, None])[0] if words > 1 else 0
        expected = [r for r, n in enumerate(numbers) if n == above and key[0] <= keys[0, r] <= key[0] + 2]
        assert list(range(*rows_in_main_memory(keys, column, 2))) == expected
    assert rows_in_main_memory(np.empty((words, 0), dtype=np.uint64), np.zeros(words, dtype=np.uint64)) == (0, 0)


@pytest.mark.parametrize("sizes", [(50, 4, 3), (1 << 40, 1 << 40, 1 << 40)])
@pytest.mark.parametrize("variable", [2, 0])
def test_cells_of_one_variable_are_those_of_its_values(sizes, variable, tmp_path):
    """In memory, on disk, and whether or not the rows of the variable's values are adjacent."""
    random = np.random.default_rng(1)
    tuples = np.unique(np.minimum(random.integers(0, 50, (300, 3)), np.array(sizes) - 1), axis=0)
    scope = 2, 0, 1
    layout = {f"x{v}": size for v, size in zip(scope, sizes, strict=True)}
    table = Table.from_rows(layout, tuples, np.arange(len(tuples)), MIN_SUM)
    stored = StoredTable.save(tmp_path / "t", table, chunk_rows=40)
    for row in (0, 17, 60):
        chosen = dict(zip(scope, tuples[row].tolist(), strict=True))
        for form in (Message(scope, table.rows, 0, _table=table), Message(scope, table.rows, 0, _stored=stored)):
            if sizes[scope.index(variable)] > 50:
                if variable == 2:
                    found, values = form.rows_at(chosen)
                    cells = dict(zip(found.tolist(), values.tolist(), strict=True))
                    assert cells == {x: v for x in range(50) if (v := form.value_at({**chosen, 2: x})) is not None}
                continue
            values, feasible = form.cells_at(chosen, (variable,))
            cells = [v if ok else None for v, ok in zip(values.tolist(), feasible.tolist(), strict=True)]
            assert cells == [form.value_at({**chosen, variable: x}) for x in range(len(cells))]


@pytest.mark.parametrize("stored", [True, False])
def test_message_values_by_assignment(stored, tmp_path):
    table = Table.from_rows({"a": 3, "b": 70}, [[0, 5], [2, 69], [1, 0]], np.array([4, -7, 9]), MIN_SUM)
    with MessageStore(1 << 20, tmp_path if stored else None, chunk_rows=2) as store:
        message = store.add((8, 3), table)
        assert message.value_at({8: 2, 3: 69, 1: 1}) == -7
        assert message.value_at({8: 2, 3: 68}) is None
        assert message.table().to_dict() == table.to_dict()
        assert any(tmp_path.iterdir()) == stored
        assert store.in_memory == (0 if stored else table.nbytes)
    assert not any(tmp_path.iterdir())


def test_accounting_of_the_store(tmp_path, monkeypatch):
    """Joined messages go to disk before those that wait, the largest first, and only as many as needed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tables = [
        Table.from_rows({"a": 100}, np.arange(rows)[:, None], np.arange(rows, dtype=np.int64), MIN_SUM)
        for rows in (10, 30, 20)
    ]
    with MessageStore(1000) as store:
        messages = [store.add((0,), t) for t in tables]
        assert store.in_memory == 60 * 16
        assert store.free == 1000 - 960
        store.make_room(40)
        store.make_room(500, besides=messages)
        assert all(m.is_in_memory for m in messages)
        store.joined(messages[0])
        store.joined(messages[2])
        store.make_room(100)
        assert [m.is_in_memory for m in messages] == [True, True, False]
        store.make_room(501)
        assert [m.is_in_memory for m in messages] == [False, True, False]
        store.make_room(521)
        assert store.in_memory == 0
        assert [m.nbytes for m in messages] == [160, 480, 320]
        assert messages[1].value_at({0: 29}) == 29
        assert len(list(tmp_path.iterdir())) == 1
        store.make_room(2000)
        assert store.in_memory == 0
    assert not any(tmp_path.iterdir())


def test_tables_that_the_problem_holds_are_not_freed_by_writing_them():
    """Their bytes stay in use whatever is on disk; only messages make room."""
    table = Table.from_rows({"a": 1000}, [[i] for i in range(1000)], np.arange(1000))
    with MessageStore(50_000) as store:
        own = store.add((0,), table, is_filtered=False)
        message = store.add((0,), Table.from_rows({"a": 1000}, [[i] for i in range(500)], np.arange(500)))
        store.joined(own)
        store.joined(message)
        store.make_room(store.memory_limit)
        assert own.is_in_memory
        assert not message.is_in_memory
        assert store.free == store.memory_limit - table.nbytes
        assert [own.value_at({0: 7}), message.value_at({0: 7}), message.value_at({0: 700})] == [7, 7, None]


class Covering(ConstraintIndex):
    """Compares the constraints that a message applies with all that lie in its bucket and in no message's scope."""

    found: ClassVar[list[int]] = []

    def __init__(self, constraints, variables):
        super().__init__(constraints, variables)
        self._factors = constraints.factors

    def covered_by(self, bucket):
        found = super().covered_by(bucket)
        members = members_of(bucket.separator) | 1 << bucket.variable
        scopes = [members_of(m.scope) for m in bucket.messages if m.is_filtered]
        inside = [c for c in self._factors if not c.members & ~members]
        expected = {c.offset for c in inside if all(c.members & ~scope for scope in scopes)}
        assert {c.offset for c in found} == expected
        assert len(found) == len(expected)
        self.found.append(len(found))
        return found


def test_constraints_are_found_by_whichever_variable_has_few(random_problem, monkeypatch):
    monkeypatch.setattr(bucket_message, "ConstraintIndex", Covering)
    for problem in (star(10), *(random_problem(seed, variables=7) for seed in range(30))):
        for order in (range(len(problem.variables)), range(len(problem.variables))[::-1]):
            monkeypatch.setattr(Covering, "found", found := [])
            with MessageStore(1 << 30) as store:
                Forward(prepare(problem, problem.semiring, order), False, store).run()
            assert problem.name != "star" or sum(found) == 9
