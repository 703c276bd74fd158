"""Messages that have been joined stay on the device while it has room, and the backward pass reads them there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import oocbe
from oocbe.elimination.buckets import message, messages
from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.buckets import fill_buckets
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.decision import Device
from oocbe.elimination.preparation.prepare import prepare
from oocbe.errors import DiskError, ResourceError
from oocbe.kernels.choice import complete_kernels
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.model.settings.tuning import Tuning
from oocbe.stress.tables import grid_network, random_network
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import Layout
from oocbe.tables.residence import host_rows, host_values, is_on_device
from oocbe.tables.table import Table

needs_device = pytest.mark.skipif(why_unavailable() is not None, reason=f"no CUDA device: {why_unavailable()}")
PROBLEMS = {"grid": grid_network(4, 4, seed=1), "random": random_network(9, 3, 0.4, seed=2)}


def joined(buckets):
    return [m for bucket in buckets for m in bucket.messages]


def solved(problem: Problem, engine: BucketEngine, store: MessageStore, tables: str):
    prepared = prepare(problem, problem.semiring, list(range(len(problem.variables))))
    outcome = Forward(prepared, True, store, engine=engine, tables=tables).run()
    return prepared, outcome


@pytest.fixture
def pretended_device(monkeypatch):
    """A device whose arrays are NumPy's: tables are there until they are brought home."""
    home = []

    def bring_home(table):
        copy = replace(table)
        home.append(copy)
        return copy

    monkeypatch.setattr(messages, "stays_on_device", lambda table, movable: True)
    monkeypatch.setattr(message, "is_on_device", lambda table: not any(table is other for other in home))
    monkeypatch.setattr(message, "to_host", bring_home)
    monkeypatch.setattr(message, "host_rows_between", lambda table, first, last: bring_home(table))


@pytest.mark.parametrize("tables", ["incomplete", "complete"])
@pytest.mark.parametrize("memory", [1 << 30, 4096])
def test_messages_left_on_a_device_do_not_count_and_come_home_when_it_runs_out(pretended_device, tables, memory):
    problem = PROBLEMS["random"]
    with MessageStore(memory) as store:
        prepared, outcome = solved(problem, BucketEngine("cpu"), store, tables)
        assert store.in_memory == 0
        there = sum(m.nbytes for m in joined(outcome.buckets))
        assert store.left_on_device == there
        complete = [m for m in joined(outcome.buckets) if m.is_complete]
        assert store.free_device_memory()
        assert not store.free_device_memory()
        assert store.left_on_device == 0
        assert 0 < store.in_memory <= memory
        found = joined(outcome.buckets)
        assert not any(m.is_on_device for m in found)
        assert all(m.is_in_memory for m in found) == (memory > there)
        assert store.in_memory == sum(m.nbytes for m in found if m.is_in_memory)
        # Sparse tables come as rows, where these take less.
        assert any(not m.is_complete for m in complete) == (tables == "complete")
        assert all(m.listed_bytes >= Tuning().smaller_share * m.nbytes for m in complete if m.is_complete)
        assignment = backward_pass(prepared, outcome.buckets)
    assert problem.evaluate(assignment) == outcome.value
    with MessageStore(1 << 30) as store:
        assert outcome.value == solved(problem, BucketEngine("cpu"), store, tables)[1].value


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("room", ["enough", "none", "until the end"])
@pytest.mark.parametrize("tables", ["incomplete", "complete"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_backward_pass_reads_the_device(tune, name, tables, room):
    tune(device_used_share=-1 if room == "none" else 1)
    problem = PROBLEMS[name]
    with MessageStore(1 << 30) as store:
        prepared, outcome = solved(problem, BucketEngine("cuda"), store, tables)
        found = joined(outcome.buckets)
        if room == "until the end":
            store.free_device_memory()
        assert all(is_on_device(m._table) == (room == "enough") for m in found)
        assignment = backward_pass(prepared, outcome.buckets)
        assert all(is_on_device(m._table) == (room == "enough") for m in found)
    with MessageStore(1 << 30) as store:
        plain, expected = solved(problem, BucketEngine("cpu"), store, tables)
        assert backward_pass(plain, expected.buckets) == assignment
    assert problem.evaluate(assignment) == outcome.value == expected.value


def test_what_cannot_come_home_is_not_lost(pretended_device):
    """The disk is full: what is on the device stays there, to be read there, or to be asked for again."""
    with MessageStore(300, max_disk=100) as store:
        prepared, outcome = solved(PROBLEMS["random"], BucketEngine("cpu"), store, "incomplete")
        with pytest.raises(DiskError):
            store.free_device_memory()
        found = joined(outcome.buckets)
        there = [m for m in found if m.is_on_device]
        assert there
        assert store.left_on_device == sum(m.nbytes for m in there)
        assert store.in_memory == sum(m.nbytes for m in found if m.main_memory)
        assert PROBLEMS["random"].evaluate(backward_pass(prepared, outcome.buckets)) == outcome.value


def test_a_closed_store_asks_for_nothing(pretended_device):
    store = MessageStore(4096)
    solved(PROBLEMS["random"], BucketEngine("cpu"), store, "incomplete")
    assert store.left_on_device
    store.close()
    assert not store.free_device_memory()


def test_messages_that_were_listed_on_disk_do_not_come_home(pretended_device):
    with MessageStore(1 << 30) as store:
        prepared, outcome = solved(PROBLEMS["grid"], BucketEngine("cpu"), store, "complete")
        found = joined(outcome.buckets)
        store.list_rows(found[::2])
        assert all(m.is_complete == (number % 2 == 1) for number, m in enumerate(found))
        assert store.left_on_device == sum(m.nbytes for m in found[1::2])
        store.free_device_memory()
        assert store.in_memory == sum(m.nbytes for m in found if m.is_in_memory)
        assert PROBLEMS["grid"].evaluate(backward_pass(prepared, outcome.buckets)) == outcome.value


@pytest.mark.parametrize("memory", [1 << 30, 4096, 400])
@pytest.mark.parametrize("tables", ["incomplete", "complete"])
def test_what_is_joined_in_pieces_is_in_main_memory_or_on_disk(pretended_device, monkeypatch, tables, memory):
    problem, calls, bring_home = PROBLEMS["random"], [], MessageStore.move_to_main_memory

    def watched(store, wanted, as_rows):
        calls.append(as_rows)
        bring_home(store, wanted, as_rows)
        assert not any(m.is_on_device for m in wanted)
        assert store.left_on_device == 0

    monkeypatch.setattr(MessageStore, "move_to_main_memory", watched)
    with MessageStore(1 << 30) as store:
        expected = solved(problem, BucketEngine("cpu"), store, tables)[1].value
    with MessageStore(memory) as store:
        engine = BucketEngine("cpu", piece_rows=5)
        prepared, outcome = solved(problem, engine, store, tables)
        assert outcome.value == expected
        assert store.in_memory == sum(m.main_memory for m in joined(outcome.buckets)) <= memory
        assert (tables == "incomplete") in calls
        assert problem.evaluate(backward_pass(prepared, outcome.buckets)) == expected


class FullDevice(BucketEngine):
    """An engine whose device takes all buckets of complete tables, says that it has room, and has none."""

    def __init__(self, insists: bool) -> None:
        super().__init__("cpu", device_work=1 << 62, piece_rows=None)
        self.insists, self.asked = insists, 0

    def device(self, movable=None):
        return Device(self.insists, 32, lambda: 1 << 40)

    def complete_kernels(self, joined_cells):
        if joined_cells == 0:
            return super().complete_kernels(0)
        self.asked += 1
        raise ResourceError("device memory ran out")


def test_a_device_that_is_full_after_all_leaves_a_bucket_to_the_cpu(tune):
    tune(device_cells=0)
    problem = PROBLEMS["grid"]
    engine = FullDevice(insists=False)
    with MessageStore(1 << 30) as store:
        prepared, outcome = solved(problem, engine, store, "complete")
        assert all(m.is_complete for m in joined(outcome.buckets))
        assert engine.asked == len(problem.variables)
        assert problem.evaluate(backward_pass(prepared, outcome.buckets)) == outcome.value


class InsistingDevice(BucketEngine):
    """An engine that insists on a device, which takes all buckets of complete tables and computes as the CPU does."""

    def __init__(self) -> None:
        super().__init__("cpu", device_work=1 << 62)
        self.insists = True

    def device(self, movable=None):
        return Device(self.insists, 32, lambda: 1 << 40)

    def complete_kernels(self, joined_cells):
        return complete_kernels(0, "cpu")


def test_nothing_feasible_is_an_answer_of_a_device_that_is_insisted_on():
    """Floats of a complete table that are all infeasible are looked at once more by rows."""
    problem = Problem((Variable("a", 1), Variable("b", 2)), (Function((0, 1), np.zeros((0, 2), int), np.zeros(0)),))
    prepared = prepare(problem, MIN_SUM, [0, 1])
    with MessageStore(1 << 30) as store:
        maker = Forward(prepared, False, store, engine=InsistingDevice(), tables="complete")
        bucket = fill_buckets(prepared, store)[0]
        assert maker.cheapest_message(bucket, np.array([1, 0], dtype=np.uint8)).rows == 0


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("part_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("words", [1, 2])
def test_tables_on_a_device_part_by_part(part_bytes, words):
    import cupy as cp

    layout = Layout(tuple(f"v{i}" for i in range(20 * words)), (10,) * 20 * words).select(
        [f"v{i}" for i in range(17 * words)]
    )
    assert layout.words >= words
    keys = np.sort(np.random.default_rng(0).integers(0, 1 << 60, (layout.words, 50), dtype=np.uint64), axis=1)
    values = np.arange(50, dtype=np.int32)
    there = Table(layout, cp.asarray(keys), cp.asarray(values), MIN_SUM, is_sorted=True)
    parts = list(host_rows(there, part_bytes))
    assert (len(parts) > 1) == (part_bytes < there.nbytes)
    assert np.array_equal(np.concatenate([part.keys for part in parts], axis=1), keys)
    assert np.array_equal(np.concatenate([part.values for part in parts]), values)
    cells = CompleteTable(Layout(("a", "b"), (5, 10)), cp.asarray(values), MIN_SUM)
    assert np.concatenate(list(host_values(cells, part_bytes))).tolist() == values.tolist()


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("tables", ["incomplete", "complete"])
def test_messages_of_a_device_are_published_and_found_again(tmp_path, tables):
    problem = grid_network(5, 8, seed=3)
    settings = {"backend": "cuda", "bounds": "none", "order": "linear", "tables": tables, "workdir": tmp_path / "run"}
    result = oocbe.solve(problem, **settings)
    assert result.value == oocbe.solve(problem, backend="cpu", bounds="none", order="linear", tables=tables).value
    again = oocbe.solve(problem, **settings, resume=True)
    assert (again.value, again.assignment) == (result.value, result.assignment)


@pytest.mark.parametrize("variable", [3, 5, 8])
@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_what_an_assignment_selects_of_a_complete_table_comes_by_one_way(monkeypatch, variable, dtype):
    scope, sizes = (8, 3, 5), {3: 4, 5: 1, 8: 3}
    random = np.random.default_rng(variable)
    array = random.integers(0, 100, tuple(sizes[v] for v in reversed(scope))).astype(dtype)
    names = tuple(f"x{v}" for v in reversed(scope))
    table = CompleteTable.from_array(names, array, MIN_SUM, feasible=random.random(array.shape) < 0.7)
    there = message.Message(scope, table.cells, table.nbytes, _table=table)
    monkeypatch.setattr(message, "is_on_device", lambda asked: asked is table)
    others = {v: int(random.integers(sizes[v])) for v in scope if v != variable}
    near = there.near(others, variable)
    assert near.is_in_memory and not near.is_on_device and near.nbytes == sizes[variable] * table.dtype.itemsize
    for value in range(sizes[variable]):
        assert near.value_at({**others, variable: value}) == there.value_at({**others, variable: value})
