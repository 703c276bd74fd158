"""Agents in processes of their own: the same answers, and no process knows what belongs to another's agents."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from oocbe.dcop import Dcop, adpop, dpop
from oocbe.dcop import agents as hosts_module
from oocbe.dcop.agents import Contract, InProcesses, Utility, UtilTable, shares
from oocbe.dcop.pseudo_trees import pseudo_tree
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.errors import CorruptDataError, ResourceError
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuned, tuning
from oocbe.runtime.deadline import Deadline
from oocbe.tables.complete import CompleteTable
from oocbe.tables.table import Table


def chain(count: int) -> Problem:
    """Each variable and the next have costs that no other pair has."""
    functions = [Function.from_array((v, v + 1), np.arange(9).reshape(3, 3) % 5 + 1000 * v) for v in range(count - 1)]
    return Problem(tuple(Variable(f"variable-{v}", 3) for v in range(count)), tuple(functions))


@pytest.fixture
def sent(monkeypatch):
    """What each process is sent, in the order of the messages."""
    seen: list[tuple[int, object]] = []
    send = InProcesses._send

    def noted(self, number, content):
        seen.append((number, content))
        send(self, number, content)

    monkeypatch.setattr(InProcesses, "_send", noted)
    return seen


def test_a_process_is_sent_its_own_agents_constraints_only(sent, memory_folder):
    problem = chain(6)
    dcop = Dcop(problem, ("a", "b", "c"), (0, 0, 1, 1, 2, 2))
    alone = dpop(dcop)
    found = dpop(dcop, workers=3, workdir=memory_folder)
    assert (found.value, found.assignment) == (alone.value, alone.assignment)
    assert found.metrics.util_messages == 5
    assert list(memory_folder.iterdir()) == []
    contracts = {number: content for number, content in sent if isinstance(content, Contract)}
    assert len(contracts) == 3
    for number, contract in contracts.items():
        assert sorted(contract.shares) == [2 * number, 2 * number + 1]
        near = {f"variable-{v}" for v in range(2 * number - 1, 2 * number + 3)}
        for v, share in contract.shares.items():
            assert share.known[0].name == f"variable-{v}"
            assert {known.name for known in share.known} <= near
            assert all(0 in f.scope for f in share.problem.functions)
        everything = pickle.dumps(contract)
        strangers = {f"variable-{v}" for v in range(6)} - near
        assert strangers
        assert not any(name.encode() in everything for name in strangers)
        # Costs of others' constraints are not there either: each function has thousands of its own.
        costs = {int(f.values.min()) // 1000 for share in contract.shares.values() for f in share.problem.functions}
        assert costs <= {2 * number - 1, 2 * number, 2 * number + 1}
    total = sum(len(s.problem.functions) for c in contracts.values() for s in c.shares.values())
    assert total == len(problem.functions)  # each constraint is at one agent


def tables_of(sent) -> list[UtilTable]:
    """Tables of all UTIL messages that processes were sent."""
    return [
        table
        for _, content in sent
        if isinstance(content, tuple) and isinstance(content[1], list)
        for utility in content[1]
        for table in utility.tables
    ]


def test_large_utilities_between_processes_are_folders(sent, tune):
    tune(small_bytes=1)
    adpop(chain(4), 2, workers=2)
    tables = tables_of(sent)
    assert len(tables) == 3
    assert all("message" in table.content.name for table in tables)


@pytest.mark.parametrize("tables", ["complete", "incomplete"])
def test_small_utilities_are_sent_and_leave_no_file(sent, tables, memory_folder, monkeypatch):
    written: list[Path] = []
    collect = InProcesses.collect

    def noted(self):
        answer = collect(self)
        written.extend(memory_folder.rglob("message-*"))
        return answer

    monkeypatch.setattr(InProcesses, "collect", noted)
    problem = chain(5)
    alone = dpop(problem, tables=tables)
    found = dpop(problem, workers=2, workdir=memory_folder, tables=tables)
    assert (found.value, found.assignment) == (alone.value, alone.assignment)
    kind = CompleteTable if tables == "complete" else Table
    assert [type(table.content) for table in tables_of(sent)] == 4 * [kind]
    assert written == []


def test_tables_are_sent_while_they_take_a_small_part_of_the_memory():
    problem = chain(3)
    own = shares(problem, pseudo_tree(problem), np.dtype(np.int64), None)
    for memory, most in ((1 << 30, tuning().small_bytes), (1 << 20, int((1 << 20) * tuning().small_share) // 3)):
        with tuned(message_bytes=memory), Deadline() as deadline:
            hosts = InProcesses(own, (0, 1, 2), 1, SolveOptions(backend="cpu"), deadline)
            hosts.close()
        assert hosts._contracts[0].sent_bytes == most


def test_a_message_that_was_handed_over_takes_no_memory(memory_folder):
    rows = Table.from_rows({"a": 3}, [[0], [2]], [5, 7])
    with MessageStore(1 << 20, memory_folder, small_bytes=rows.nbytes) as store:
        message = store.add((0,), rows)
        assert store.in_memory == rows.nbytes
        store.drop(message)
        assert store.in_memory == 0
        assert list(memory_folder.iterdir()) == []
        large = store.add((0,), Table.from_rows({"a": 3}, [[0], [1], [2]], [5, 7, 9]))
        store.drop(large)
        assert store.in_memory == 0
        assert large.path is not None


def test_shares_have_every_constraint_once():
    problem = chain(5)
    found = shares(problem, pseudo_tree(problem), np.dtype(np.int64), None)
    assert sum(len(share.problem.functions) for share in found) == 4
    assert all(len(share.known) <= 2 for share in found)


def test_a_process_that_dies_is_an_error(monkeypatch, memory_folder):
    start = subprocess.Popen

    def killed(*arguments, **others):
        process = start(*arguments, **others)
        process.kill()
        return process

    monkeypatch.setattr(hosts_module.subprocess, "Popen", killed)
    with pytest.raises(ResourceError, match=r"worker 1 of 1 ended before its agents had \(exit code -9\)"):
        dpop(chain(3), workers=1, workdir=memory_folder)
    assert list(memory_folder.iterdir()) == []


def test_an_error_in_a_process_is_raised_here(tmp_path):
    problem = chain(3)
    tree = pseudo_tree(problem)
    own = shares(problem, tree, np.dtype(np.int64), None)
    root = tree.roots[0]
    lost = UtilTable(own[root].known[:1], 3, 3, tmp_path / "lost")
    options = SolveOptions(backend="cpu")
    with Deadline() as deadline, closing(InProcesses(own, (0, 1, 2), 1, options, deadline)) as hosts:
        hosts.submit(root, [Utility([lost])])
        with pytest.raises(CorruptDataError, match="lost"):
            hosts.collect()


def test_processes_are_sent_one_request_at_a_time(monkeypatch):
    """More at once fill the pipes: then neither side reads, and both wait for ever."""
    events: list[str] = []
    send, receive = InProcesses._send, InProcesses._receive

    def noted_send(self, number, content):
        if not isinstance(content, Contract):
            events.append("request")
        send(self, number, content)

    def noted_receive(self, number):
        before = len(self._answers)
        # What is sent within is sent after the answer has been taken.
        place = len(events)
        receive(self, number)
        if len(self._answers) > before:
            events.insert(place, "answer")

    monkeypatch.setattr(InProcesses, "_send", noted_send)
    monkeypatch.setattr(InProcesses, "_receive", noted_receive)
    star = tuple(Function.from_array((0, v), np.arange(4).reshape(2, 2)) for v in range(1, 9))
    found = dpop(Problem(tuple(Variable(f"variable-{v}", 2) for v in range(9)), star), workers=1)
    assert found.value == 0
    assert events == ["request", "answer"] * 18


def test_no_process_is_sent_its_contract_before_it_reads(monkeypatch):
    """A contract can be larger than a pipe, and a process takes seconds to start: the time limit is kept meanwhile."""
    start = subprocess.Popen
    silent = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(hosts_module.subprocess, "Popen", lambda command, **others: start(silent, **others))
    values = np.arange(1 << 18).reshape(1 << 9, 1 << 9)
    problem = Problem((Variable("a", 1 << 9), Variable("b", 1 << 9)), (Function.from_array((0, 1), values),))
    found = dpop(problem, workers=1, time_limit=0.5)
    assert found.status == "limit"


ORPHAN = """
import subprocess, sys, time
from multiprocessing import Pipe
import os
ours, theirs = Pipe()
numbers = [str(theirs.fileno()), str(os.getpid())]
command = [sys.executable, "-m", "oocbe.runtime.parents", *numbers, "oocbe.dcop.agents"]
process = subprocess.Popen(command, pass_fds=[theirs.fileno(), ours.fileno()], stdout=subprocess.DEVNULL)
print(process.pid, flush=True)
ours.recv()
os.kill(os.getpid(), 9)
"""


def test_a_process_ends_when_the_one_that_started_it_is_killed():
    """Not only when it next reads: here its pipe stays open, as it would seem to be throughout a long join."""
    done = subprocess.run([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -9
    number = int(done.stdout)
    for _ in range(200):
        if not is_running(number):
            return
        time.sleep(0.05)
    os.kill(number, 9)
    pytest.fail("still there")


def is_running(number: int) -> bool:
    """Whether there is a process that has not ended; one that nobody has waited for yet has."""
    try:
        return " Z " not in Path(f"/proc/{number}/stat").read_text()
    except FileNotFoundError:
        return False
