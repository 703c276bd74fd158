"""Messages that have been joined stay on the device while it has room, and the backward pass reads them there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oocbe.elimination import message, messages
from oocbe.elimination.assignment import backward_pass
from oocbe.elimination.forward import Forward
from oocbe.elimination.message import LESS
from oocbe.elimination.messages import MessageStore
from oocbe.elimination.prepare import prepare
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.operators import residence
from oocbe.operators.bucket_engine import BucketEngine
from oocbe.operators.residence import is_on_device
from oocbe.problem import Problem
from oocbe.synth.networks import grid_network, random_network
from oocbe.tables.complete import CompleteTable

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

    monkeypatch.setattr(messages, "stays_on_device", lambda table, relief: True)
    monkeypatch.setattr(message, "is_on_device", lambda table: not any(table is other for other in home))
    monkeypatch.setattr(message, "to_host", bring_home)
    monkeypatch.setattr(message, "listed", lambda table, scope: table.to_table(scope))
    monkeypatch.setattr(message, "written_out", lambda table, scope: CompleteTable.from_table(table, scope))


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
        assert store.relieve()
        assert not store.relieve()
        assert store.left_on_device == 0
        assert 0 < store.in_memory <= memory
        found = joined(outcome.buckets)
        assert not any(m.is_on_device for m in found)
        assert all(m.is_in_memory for m in found) == (memory > there)
        assert store.in_memory == sum(m.nbytes for m in found if m.is_in_memory)
        # Sparse tables come as rows, where these take less.
        assert any(not m.is_complete for m in complete) == (tables == "complete")
        assert all(m.listed_bytes >= LESS * m.nbytes for m in complete if m.is_complete)
        assignment = backward_pass(prepared, outcome.buckets)
    assert problem.evaluate(assignment) == outcome.value
    with MessageStore(1 << 30) as store:
        assert outcome.value == solved(problem, BucketEngine("cpu"), store, tables)[1].value


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("room", ["enough", "none", "until the end"])
@pytest.mark.parametrize("tables", ["incomplete", "complete"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_backward_pass_reads_the_device(monkeypatch, name, tables, room):
    monkeypatch.setattr(residence, "USED_SHARE", -1 if room == "none" else 1)
    problem = PROBLEMS[name]
    with MessageStore(1 << 30) as store:
        prepared, outcome = solved(problem, BucketEngine("cuda"), store, tables)
        found = joined(outcome.buckets)
        if room == "until the end":
            store.relieve()
        assert all(is_on_device(m._table) == (room == "enough") for m in found)
        assignment = backward_pass(prepared, outcome.buckets)
        assert all(is_on_device(m._table) == (room == "enough") for m in found)
    with MessageStore(1 << 30) as store:
        plain, expected = solved(problem, BucketEngine("cpu"), store, tables)
        assert backward_pass(plain, expected.buckets) == assignment
    assert problem.evaluate(assignment) == outcome.value == expected.value
