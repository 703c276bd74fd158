"""Kill -9 of workers, and of the process that asks them, at each named point of a part's way to disk."""

from __future__ import annotations

import os
import pickle
import signal
from concurrent.futures import Future
from functools import partial

import pytest

from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.execution.cluster.workers import LostWorkError, use_workers
from oocbe.model.settings.tuning import tuned
from oocbe.runtime import faults
from tests.elimination.test_piecewise import complete_problem, run
from tests.helpers.durable_runs import EveryPoint, forked, solve_in
from tests.helpers.memory_disk import memory_folder
from tests.helpers.thread_workers import InThreads

PROBLEM, ORDER = complete_problem(5, 4), list(range(5))

POINTS = [point for point in faults.POINTS if point.startswith("table:")]


def shared_out(turn):
    """Every second point; the others are for slow tests. Tests of workers that are killed take turns with them."""
    marks = ((), pytest.mark.slow)
    return [pytest.param(point, marks=marks[(place + turn) % 2]) for place, point in enumerate(POINTS)]


def cutting():
    """Three or four segments a bucket: the one that follows the first ones takes all the rest."""
    return tuned(segment_rows=20, first_segments=3, least_segment_seconds=1e3, most_segment_seconds=1e3, small_bytes=0)


class Forking(InThreads):
    """A worker that is a child process for each segment; one of them dies at a point."""

    def __init__(self, fault: str = "", number: int = -1) -> None:
        super().__init__(1)
        self.fault, self.number, self.given, self.killed = fault, number, 0, 0

    def submit(self, name, work, told):
        made = Future()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                faults.arm(self.fault if self.given == self.number else None)
                os.write(write, pickle.dumps(work(told)))
            finally:
                os._exit(0)
        os.close(write)
        self.given += 1
        with os.fdopen(read, "rb") as pipe:
            data = pipe.read()
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            self.killed += 1
            made.set_exception(LostWorkError("killed"))
        else:
            made.set_result(pickle.loads(data))
        return made


@pytest.fixture(scope="module")
def expected():
    return run(PROBLEM, ORDER, BucketEngine("cpu"), dominance=False)[0]


@pytest.fixture(scope="module", autouse=True)
def scratch(tmp_path_factory):
    tmp_path_factory.getbasetemp()  # where the other folders of tests are, before that is somewhere else
    with memory_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(folder))
        yield folder


@pytest.mark.parametrize("point", shared_out(0))
def test_a_worker_killed_at_a_point(expected, scratch, point):
    with Forking(f"{point}:1", number=1) as workers, cutting():
        found, _ = run(PROBLEM, ORDER, BucketEngine("cpu", workers=workers), dominance=False)
    assert found == expected
    assert workers.killed == 1
    assert workers.given > 3
    assert [path for path in scratch.iterdir() if path.name.startswith("oocbe-")] == []


def solved_by_workers(folder, fault: str | None = None):
    faults.arm(fault)
    with InThreads(1) as workers, use_workers(workers), cutting():
        return solve_in(folder, bounds="none", embedded_bytes=0)


def passings(folder):
    faults._armed = EveryPoint()
    with InThreads(1) as workers, use_workers(workers), cutting():
        solve_in(folder, bounds="none", embedded_bytes=0)
    return faults._armed.passed


ASKING = ["table:manifest-written", "message:written"]
"""Points at which the process that asks is killed; the others are for slow tests."""


@pytest.mark.parametrize(
    "points",
    [ASKING, pytest.param(sorted({*POINTS, "message:begin", "message:done"} - {*ASKING}), marks=pytest.mark.slow)],
    ids=["some", "others"],
)
def test_the_process_that_asks_killed_at_each_point_and_resumed(tmp_path, points):
    """As its workers are threads of it, they are killed with it, wherever they are."""
    alone = solve_in(None, bounds="none")
    solved_by_workers(tmp_path / "warm")
    counts = forked(partial(passings, tmp_path / "counted"))[1]
    for place, point in enumerate(points):
        assert counts[point] > 1
        number = 1 + (place + 1) * (counts[point] - 1) // (len(points) + 1)
        folder = tmp_path / point
        status, found = forked(partial(solved_by_workers, folder, f"{point}:{number}"))
        # Threads take turns: a late point of one run may not come in another.
        assert os.WIFSIGNALED(status) or found["value"] == alone["value"]
        status, found = forked(partial(solved_by_workers, folder))
        assert status == 0
        for name in ("value", "assignment", "rows"):
            assert found[name] == alone[name]
        assert found["tables"] in (alone["tables"], [])
        assert sorted(path.name for path in folder.iterdir()) == ["lock", "race.json", "result.json", "run.json"]
