"""Reading ahead: what comes next is asked for once, other reads ask for nothing, and nothing depends on it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocbe.errors import CorruptDataError
from oocbe.model.settings.tuning import tuning
from oocbe.tables import disk
from oocbe.tables.group import ReadAhead
from oocbe.tables.layout import Layout
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

ROWS, CHUNK = 3000, 100


@pytest.fixture
def stored(tmp_path):
    keys = np.arange(ROWS, dtype=np.uint64)[np.newaxis]
    table = Table(Layout(("a",), (ROWS,)), keys, np.arange(ROWS, dtype=np.int32), is_sorted=True)
    return StoredTable.save(tmp_path / "table", table, chunk_rows=CHUNK)


@pytest.fixture
def asked(monkeypatch):
    """Names of the files that were asked for."""
    found = []
    monkeypatch.setattr(disk, "will_need", lambda path: found.append("/".join(path.parts[-3:])))
    return found


@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 40), st.none() | st.integers(0, 1000))
def test_a_pass_asks_for_each_chunk_once_and_before_it_is_read(chunks, step, ahead, seed):
    """Also in a second pass. Where threads overtake one another, some are not asked for, as they are read already."""
    reads = ReadAhead(chunks, -(-tuning().transfer_bytes // ahead))
    rng = random.Random(seed)
    for _ in range(2):
        ranges = [(low, min(low + step, chunks)) for low in range(0, chunks, step)]
        for start in range(1, len(ranges) - 1, 2):
            if seed is not None and rng.random() < 0.5:
                ranges[start], ranges[start + 1] = ranges[start + 1], ranges[start]
        asked = []
        for first, last in ranges:
            asked += reads.after(first, last)
            assert seed is not None or set(range(first, last)) <= set(asked)
        assert len(asked) == len(set(asked))
        assert set(asked) <= set(range(chunks))


def test_reads_far_apart_ask_for_nothing():
    reads = ReadAhead(1000, tuning().transfer_bytes // 4)
    assert list(reads.after(500, 501)) == []
    assert list(reads.after(100, 101)) == []
    assert list(reads.after(101, 102)) == [101, 102, 103, 104, 105]
    apart = tuning().in_flight
    assert list(reads.after(102 + apart + 1, 102 + apart + 2)) == []


def test_a_table_read_in_order_asks_for_its_files_in_order(stored, asked):
    for table in stored.chunks():
        assert table.rows == CHUNK
    assert asked == [f"{name}/c/{chunk}" for chunk in range(ROWS // CHUNK) for name in ("key_0", "values")]
    asked.clear()
    stored.read_into(0, np.empty((1, 5), dtype=np.uint64), None)
    assert set(asked) == {f"key_0/c/{chunk}" for chunk in range(ROWS // CHUNK)}


def test_single_rows_ask_for_nothing(stored, asked):
    for key in (5, 150, 2999, 0):
        assert stored.find(np.array([key], dtype=np.uint64)) == key
    assert asked == []


def test_a_file_that_is_gone_is_noticed_when_it_is_read(stored):
    (stored.path / "values" / "c" / "2").unlink()
    disk.will_need(stored.path / "values" / "c" / "2")
    assert stored.read(0, 100).rows == 100
    with pytest.raises(CorruptDataError, match="chunk 2 of values is missing"):
        stored.read(100, 300)


def test_the_system_is_asked_for_all_of_a_file(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        disk.os, "posix_fadvise", lambda handle, start, size, advice: calls.append((start, size, advice))
    )
    path = tmp_path / "file"
    path.write_bytes(bytes(300_000))
    disk.will_need(path)
    assert [start for start, _, _ in calls] == [0, 131072, 262144]
    assert {advice for _, _, advice in calls} == {disk.os.POSIX_FADV_WILLNEED}
    (tmp_path / "link").symlink_to(path)
    disk.will_need(tmp_path / "link")  # never followed
    assert len(calls) == 3
