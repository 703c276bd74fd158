"""Operators on stored tables cut into segments for workers: the rows of one process, whatever befalls workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.errors import ClusterError, CorruptDataError, ResourceError, UsageError
from oocbe.execution.cluster.workers import LostWorkError, use_workers
from oocbe.model.semiring import MIN_SUM, SEMIRINGS
from oocbe.model.settings.tuning import tuned
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.elimination.test_killed_workers import POINTS, Forking, shared_out
from tests.elimination.test_segments import Failing, Sending
from tests.helpers.effort import examples, in_turns
from tests.helpers.out_of_core_modes import also_out_of_core, same_rows

OPERATORS = {
    "join-sum": lambda t1, t2, **more: join_sum(t1, t2, **more),
    "maximise": lambda t1, t2, **more: maximise(t1, "a", **more),
    "join-maximise": lambda t1, t2, **more: join_maximise(t1, t2, "b", **more),
    "product": lambda t1, t2, **more: join_maximise(t1, t2, ["b", "c"], **more),
    "both ways": lambda t1, t2, **more: join_maximise(t1, t2, ["a", "b", "d"], **more),
}
"""What is done with tables over (a, b, c) and (c, d, b): nothing shared stays of a product."""


@pytest.fixture(scope="module")
def workers():
    with Sending(2) as made:
        yield made


@pytest.fixture(autouse=True)
def few_rows_are_many(tune):
    """Runs of a few rows, which have several chunks."""
    tune(few_rows=5)
    with cutting():
        yield


def cutting(**more):
    lengths = {"first_segments": 3, "least_segment_seconds": 1e3, "most_segment_seconds": 1e3}
    return tuned(segment_rows=1, **lengths | more)


def table(scope, rows, seed, semiring=MIN_SUM, dtype=np.int64, in_order=False, skew=1):
    rng = np.random.default_rng(seed)
    sizes = np.array(list(scope.values()))
    tuples = np.unique((sizes * rng.random((rows, len(scope))) ** skew).astype(np.int64), axis=0)
    made = Table.from_rows(scope, tuples, (rng.integers(1, 90, len(tuples)) / 7).astype(dtype), semiring)
    if in_order:
        return made
    order = rng.permutation(made.rows)
    return Table(made.layout, np.ascontiguousarray(made.keys[:, order]), made.values[order], semiring)


def pair(rows=300, sizes=(12, 5, 40, 7), wide=False, **more):
    a, b, c, d = sizes
    more_bits = 1 << 40 if wide else 1
    scopes = ({"a": a * more_bits, "b": b, "c": c * more_bits}, {"c": c * more_bits, "d": d, "b": b})
    return [table(scope, rows, seed, **more) for seed, scope in enumerate(scopes)]


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=examples(4), deadline=None)
@given(
    st.integers(0, 200), st.booleans(), st.booleans(), st.sampled_from([1, 5]),
    st.sampled_from([(None, 2), (30, 2), (7, 1)]), st.sampled_from([np.int64, np.float64]),
)  # fmt: skip
def test_workers_give_the_rows_of_one_process(workers, name, rows, in_order, wide, skew, mode, dtype):
    t1, t2 = pair(rows, wide=wide, in_order=in_order, skew=skew, dtype=dtype)
    with use_workers(workers):
        also_out_of_core(OPERATORS[name], t1, t2, mode=mode)


@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
def test_all_semirings(workers, semiring):
    t1, t2 = pair(semiring=semiring, dtype=np.float64 if "log" in semiring.name else np.int64)
    with use_workers(workers):
        also_out_of_core(OPERATORS["join-maximise"], t1, t2, mode=(None, 2))


def test_segments_are_many_and_tables_of_any_kind_are_taken(workers, tmp_path):
    t1, t2 = pair(1000, (40, 5, 90, 20), in_order=True)
    expected = join_maximise(t1, t2, "b")
    stored = StoredTable.save(tmp_path / "t1", t1, chunk_rows=64)
    workers.named = []
    # A part of what is left each, however long any takes, and whether or not a first one was done here.
    with use_workers(workers), cutting(least_segment_seconds=0):
        found = join_maximise(stored, PackedTable.pack(t2, chunk_rows=100), "b", output=tmp_path / "found")
        again = join_maximise(stored, t2, "b", output=tmp_path / "again")
    same_rows(found, expected)
    same_rows(again, expected)
    assert found.is_sorted and len(list((tmp_path / "found").glob("part-*"))) > 6
    assert len(workers.named) > 12
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "found", "t1"]


def test_a_table_in_order_is_not_sorted(workers, tmp_path):
    """Rows that lead with some of the variables that stay are cut by these, wherever the others are."""
    rows = table({"e": 4, "a": 9, "k": 1000}, 3000, 1, in_order=True)
    stored = StoredTable.save(tmp_path / "rows", rows, chunk_rows=100)
    workers.named = []
    with use_workers(workers):
        found = maximise(stored, "a", output=tmp_path / "found")
    same_rows(found, maximise(rows, "a"))
    assert workers.named and not [name for name in workers.named if "sorting" in name]


def test_what_nothing_can_be_cut_by_is_done_here(workers, tmp_path):
    t1, t2 = table({"a": 9}, 9, 1), table({"d": 9}, 9, 2)
    workers.named = []
    with use_workers(workers):
        same_rows(join_sum(t1, t2, output=tmp_path / "found"), join_sum(t1, t2))
    assert not workers.named


@pytest.mark.parametrize(
    ("in_order", "error"),
    in_turns((True, False), (LostWorkError("gone"), ResourceError("no memory"), MemoryError())),
    ids=repr,
)
def test_segments_that_fail_are_done_again_or_halved(error, in_order):
    t1, t2 = pair(in_order=in_order)
    with Failing(2, lambda number: number in (0, 1, 4, 7), error) as workers, use_workers(workers):
        also_out_of_core(OPERATORS["join-sum"], t1, t2, mode=(None, 2))
        assert next(workers.numbers) > 5


def test_a_segment_that_has_no_half(tmp_path):
    t1, t2 = pair(in_order=False)
    failing = Failing(2, lambda number: number > 9, ResourceError("no memory"))
    with failing as workers, use_workers(workers), pytest.raises(ResourceError, match=r"(a row|rows).*: no memory"):
        join_sum(t1, t2, output=tmp_path / "found")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("point", shared_out(1))
def test_a_worker_killed_at_a_point(point, backend):
    """While it sorts a run, or while it joins a range."""
    if backend == "cuda":
        pytest.skip("a process that is forked cannot use the device that this one uses")
    t1, t2 = pair(60, in_order=False)
    number = 8 * (POINTS.index(point) // 2 % 2)
    with Forking(f"{point}:1", number=number) as workers, use_workers(workers):
        also_out_of_core(OPERATORS["join-maximise"], t1, t2, mode=(None, 2))
        assert workers.killed == 1, workers.given


def test_a_result_takes_the_place_of_what_was_there(workers, tmp_path):
    t1, t2 = pair(in_order=False)
    StoredTable.save(tmp_path / "found", t1)
    with use_workers(workers):
        with pytest.raises(UsageError, match="exists already"):
            join_sum(t1, t2, output=tmp_path / "found")
        found = join_sum(t1, t2, output=tmp_path / "found", overwrite=True)
    same_rows(found, join_sum(t1, t2))
    assert list((tmp_path / "found").glob("part-*")) and [path.name for path in tmp_path.iterdir()] == ["found"]


def test_a_damaged_input_is_told_of(workers, tmp_path):
    t1, t2 = pair(in_order=True)
    stored = StoredTable.save(tmp_path / "t1", t1, chunk_rows=64)
    chunk = tmp_path / "t1" / "values" / "c" / "2"
    chunk.write_bytes(bytes(len(chunk.read_bytes())))
    with use_workers(workers), pytest.raises(CorruptDataError, match="chunk 2 of values"):
        join_sum(stored, t2, output=tmp_path / "found")
    assert [path.name for path in tmp_path.iterdir()] == ["t1"]


def test_workers_need_an_output():
    t1, t2 = pair(10)
    with pytest.raises(UsageError, match="name the output table as well"):
        join_sum(t1, t2, workers=2)
    with pytest.raises(UsageError, match="is none of 2, cpus:4"):
        join_sum(t1, t2, workers="two", output="nowhere")


def test_a_worker_that_does_not_see_the_output_says_so(tmp_path):
    class Elsewhere(Sending):
        def submit(self, name, work, told):
            return super().submit(name, work, replace(told, part=Path("/elsewhere") / told.part.name))

    t1, t2 = pair(in_order=True)
    with (
        Elsewhere(2) as workers,
        use_workers(workers),
        pytest.raises(ClusterError, match=r"does not see /elsewhere.*scratch and output"),
    ):
        join_sum(t1, t2, output=tmp_path / "found")
