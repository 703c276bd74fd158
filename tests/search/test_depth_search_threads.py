"""The depth-first search by several threads: optimum and bounds, sharing, errors, limits, memory; none left at work."""

from __future__ import annotations

import math
import threading
import time
from itertools import combinations

import numpy as np
import pytest

from oocbe.errors import TimeLimitError
from oocbe.kernels.cpu.threads import Sharing, run_all, threads_at_hand
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import Deadline
from oocbe.search import depth_search, depth_tree
from oocbe.search.depth_search import DepthSearch
from oocbe.search.depth_tree import ROOT, OpenNodes, Path, Worker
from oocbe.search.subsolver import SharedBounds
from oocbe.stress import random_network
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, optimum, photographs
from tests.helpers.depth_searches import NO_GAP, begun, check_solved, search, whole
from tests.helpers.effort import examples, in_turns

THREADS = 4


@pytest.fixture(autouse=True)
def _beside_one_another_from_the_first_node(monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", str(THREADS))
    monkeypatch.setattr(depth_search, "ALONE_SECONDS", 0.0)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)  # no assignment to begin with


def costs(variables: int, values: int, seed: int) -> Problem:
    """Random costs of all pairs: some thousand nodes for ten variables of four values."""
    random = np.random.default_rng(seed)
    functions = [
        Function.from_array(pair, random.integers(0, 20, size=(values, values)))
        for pair in combinations(range(variables), 2)
    ]
    return Problem(tuple(Variable(f"x{v}", values) for v in range(variables)), tuple(functions), name=f"costs {seed}")


@pytest.fixture
def takers(monkeypatch):
    """Numbers of the workers that have taken a node, as often as they have."""
    taken: list[int] = []
    own = OpenNodes.take
    monkeypatch.setattr(OpenNodes, "take", lambda made, worker: taken.append(worker) or own(made, worker))
    return taken


@pytest.mark.parametrize(
    ("make", "how"),
    in_turns(
        (anything, photographs, costly_photographs, hidden_solution),
        ((1, 1, False), (2, 1, False), (4, 3, True), (4, 99, False)),
    ),
)
def test_the_optimum_and_bounds_on_the_way(make, how, monkeypatch):
    threads, pause, is_reduced = how
    monkeypatch.setenv("OOCBE_THREADS", str(threads))
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", pause)
    monkeypatch.setattr(depth_tree, "BESIDE_SECONDS", 1e-9)  # a node a call
    monkeypatch.setattr(depth_search, "BESIDE_SECONDS", 1e-4)
    monkeypatch.setattr(depth_search, "ROUND_SECONDS", 1e-4)
    for seed in range(examples(60)):
        problem = make(seed)
        known, made = search(problem, is_reduced=is_reduced)
        check_solved(problem, known, made)


@pytest.mark.parametrize("pause", [1, 10**6])
def test_larger_problems_take_several_threads_and_have_the_value_of_one(pause, takers, monkeypatch):
    """Without a pause the workers that have nothing are given nodes by the one that has."""
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", pause)
    monkeypatch.setattr(depth_search, "ROUND_SECONDS", 60.0)  # all stay until the end
    own = Worker.search_on

    def once_another_has_one(worker, seconds):
        """However slowly threads begin: another worker has a node first, or waits where there is none for it."""
        nodes = worker.shared.open
        while threads > 1 and len(nodes.at_work) < 2 and (nodes.heap or not worker.shared.waiting):
            time.sleep(1e-4)
        own(worker, seconds)

    monkeypatch.setattr(Worker, "search_on", once_another_has_one)
    sharers = 0
    for seed in range(6):
        problem = costs(10, 4, seed)
        values = []
        for threads in (1, THREADS):
            monkeypatch.setenv("OOCBE_THREADS", str(threads))
            takers.clear()
            known = SharedBounds(problem, NO_GAP, lambda *_: None)
            made = DepthSearch(whole(problem), known, 1 << 30)
            made.work(math.inf, Deadline())
            assert known.is_closed
            assert known.value == problem.evaluate(known.assignment)
            values.append(known.value)
            left = [*made.shared.open.heap, *made.shared.open.at_work.values()]  # the bound may close it before
            assert made.shared.open.behind == pytest.approx(1.0 - sum(node.part for node in left))
            assert len(made._workers) == threads
            sharers += len(set(takers)) > 1
            assert threads > 1 or set(takers) == {0}
        assert values[0] == values[1]
    assert sharers


def test_no_thread_is_at_work_between_slices_and_bounds_hold_then(monkeypatch):
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", 4)
    running = []
    own = Worker.work

    def noted(worker, until, deadline):
        running.append(worker)
        try:
            own(worker, until, deadline)
        finally:
            running.remove(worker)

    monkeypatch.setattr(Worker, "work", noted)
    held = slices = 0
    for seed in range(examples(16)):
        problem = costs(8, 4, seed)
        best = optimum(problem)
        known, made = begun(problem)
        while not made.is_over:
            made.work(0.0, Deadline())
            assert not running
            slices += 1
            if made.shared is not None:
                nodes = made.shared.open
                held += len(nodes.at_work)
                assert nodes.at_work.keys() == {w._number for w in made._workers if w.is_at_node}
                assert min(nodes.least, known.upper_bound) <= best
                assert nodes._ahead == pytest.approx(sum(node.part for node in nodes.heap), abs=1e-9)
        assert known.value == best
    assert slices > 5


def test_fewer_threads_than_before_put_back_what_the_others_have(monkeypatch):
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", 10**6)
    problem = costs(11, 4, 1)
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    made = DepthSearch(whole(problem), known, 1 << 30)
    made.work(0.0, Deadline())
    assert made._threads() == THREADS
    first = made._workers[0]
    first.take()
    for _ in range(6):
        first.search_on(0.0)  # a node
    first.put_back()
    for worker in made._workers:
        worker.take()
    assert len(made.shared.open.at_work) > 2
    monkeypatch.setenv("OOCBE_THREADS", "1")
    made.work(0.0, Deadline())
    assert made.shared.open.at_work.keys() <= {0}
    made.work(math.inf, Deadline())
    assert known.is_closed
    alone = SharedBounds(problem, NO_GAP, lambda *_: None)
    DepthSearch(whole(problem), alone, 1 << 30).work(math.inf, Deadline())
    assert known.value == alone.value


@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError])
def test_an_error_in_a_worker_ends_the_search_and_proves_nothing(error, monkeypatch):
    own = Worker.search_on

    def failing(worker, seconds):
        if worker._number:
            raise error
        own(worker, seconds)

    monkeypatch.setattr(Worker, "search_on", failing)
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", 1)
    before = set(threading.enumerate())
    problem = random_network(14, 6, 0.9, tightness=0.0, seed=3)
    known = SharedBounds(problem, NO_GAP, lambda *_: None)
    made = DepthSearch(whole(problem), known, 1 << 30)
    if error is MemoryError:
        made.work(math.inf, Deadline())
    else:
        with pytest.raises(error):
            made.work(math.inf, Deadline())
    assert made.is_over
    assert not known.is_closed
    assert all(thread.name.startswith("oocbe") for thread in set(threading.enumerate()) - before)


def test_the_deadline_ends_all_and_it_can_go_on_later(monkeypatch):
    """What is found by then is told, and no node is lost."""
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", 4)
    problem = costs(10, 4, 2)
    told = []
    known = SharedBounds(problem, NO_GAP, lambda lower, value, *_: told.append((lower, value)))
    made = DepthSearch(whole(problem), known, 1 << 30)
    deadline = Deadline()
    own = Worker.take
    taken = []

    def take(worker):
        taken.append(worker)
        if len(taken) == 4:
            deadline.end = 0.0
        return own(worker)

    monkeypatch.setattr(Worker, "take", take)
    with pytest.raises(TimeLimitError):
        made.work(math.inf, deadline)
    assert not made.is_over
    assert made.shared.found is None
    assert not known.is_closed
    made.work(math.inf, Deadline())
    assert known.is_closed
    alone = SharedBounds(problem, NO_GAP, lambda *_: None)
    monkeypatch.setenv("OOCBE_THREADS", "1")
    DepthSearch(whole(problem), alone, 1 << 30).work(math.inf, Deadline())
    assert known.value == alone.value


def test_workers_share_the_memory(monkeypatch):
    problem = costs(9, 4, 3)
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", 2)
    monkeypatch.setattr(depth_tree, "FIRST_ROOM", 1)
    _, made = search(problem)
    assert len(made._workers) == THREADS
    assert made.shared.kept_bytes == sum(depth_tree.kept_bytes(worker.node) for worker in made._workers)
    each = depth_tree.first_bytes(made._blank)
    for most in (1, 2, 3):
        known, made = search(problem, most * each + each // 2)
        assert known.is_closed
        assert len(made._workers) == most
        assert sum(depth_tree.kept_bytes(worker.node) for worker in made._workers) <= most * each


def test_within_the_pool_a_search_has_one_thread():
    assert threads_at_hand() == THREADS
    assert run_all(threads_at_hand, [(), ()]) == [1, 1]
    sharing = Sharing()
    with sharing.at_work():
        assert threads_at_hand() == THREADS
        sharing._count(1)
        assert threads_at_hand() == THREADS // 2
        sharing._count(-1)


def test_nodes_at_work_count_until_they_are_settled():
    nodes = OpenNodes()
    assert (nodes.least, nodes.behind, nodes.is_empty) == (-math.inf, 0.0, False)
    nodes.take(0)
    assert (nodes.least, nodes.is_empty) == (-math.inf, False)
    nodes.put_back(0, [(3, 0, 0.5, ROOT), (5, -1, 0.25, ROOT), (5, 0, 0.125, ROOT)])
    assert (nodes.least, nodes.behind) == (3, 0.125)
    assert nodes.take(2).low == 3
    assert nodes.take(1).depth == -1
    assert (nodes.least, nodes.behind) == (3, 0.125)
    nodes.put_back(2, [(2, 0, 0.25, ROOT)])  # a bound below it is no worse than its own
    assert (nodes.least, nodes.behind) == (3, 0.375)
    nodes.take(2)
    nodes.settle(2)
    assert (nodes.least, nodes.behind) == (5, 0.625)
    nodes.take(0)
    nodes.settle(1)
    assert (nodes.least, nodes.is_empty) == (5, False)
    nodes.settle(0)
    assert (nodes.least, nodes.behind, nodes.is_empty) == (math.inf, 1.0, True)


def test_paths_share_a_trail_that_stays_as_it_is():
    trail = np.array([[0, 2, 1, 4, 1], [1, 1, 2, 9, 5]])
    before = trail.copy()
    assert Path(trail, 1, False).decisions.tolist() == [[0, 2, 1, 4, 1]]
    assert Path(trail, 1, True).decisions.tolist() == [[0, 2, 0, 4, 3]]
    assert Path(trail, 2, True).decisions.tolist() == [[0, 2, 1, 4, 1], [1, 1, 3, 9, 4]]
    assert (trail == before).all()
