"""The thread pool: ranges, errors, nesting, forks."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from itertools import pairwise

import numpy as np
import pytest

from oocbe.errors import UsageError
from oocbe.kernels.cpu.threads import SMALLEST_SHARE, Sharing, row_ranges, run_all, thread_count
from oocbe.runtime.deadline import Deadline, current


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", "3")


@pytest.mark.parametrize("rows", [0, 1, 5, SMALLEST_SHARE, 10 * SMALLEST_SHARE + 1])
@pytest.mark.parametrize("piece_rows", [None, 1000, 1 << 40])
def test_ranges_cover_all_rows_once(rows, piece_rows):
    ranges = row_ranges(rows, piece_rows)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == rows
    assert all(a[1] == b[0] for a, b in pairwise(ranges))
    assert all(stop - start <= (piece_rows or rows) for start, stop in ranges)


def test_ranges_follow_threads_and_pieces():
    assert len(row_ranges(10 * SMALLEST_SHARE)) == 3
    assert len(row_ranges(10 * SMALLEST_SHARE, pieces_a_thread=2)) == 6
    assert len(row_ranges(SMALLEST_SHARE)) == 1
    assert row_ranges(5, 2) == [(0, 1), (1, 3), (3, 5)]


def test_calls_have_the_deadline_of_their_caller():
    """A loop that is not compiled yet looks there for how long it may wait."""
    together = threading.Barrier(3)

    def seen(_):
        together.wait()
        return current(), threading.get_ident()

    with Deadline(1000) as deadline:
        found = run_all(seen, [(i,) for i in range(3)])
    assert len({thread for _, thread in found}) == 3
    assert [one for one, _ in found] == [deadline] * 3


@pytest.mark.parametrize("text", ["0", "-1", "two", ""])
def test_a_wrong_number_of_threads_is_refused(monkeypatch, text):
    monkeypatch.setenv("OOCBE_THREADS", text)
    with pytest.raises(UsageError, match="OOCBE_THREADS"):
        thread_count()


def test_results_come_in_the_order_of_the_calls():
    assert run_all(lambda a, b: a * b, [(i, 2) for i in range(50)]) == [2 * i for i in range(50)]


def test_calls_run_at_the_same_time():
    barrier = threading.Barrier(3, timeout=20)
    assert len(set(run_all(lambda _: barrier.wait(), [(i,) for i in range(3)]))) == 3


def two_calls_meet():
    """Whether two calls run at the same time; they wait long enough for a loaded machine."""
    together = threading.Barrier(2, timeout=20)
    return set(run_all(lambda _: together.wait(), [(i,) for i in range(2)])) == {0, 1}


def names_of_threads(calls=30):
    """Threads that make calls which take a moment."""
    return set(run_all(lambda _: time.sleep(0.002) or threading.current_thread().name, [(i,) for i in range(calls)]))


def test_threads_beside_one_another_share_the_pool(monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", "2")
    sharing = Sharing()
    own = threading.current_thread().name
    with sharing.at_work():
        assert two_calls_meet()  # the only one at work has all threads
        other = threading.Event(), threading.Event(), threading.Event()
        thread = threading.Thread(target=work_and_rest, args=(sharing, *other), daemon=True)
        thread.start()
        try:
            assert other[0].wait(20)
            assert names_of_threads() == {own}  # one for each of two: no other thread is asked
            other[1].set()
            assert other[2].wait(20)
            assert two_calls_meet()  # the other one rests
        finally:
            other[1].clear()
            thread.join()
    assert two_calls_meet()


def work_and_rest(sharing, begun, may_rest, rests):
    with sharing.at_work():
        begun.set()
        may_rest.wait(20)
        with sharing.resting():
            rests.set()
            while may_rest.is_set():
                time.sleep(0.001)


def test_the_first_error_is_raised_after_all_calls_ended():
    done = []

    def call(i):
        if i in (2, 4):
            raise ValueError(str(i))
        done.append(i)

    with pytest.raises(ValueError, match="2"):
        run_all(call, [(i,) for i in range(6)])
    assert sorted(done) == [0, 1, 3, 5]


def test_what_calls_hold_is_free_after_an_error():
    """Without the collector of cycles: after a failed allocation, a smaller piece needs the memory at once."""
    both = threading.Barrier(2)

    def fail(rows):
        both.wait()
        raise MemoryError(len(rows))

    calls = [(np.zeros(10),), (np.zeros(10),)]
    held = [weakref.ref(rows) for (rows,) in calls]
    gc.disable()
    try:
        with pytest.raises(MemoryError, match="10"):
            run_all(fail, iter(calls))
        calls.clear()
        assert all(rows() is None for rows in held)
    finally:
        gc.enable()


def test_an_interrupt_ends_running_calls_and_cancels_the_others(interrupts_heard):
    begun, ended = [], []

    def call(i):
        begun.append(i)
        if i == 0:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.05)
        ended.append(i)

    with pytest.raises(KeyboardInterrupt):
        run_all(call, [(i,) for i in range(600)])  # half a minute, were it not for the interrupt
    assert sorted(begun) == sorted(ended)
    seen = len(begun)
    time.sleep(0.15)
    assert len(begun) == seen < 600
    assert run_all(abs, [(-1,), (-2,)]) == [1, 2]


def test_calls_from_within_the_pool_do_not_wait_for_it():
    nested = run_all(lambda i: sum(run_all(lambda j: j, [(j,) for j in range(i)])), [(i,) for i in range(12)])
    assert nested == [sum(range(i)) for i in range(12)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_a_pool_of_its_own():
    run_all(abs, [(1,), (2,)])
    child = os.fork()
    if child == 0:
        os._exit(0 if run_all(abs, [(-1,), (-2,)]) == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_many_calls_are_handed_over_at_once(monkeypatch):
    """A sort has 256 calls, each of microseconds."""
    from oocbe.kernels.cpu import threads

    pool = threads._shared_pool(3)
    handed, submit = [], pool.submit
    monkeypatch.setattr(pool, "submit", lambda *arguments: handed.append(1) or submit(*arguments))
    assert run_all(abs, [(-i,) for i in range(1000)]) == list(range(1000))
    assert len(handed) == 3
