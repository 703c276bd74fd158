"""Row caps and memory limits: refused with figures, the same optimum by any detour, nothing left on disk."""

from __future__ import annotations

import errno
import gc
import os
import re
import signal
import tempfile
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest

import oocbe
from oocbe.elimination.buckets.forward import Forward, RowCapError
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.preparation.prepare import prepare
from oocbe.elimination.runs.durability import Run
from oocbe.errors import DiskError, UsageError
from oocbe.kernels.cpu.buckets import bucket_join
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT
from oocbe.tables.scratch import ScratchFolder
from tests.helpers.effort import in_turns
from tests.helpers.small_problems import check, clique, eliminate, star


def test_row_cap():
    problem = clique(7, 4)
    prepared = prepare(problem, problem.semiring, range(7))
    with MessageStore(1 << 30) as store:
        largest = Forward(prepared, False, store).run().largest_rows
    with MessageStore(1 << 30) as store:
        assert Forward(prepared, False, store, row_cap=largest).run().largest_rows == largest
    with MessageStore(1 << 30) as store, pytest.raises(RowCapError) as caught:
        Forward(prepared, False, store, row_cap=largest - 1).run()
    assert caught.value.position == 0


@pytest.mark.parametrize("threads", ["1", "4"])
@pytest.mark.parametrize("block_rows", [None, 1, 100])
def test_row_cap_is_exact_for_any_blocks(threads, block_rows, monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", threads)
    problem = clique(7, 4)
    order = [0, 1, 2, 3, 4, 5, 6]
    prepared = prepare(problem, problem.semiring, order)
    engine = BucketEngine("cpu", block_rows=block_rows)
    rows: list[int] = []
    with MessageStore(1 << 30) as store:
        Forward(prepared, False, store, engine=engine).run(lambda place, made, size: rows.append(made))
    with MessageStore(1 << 30) as store:
        Forward(prepared, False, store, max(rows), engine).run()
    with MessageStore(1 << 30) as store, pytest.raises(RowCapError):
        Forward(prepared, False, store, max(rows) - 1, engine).run()


def test_cutting_into_blocks_stops_where_prefixes_outnumber_rows(monkeypatch):
    """A table over the lowest variables, with free ones above: cutting by prefix alone would make 2^24 pieces."""
    monkeypatch.setenv("OOCBE_THREADS", "2")
    random = np.random.default_rng(0)
    tuples = np.unique(random.integers(0, 2, size=(20_000, 22)), axis=0)
    table = Function(tuple(range(22)), tuples, random.integers(0, 9, len(tuples)))
    pairs = [Function.from_array((0, v), [[0, 1], [2, 3]]) for v in range(22, 46)]
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(46)), (table, *pairs))
    prepared = prepare(problem, problem.semiring, range(46))
    with MessageStore(1 << 30) as store, pytest.raises(RowCapError):
        Forward(prepared, False, store, row_cap=100_000).run()


def test_a_disk_limit_gives_the_figures():
    """Little memory is no limit while there is room on disk; where there is none, the error says how much there was."""
    problem = clique(7, 4)
    prepared = prepare(problem, problem.semiring, range(7))
    with MessageStore(10_000, max_disk=9000) as store, pytest.raises(DiskError) as caught:
        Forward(prepared, False, store).run()
    message = str(caught.value)
    assert re.search(r"more would pass the disk limit; used \d\.\d KiB, limit 8\.8 KiB, free on disk", message)
    assert "--max-disk" in message


def test_a_race_with_tiny_caps_finds_the_same_optimum(tune):
    problem = clique(7, 4)
    expected = oocbe.solve(problem, order_seconds=0).value
    tune(many_rows=1)
    for seed in range(4):
        result = oocbe.solve(problem, order_seconds=0.02, seed=seed)
        assert result.value == expected == problem.evaluate(result.assignment)
        assert "given up" in result.notes[0]


def test_a_race_that_no_order_finishes_fails_with_the_disk_s_error(monkeypatch, tune):
    tune(message_bytes=5000)
    monkeypatch.setattr("oocbe.model.settings.option_values.LEAST_MEMORY", 1)
    with pytest.raises(DiskError, match=r"limit 4\.9 KiB"):
        oocbe.solve(clique(7, 4), order_seconds=0, max_disk=5000)


class Stop(BaseException):
    """As KeyboardInterrupt, without ending the test run where it escapes."""


@pytest.mark.parametrize(
    ("error", "with_workdir"), in_turns((KeyboardInterrupt, Stop, MemoryError, OSError), (True, False))
)
def test_nothing_is_left_on_disk_after_an_error_at_any_write(error, with_workdir, tmp_path, monkeypatch):
    """Break the n-th write of a message, for every n until a solve succeeds."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    problem = clique(5, 3)
    expected = oocbe.solve(problem, order_seconds=0, order="min-degree").value
    save = MessageStore.stored
    workdir = tmp_path if with_workdir else None
    # Barely enough memory for the messages in use, so that those joined go to disk.
    memory = 1 << 30 if with_workdir else 9000
    for place in range(100):
        calls = iter(range(100))

        def broken(store, *arguments, calls=calls, place=place):
            stored = save(store, *arguments)
            if next(calls) == place:
                raise error
            return stored

        monkeypatch.setattr(MessageStore, "stored", broken)
        try:
            found = eliminate(problem, range(5), False, memory=memory, workdir=workdir)
        except error:
            assert list(tmp_path.iterdir()) == []
            continue
        assert list(tmp_path.iterdir()) == []
        check(problem, *found, expected)
        break
    assert place > 0 or not with_workdir


def test_a_run_that_was_given_up_holds_no_memory(monkeypatch, tune):
    """Errors hold the frames that they went through, and frames hold tables, until the garbage collector comes."""
    stores = []
    make_store = Run.make_store

    def remembered(run):
        store = make_store(run)
        stores.append(weakref.ref(store))
        return store

    class Looking(oocbe.Observer):
        def started(self, plan):
            assert [store() for store in stores[:-1]] == [None] * (len(stores) - 1)

    monkeypatch.setattr(Run, "make_store", remembered)
    tune(many_rows=1)
    gc.collect()
    gc.disable()
    try:
        oocbe.solve(clique(7, 4), order_seconds=0, bounds="none", tables="incomplete", observer=Looking())
    finally:
        gc.enable()
    assert len(stores) > 8


def test_published_messages_are_left_after_the_caller_is_interrupted(tmp_path):
    class Interrupting(oocbe.Observer):
        def bucket_done(self, number, total, name, rows, size):
            if number == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        oocbe.solve(clique(7, 4), order_seconds=0, workdir=tmp_path, observer=Interrupting())
    assert len(list(tmp_path.glob("order-*/message-*.json"))) == 4
    result = oocbe.solve(clique(7, 4), order_seconds=0, workdir=tmp_path, resume=True)
    assert result.value == oocbe.solve(clique(7, 4), order_seconds=0).value
    assert "resumed: 4 messages" in result.notes[-1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lock", "result.json", "run.json"]


def test_an_interrupt_while_compiled_code_returns_is_an_interrupt(monkeypatch):
    """Python turns it into a SystemError with the interrupt as its cause."""

    def walk(*_):
        raise SystemError("returned a result with an exception set") from Stop()

    monkeypatch.setattr("oocbe.kernels.cpu.buckets.bucket_join.walk_on", walk)
    with pytest.raises(Stop):
        oocbe.solve(clique(7, 4), order_seconds=0, tables="incomplete")


@pytest.mark.parametrize("threads", ["1", "2"])
def test_an_interrupt_ends_a_walk_that_makes_no_rows(threads, interrupts_heard, monkeypatch, tmp_path):
    """Of 2^40 assignments of the separator two have rows: nobody could wait for the end."""

    def walk(*arguments):
        if threading.current_thread() is not threading.main_thread():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return real_walk(*arguments)

    real_walk = bucket_join.walk_on
    monkeypatch.setattr(bucket_join, "walk_on", walk)
    monkeypatch.setenv("OOCBE_BACKEND", "cpu")  # the walk is its
    monkeypatch.setenv("OOCBE_THREADS", threads)
    (tmp_path / "order").write_text(" ".join(f"x{v}" for v in range(41)))
    with pytest.raises(KeyboardInterrupt):
        oocbe.solve(star(41), order=tmp_path / "order", bounds="none", dominance=False, tables="incomplete")


@pytest.mark.parametrize("name", ["file", "file/folder"])
def test_a_work_folder_that_is_a_file_is_wrong_use(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"is a file .*, or lies in one; name a folder"):
        oocbe.solve(clique(4, 4), order_seconds=0, workdir=tmp_path / name)
    with pytest.raises(UsageError, match=r"is a file .*, or lies in one; name a folder"):
        ScratchFolder(tmp_path / name)
    assert (tmp_path / "file").read_text() == ""


def test_a_work_folder_that_cannot_be_made_is_a_resource_error(tmp_path, monkeypatch):
    def fail(path, mode):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("oocbe.tables.disk.make_folder_of_user", fail)
    with pytest.raises(DiskError, match="cannot be written, Permission denied"):
        oocbe.solve(clique(4, 4), order_seconds=0, workdir=tmp_path / "folder")


def test_a_limit_that_the_program_itself_takes_up_is_told(monkeypatch):
    problem = clique(4, 4)
    monkeypatch.setattr("oocbe.elimination.buckets.resources.resident_memory", lambda: 150 << 20)
    for ask in (oocbe.solve, oocbe.count, oocbe.most_probable_explanation):
        asked = replace(problem, semiring=MAX_PRODUCT) if ask is oocbe.most_probable_explanation else problem
        notes = ask(asked, order_seconds=0, memory="200MiB", backend="cpu").notes
        told = [note for note in notes if "may not be kept: the program itself takes 150.0 MiB" in note]
        assert len(told) == 1
        assert "tables are given 50.0 MiB" in told[0]
        notes = ask(asked, order_seconds=0, memory="300MiB", backend="cpu").notes
        assert not any("may not be kept" in note for note in notes)
