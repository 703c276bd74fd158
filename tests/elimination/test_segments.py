"""Buckets cut into segments for workers: the messages of a run without any, bit for bit, whatever befalls workers."""

from __future__ import annotations

import pickle
from concurrent.futures import Future
from dataclasses import replace
from itertools import combinations, count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.api.facade import plan, solve
from oocbe.api.tasks import verbs
from oocbe.elimination.buckets.forward import Forward, RowCapError
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.decision import WhyPieces
from oocbe.elimination.preparation.prepare import prepare
from oocbe.errors import ClusterError, DiskError, ResourceError, TimeLimitError
from oocbe.execution.cluster.dispatch import MOST_TRIES, Dispatch, Pace
from oocbe.execution.cluster.segment_files import DiskShare
from oocbe.execution.cluster.workers import DiskShareError, LostWorkError, use_workers
from oocbe.formats import read
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM, SEMIRINGS
from oocbe.model.settings.tuning import tuned, tuning
from oocbe.runtime.advance import Advance, advance
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.tracing.trace_file import read_trace
from oocbe.tables import disk
from oocbe.tables.disk_budget import DiskBudget
from tests.elimination.test_piecewise import complete_problem, run
from tests.helpers.effort import examples
from tests.helpers.memory_disk import memory_folder
from tests.helpers.small_problems import make_problem, structures, without_bound
from tests.helpers.thread_workers import InThreads


class Sending(InThreads):
    """Workers that are told what can be told other processes, and of whose names note is taken."""

    def submit(self, name, work, told):
        self.named = [*getattr(self, "named", []), name]
        return super().submit(
            name, lambda sent: pickle.loads(pickle.dumps(work(pickle.loads(sent)))), pickle.dumps(told)
        )


@pytest.fixture(scope="module", autouse=True)
def scratch(tmp_path_factory):
    """Parts go to the memory disk: forcing each to a real one takes longer than all else."""
    tmp_path_factory.getbasetemp()  # where the other folders of tests are, before that is somewhere else
    with memory_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(folder))
        yield
        assert [path for path in folder.iterdir() if path.name.startswith("oocbe-")] == []


@pytest.fixture(scope="module")
def workers():
    with Sending(2) as made:
        yield made


def cutting(rows=0, **more):
    """Every bucket with more rows is cut, into five segments or so: those that follow the first ones take the rest."""
    lengths = {"first_segments": 3, "least_segment_seconds": 1e3, "most_segment_seconds": 1e3}
    return tuned(segment_rows=rows, **lengths, **more)


@settings(max_examples=examples(12))
@given(structures(), st.sampled_from([None, 1, 3, 50]), st.booleans(), st.integers(1, 9), st.integers(0, 60))
def test_workers_give_the_messages_of_the_run_without_them(workers, structure, piece_rows, dominance, chunk_rows, held):
    problem = without_bound(make_problem(structure))
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    whole, _ = run(problem, order, BucketEngine("cpu"), dominance)
    engine = BucketEngine("cpu", piece_rows=piece_rows, streams=2, workers=workers)
    with cutting(small_bytes=held):
        cut, _ = run(problem, order, engine, dominance, chunk_rows=chunk_rows)
    assert cut == whole


def test_a_day_of_photographs(workers):
    """Dominated rows are dropped by workers as well, where the message is too large for memory."""
    problem = read("examples/daily.spot")
    order = list(range(len(problem.variables)))
    whole, _ = run(problem, order, BucketEngine("cpu"))
    with cutting(rows=1000, held_share=0.0):
        cut, stored = run(problem, order, BucketEngine("cpu", workers=workers), chunk_rows=64)
    assert cut == whole
    assert stored > 0


@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
def test_all_semirings_come_to_the_same(workers, semiring):
    problem = clique_problem().in_semiring(semiring)
    workers.named = []
    expected = solve(problem, order_seconds=0, tables="incomplete", bounds="none")
    with cutting(rows=10), use_workers(workers):
        found = solve(problem, order_seconds=0, tables="incomplete", bounds="none")
    assert workers.named
    assert (found.value, found.assignment, found.total_rows) == (
        expected.value, expected.assignment, expected.total_rows
    )  # fmt: skip


def clique_problem(variables=6, size=3):
    """A function and a constraint for every pair of variables."""
    random = np.random.default_rng(3)
    pairs = list(combinations(range(variables), 2))
    return Problem(
        tuple(Variable(f"x{v}", size) for v in range(variables)),
        tuple(Function.from_array(pair, random.integers(1, 9, (size, size))) for pair in pairs),
        tuple(Constraint(pair, random.integers(0, size, (1, 2))) for pair in pairs),
        name="clique",
    )


@pytest.mark.parametrize("task", ["count", "logz", "kbest", "count-optimal"])
def test_tasks_come_to_the_same(workers, task):
    problem = clique_problem()
    expected = verbs.run_task(task, problem, order_seconds=0, tables="incomplete")
    workers.named = []
    with cutting(rows=10), use_workers(workers):
        found = verbs.run_task(task, problem, order_seconds=0, tables="incomplete")
    assert workers.named
    assert (found.value, found.assignments) == (expected.value, expected.assignments)


@pytest.mark.parametrize("has_workers", [False, True])
def test_what_no_other_run_can_go_on_from_is_not_forced_to_disk(workers, has_workers):
    seen = []
    with (
        cutting(rows=10, held_share=0.0),
        use_workers(workers if has_workers else None),
        disk.hooked(lambda operation, where: seen.append(operation)),
    ):
        verbs.run_task("count", clique_problem(), order_seconds=0, tables="incomplete", piece_rows=20)
    assert "write" in seen and "synchronise" not in seen


class Failing(Sending):
    """Workers whose n-th segments, of those given, fail with an error."""

    def __init__(self, threads, failing, error):
        super().__init__(threads)
        self.failing, self.error, self.numbers = failing, error, count()

    def submit(self, name, work, told):
        if self.failing(next(self.numbers)):
            lost = Future()
            lost.set_exception(self.error)
            return lost
        return super().submit(name, work, told)


@pytest.mark.parametrize("error", [LostWorkError("gone"), ResourceError("no memory"), MemoryError()], ids=repr)
def test_segments_that_fail_are_done_again_or_halved(error):
    problem = complete_problem(6, 4)
    whole, _ = run(problem, list(range(6)), BucketEngine("cpu"), dominance=False)
    with Failing(2, lambda number: number in (1, 2, 5, 9), error) as workers, cutting(rows=50):
        cut, _ = run(problem, list(range(6)), BucketEngine("cpu", workers=workers), dominance=False)
    assert cut == whole
    assert next(workers.numbers) > 10


def test_a_segment_that_ends_its_workers_is_given_up():
    problem = complete_problem(6, 4)
    with (
        Failing(2, lambda number: True, LostWorkError("killed")) as workers,
        cutting(rows=50),
        pytest.raises(
            ClusterError, match=rf"bucket of x\d: {MOST_TRIES} workers were lost with the same segment.*killed"
        ),
    ):
        run(problem, list(range(6)), BucketEngine("cpu", workers=workers), dominance=False)


def test_an_error_of_a_segment_ends_the_run_and_leaves_nothing(tmp_path):
    problem = clique_problem()
    for error, raised in ((DiskError("the disk fails"), DiskError), (ClusterError("no worker is left"), ClusterError)):
        options = {
            "tables": "incomplete",
            "bounds": "none",
            "order_seconds": 0,
            "workdir": tmp_path / "run",
            "resume": True,
        }
        failing = Failing(2, lambda number: number == 3, error)
        with failing as workers, cutting(rows=10), use_workers(workers), pytest.raises(raised, match=str(error)):
            solve(problem, **options)
        assert not [path for path in (tmp_path / "run").rglob("*") if ".partial" in path.name or "part-" in path.name]


def test_the_row_cap_counts_all_segments(workers):
    problem = complete_problem(6, 4)
    prepared = prepare(problem, MIN_SUM, range(6))
    with cutting(rows=10), MessageStore(1 << 30) as store:
        engine = BucketEngine("cpu", workers=workers)
        with pytest.raises(RowCapError):
            Forward(prepared, False, store, row_cap=600, engine=engine).run()


def test_a_large_bucket_tells_how_far_it_is(workers, monkeypatch):
    """Over workers, and in pieces of one process; afterwards there is nothing to tell."""
    problem, told = complete_problem(6, 4), []
    tell = Advance.tell
    monkeypatch.setattr(Advance, "tell", lambda *given: (tell(*given), told.append((*given[1:], str(advance)))))
    for engine in (BucketEngine("cpu", workers=workers), BucketEngine("cpu", piece_rows=50, streams=2)):
        told.clear()
        with cutting(rows=50):
            run(problem, list(range(6)), engine, dominance=False)
        first = [(share, rows) for name, share, rows, _ in told if name == told[0][0]]
        assert len(first) > 2 and first == sorted(first)
        assert 0 < first[0][0] < first[-1][0] == pytest.approx(1)
        assert told[0][-1].endswith("rows so far") and "% joined" in told[0][-1]
        assert str(advance) == ""


def test_the_disk_limit_counts_parts(workers, tmp_path):
    problem = complete_problem(6, 4)
    prepared = prepare(problem, MIN_SUM, range(6))
    with cutting(rows=10), MessageStore(1 << 30, tmp_path, max_disk=30_000) as store:
        engine = BucketEngine("cpu", workers=workers)
        with pytest.raises(DiskError, match="disk limit"):
            Forward(prepared, False, store, engine=engine).run()
        assert isinstance(store.budget, DiskBudget)
    assert list(tmp_path.iterdir()) == []


def test_a_segment_that_needs_more_than_its_share_of_the_disk_waits_until_it_is_alone():
    """Each writes so many bytes; what one has written counts when it is listed."""
    budget, wanted, order = DiskBudget(Path("/tmp"), 100), {0: 10, 1: 40, 2: 10, 3: 30}, []

    class Sending(InThreads):
        def submit(self, name, work, argument):
            future = Future()
            try:
                future.set_result(work(argument))
            except DiskShareError as error:
                future.set_exception(pickle.loads(pickle.dumps(error)))
            return future

    def work(sent):
        segment, limit = sent
        DiskShare(budget.folder, limit).take(wanted[segment], "part")
        return wanted[segment]

    def sent(segment, sharing):
        return segment, budget.allowed // sharing

    def done(segment, size):
        order.append(segment)
        budget.take(size, "part")

    with Sending(2) as workers:
        dispatch = Dispatch("x", workers, work, sent, done, lambda *_: pytest.fail("halved"), Deadline())
        dispatch.run(iter(wanted))
        assert (sorted(order[:2]), sorted(order[2:]), budget.used) == ([0, 2], [1, 3], 90)
        with pytest.raises(DiskError, match="Raise --max-disk"):
            dispatch.run(iter(wanted))


def test_a_time_limit_ends_segments():
    problem = complete_problem(7, 5)
    with InThreads(2) as workers, cutting(rows=10), Deadline(0.0) as deadline:
        engine = BucketEngine("cpu", workers=workers, deadline=deadline)
        with pytest.raises(TimeLimitError):
            run(problem, list(range(7)), engine, dominance=False)


def test_another_version_is_refused(monkeypatch, workers):
    from oocbe.elimination.buckets import segmented

    problem = complete_problem(6, 4)
    monkeypatch.setattr(oocbe, "__version__", "0.0.1", raising=False)
    circumstances = segmented.SegmentedBucket._circumstances

    def older(*arguments):

        return replace(circumstances(*arguments), version="0.0.0")

    monkeypatch.setattr(segmented.SegmentedBucket, "_circumstances", older)
    with cutting(rows=50), pytest.raises(ClusterError, match=r"has version 0\.0\.1 .* asked by version 0\.0\.0"):
        run(problem, list(range(6)), BucketEngine("cpu", workers=workers), dominance=False)


def test_the_pace_shrinks_towards_the_end_within_its_bounds():
    pace, numbers = Pace(), tuning()
    assert pace.wanted(1.0, 2) == 1 / (2 * numbers.first_segments)
    pace.learn(0.01, 1.0)  # 100 seconds in all: a sixth of half of it is more than five seconds
    assert pace.wanted(1.0, 2) == pytest.approx(0.05)
    assert pace.wanted(0.3, 2) == pytest.approx(0.025)
    assert pace.wanted(0.01, 2) == pytest.approx(0.005)
    shares, left = [], 1.0
    while left > 1e-9:
        shares.append(min(left, pace.wanted(left, 2)))
        left -= shares[-1]
    assert shares == sorted(shares, reverse=True)
    assert 20 <= len(shares) <= 60


def test_no_more_segments_are_cut_than_workers_have_room_for():
    """They would be cut before it is known how long they take."""
    given = []

    class Slow(InThreads):
        def submit(self, name, work, told):
            future = Future()
            given.append(future)
            if len(given) == 4:
                for each in given:
                    each.set_result(None)
                given.clear()
            return future

    with Slow(2) as workers:
        dispatch = Dispatch("x", workers, None, lambda s, _: s, lambda *_: None, lambda *_: [], Deadline())
        cuts = []

        def segments():
            for number in range(12):
                assert len(given) < 4
                cuts.append(number)
                yield number

        dispatch.run(segments())
    assert cuts == list(range(12))


def test_a_worker_that_does_not_see_the_folder_says_so():
    """As one on another host, where the path leads elsewhere."""

    class Elsewhere(Sending):
        def submit(self, name, work, told):
            return super().submit(name, work, replace(told, part=Path("/elsewhere") / told.part.name))

    problem = complete_problem(6, 4)
    with (
        Elsewhere(2) as workers,
        cutting(rows=50),
        pytest.raises(ClusterError, match=r"does not see /elsewhere.*--workdir"),
    ):
        run(problem, list(range(6)), BucketEngine("cpu", workers=workers), dominance=False)


def test_a_plan_says_which_buckets_are_shared_out():
    problem = clique_problem()
    options = {"order_seconds": 0, "tables": "incomplete", "bounds": "none", "order": "linear"}
    with cutting(rows=50):
        alone, shared = plan(problem, **options), plan(problem, workers="cpus:2", **options)
    assert not [bucket for bucket in alone.buckets if bucket.passage.strategy.why_pieces]
    cut = [bucket for bucket in shared.buckets if bucket.passage.strategy.why_pieces]
    assert cut and all(bucket.passage.strategy.why_pieces is WhyPieces.WORKERS for bucket in cut)
    assert f"{len(cut)} buckets are large enough to be shared out to workers" in str(shared)
    assert "workers 2: " in str(shared) and "on_workers" not in alone.to_json()


def test_a_plan_simulates_the_workers_asked_for():
    """What is shared out divides among them, but for the last segments; the rest does not."""
    problem, options = clique_problem(7, 24), {"order_seconds": 0, "tables": "incomplete", "bounds": "none"}
    one, four = (plan(problem, workers=f"cpus:{n}", order="linear", **options).on_workers for n in (1, 4))
    assert one.segments > 10 and one.efficiency > 0.98
    assert four.work == pytest.approx(one.work, rel=0.3)  # stragglers are others
    assert 0.6 < four.efficiency < 1 and four.critical_path == one.critical_path
    assert plan(problem, workers="gpus", order="linear", **options).on_workers is None


def test_a_trace_has_a_row_for_each_worker(workers, tmp_path):
    with oocbe.trace(tmp_path / "trace.json"), cutting(rows=10), use_workers(workers):
        solve(clique_problem(), order_seconds=0, tables="incomplete", bounds="none")
    spans = [span for span in read_trace(tmp_path / "trace.json").spans if span.lane == "worker"]
    assert spans and {span.row for span in spans} <= set(range(len(workers.rows)))
    assert all("clique, bucket of" in span.name and span.begin < span.end for span in spans)
    assert sum(span.details["rows"] for span in spans) > 0
