"""Rows that a worker reads, and those of them that another one has written."""

from __future__ import annotations

import numpy as np
import pytest

import oocbe
from oocbe.algebra.operators import join_maximise
from oocbe.api.tasks import verbs
from oocbe.errors import CorruptDataError
from oocbe.execution.cluster.segment_files import (
    ReadCounts,
    TableAt,
    opened,
    own_reading,
    own_writer,
    reading,
    working_as,
)
from oocbe.execution.cluster.workers import use_workers
from oocbe.model.results.progress_curve import RowsRead
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.tuning import tuned
from oocbe.stress.tables import SyntheticTable
from oocbe.tables.layout import Layout
from oocbe.tables.parts import PartsWriter, PartWriter
from oocbe.tables.stored import StoredTable
from tests.elimination.test_segments import clique_problem
from tests.helpers.thread_workers import InThreads

LAYOUT = Layout(("x",), (1000,))
WRITERS = {"here one": 10, "here two": 20, "elsewhere one": 30, None: 40}
"""Rows that each has written, in the order of their keys; None: nobody says."""


@pytest.fixture
def table(tmp_path):
    """Four parts of four writers, in chunks of eight rows."""
    start = 0
    with PartsWriter(tmp_path / "table", LAYOUT, np.int64, MAX_SUM) as parts:
        for writer, rows in WRITERS.items():
            path = parts.part_path()
            with PartWriter(path, LAYOUT, np.int64, MAX_SUM, chunk_rows=8) as part:
                part.writer = writer
                part.append(np.arange(start, start + rows, dtype=np.uint64)[np.newaxis], np.arange(rows))
            parts.add(path)
            start += rows
    return StoredTable.open(tmp_path / "table")


@pytest.mark.parametrize(
    ("worker", "low", "high", "expected"),
    [
        ("one", 0, 100, RowsRead(100, 20)),
        ("two", 0, 100, RowsRead(100, 10)),
        ("three", 0, 100, RowsRead(100, 30)),
        ("one", 5, 13, RowsRead(8, 3)),
        ("two", 5, 13, RowsRead(8, 5)),
        ("one", 29, 100, RowsRead(71, 1)),
        ("two", 40, 40, RowsRead(0, 0)),
    ],
)
def test_rows_of_known_owners(table, worker, low, high, expected):
    with working_as(worker), reading("here"):
        assert own_writer() == f"here {worker}"
        found = opened(TableAt.of(table))
        rows = found.read(low, high)
        assert own_reading().read == expected
    assert rows.keys[0].tolist() == list(range(low, high))


def test_packed_chunks_count_once(table):
    counting = ReadCounts("here one")
    counted = counting.of(table)
    for chunk in range(counted.chunk_count):
        for column in range(2):
            assert (counted.packed_chunk(column, chunk) == table.packed_chunk(column, chunk)).all()
    assert counting.read == RowsRead(100, 20)


def test_a_process_that_is_no_worker_counts_nothing(table):
    with reading("here"):
        assert own_reading() is None and own_writer() is None
        assert type(opened(TableAt.of(table))) is StoredTable


def test_a_writer_that_is_no_text_is_refused(tmp_path):
    with PartWriter(tmp_path / "part", LAYOUT, np.int64, MAX_SUM) as part:
        part.writer = 7
        part.append(np.zeros((1, 1), dtype=np.uint64), np.zeros(1, dtype=np.int64))
    with pytest.raises(CorruptDataError):
        StoredTable.open(tmp_path / "part")


def test_numbers_for_people():
    assert RowsRead(10_100_000, 3_200_000).summary == (
        "3.2 of 10.1 million rows read by workers had been written by another one (32%)"
    )
    assert RowsRead(12, 3).summary.startswith("3 of 12 rows read")
    assert RowsRead().summary == ""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_task(tmp_path, threads):
    """What the process that asks does itself, the first segment of a kind, is no worker's."""
    options = {"order_seconds": 0, "tables": "incomplete"}
    problem = clique_problem()
    assert verbs.run_task("count", problem, **options).read_by_workers is None
    cutting = tuned(
        segment_rows=10, first_segments=3, least_segment_seconds=1e3, most_segment_seconds=1e3, small_bytes=0
    )
    with InThreads(threads) as workers, use_workers(workers), cutting:
        found = [verbs.run_task("count", problem, **options, workdir=tmp_path).read_by_workers for _ in range(2)]
        total = workers.read
    assert total == found[0].and_also(found[1])
    for read in found:
        assert read.rows > 0
        assert 0 <= read.changed_owner <= read.rows and (threads > 1 or read.changed_owner == 0)
    optimum = oocbe.solve(problem, order_seconds=0)
    assert optimum.read_by_workers is None and optimum.to_json()["read_by_workers"] is None


@pytest.mark.parametrize("threads", [1, 2])
def test_an_operator_reads_at_least_its_inputs(tmp_path, threads):
    with InThreads(threads) as workers, use_workers(workers), tuned(segment_rows=1000):
        specs = [SyntheticTable(20_000, 600, own=own, is_sorted=True) for own in "ab"]
        tables = [spec.write(tmp_path / spec.own, chunk_rows=500) for spec in specs]
        join_maximise(*tables, "e", output=tmp_path / "first")  # from now on nothing is compiled by this process
        before = workers.read
        result = join_maximise(*tables, "e", output=tmp_path / "second")
        read = workers.read.without(before)
    assert read.rows >= sum(table.rows for table in tables)
    assert read.changed_owner == 0  # no worker wrote what is read
    own = {StoredTable.open(part)._index.writer(0) for part in result.path.glob("part-*")}
    assert own and all(writer.startswith(f"{workers.cluster} oocbe-worker_") for writer in own)
