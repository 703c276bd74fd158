"""What a trace says: shares, overlap and what bound the run, against counting nanosecond by nanosecond."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocbe.runtime.tracing.recorder import CALLER, KERNELS, READER, RESOURCES, STREAM, WORKER, WRITER, Span
from oocbe.runtime.tracing.summary import difference, kind_of, summarise, union_of
from oocbe.runtime.tracing.trace_file import Trace

LENGTH = 40
INTERVALS = st.lists(st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).map(sorted).map(tuple), max_size=12)


def covered(intervals) -> np.ndarray:
    found = np.zeros(LENGTH, dtype=bool)
    for begin, end in intervals:
        found[begin:end] = True
    return found


def trace_of(spans, seconds=LENGTH / 1e9, **more):
    return Trace(Path("t.json"), spans, seconds, is_whole=True, **more)


def spans_of(lane, intervals, row=0, is_wait=False, name="work"):
    return [Span(lane, row, name, begin, end, is_wait, {}) for begin, end in intervals]


@given(INTERVALS)
def test_union(intervals):
    found = union_of(intervals)
    assert np.array_equal(covered(found), covered(intervals))
    assert (found[1:, 0] > found[:-1, 1]).all()


@given(INTERVALS, INTERVALS)
def test_difference(one, other):
    found = difference(union_of(one), union_of(other))
    assert np.array_equal(covered(found), covered(one) & ~covered(other))


@given(st.dictionaries(st.sampled_from(RESOURCES), INTERVALS))
def test_shares_and_overlap(intervals):
    spans = [span for lane, mine in intervals.items() for span in spans_of(lane, mine)]
    summary = summarise(trace_of(spans))
    busy = {lane: covered(mine) for lane, mine in intervals.items()}
    for lane in summary.lanes:
        assert lane.share == pytest.approx(busy[lane.name].mean())
        assert lane.row_seconds * 1e9 == pytest.approx(sum(end - begin for begin, end in intervals[lane.name]))
    at_once = sum((b.astype(int) for b in busy.values()), np.zeros(LENGTH, dtype=int))
    for count, spent in enumerate(summary.at_once):
        assert spent * 1e9 == pytest.approx((at_once == count).sum())
    assert sum(summary.at_once) * 1e9 == pytest.approx(LENGTH)
    if at_once.any():
        assert summary.overlapped == pytest.approx((at_once > 1).sum() / (at_once > 0).sum())
        assert summary.busiest.share == pytest.approx(max(b.mean() for b in busy.values()))
    else:
        assert summary.busiest is None


def test_waiting_inside_work_is_not_busy_and_streams_wait_for_themselves():
    spans = [
        *spans_of(STREAM, [(0, 20)], row=0), *spans_of(STREAM, [(5, 20)], row=0, is_wait=True),
        *spans_of(STREAM, [(0, 10)], row=1),
        *spans_of(CALLER, [(0, 40)], row=1), *spans_of(CALLER, [(10, 40)], row=0, is_wait=True),
    ]  # fmt: skip
    shares = {lane.name: lane.share for lane in summarise(trace_of(spans)).lanes}
    assert shares == {STREAM: pytest.approx(0.25), CALLER: pytest.approx(0.25)}


def test_work_is_summed_by_kind():
    spans = [Span(READER, n % 3, f"piece {n}", n, n + 2, False, {"bytes": 10, "rows": 3}) for n in range(10)]
    (lane,) = summarise(trace_of(spans)).lanes
    (work,) = lane.works
    assert (work.name, work.count, work.bytes, lane.rows) == ("pieces", 10, 100, 3)
    assert work.seconds == pytest.approx(20e-9)
    assert [kind_of(name) for name in ("bucket 12", "12", "read file", "x 1 2", "p, bucket of 7")] == [
        "buckets",
        "12",
        "read file",
        "x 1s",
        "p, bucket of 7",
    ]


@pytest.mark.parametrize(
    ("busy", "cpu", "sentence"),
    [
        ({READER: 36, KERNELS: 10}, 0.1, "the reader bound it, busy 90%"),
        ({READER: 20, KERNELS: 25}, 1.9, r"the processor bound it, 1\.9 of 2 cores at work; the kernels, busy 62%"),
        ({READER: 20, KERNELS: 24}, 0.3, "no lane bound it: the kernels, the busiest, worked 60%.*none worked in 40%"),
        ({KERNELS: 4, WORKER: 36}, 0.1, r"the workers bound it, busy 90% of the time \(work 100%\)"),
        ({KERNELS: 4, WORKER: 20}, 0.1, "no lane bound it: the workers, the busiest, worked 50%.*none worked in 50%"),
        ({CALLER: 40}, 0.3, "nothing that moves rows"),
    ],
)
def test_what_bounds_a_run(busy, cpu, sentence):
    spans = [span for lane, length in busy.items() for span in spans_of(lane, [(0, length)])]
    summary = summarise(trace_of(spans, cpu_seconds=cpu * LENGTH / 1e9, cores=2))
    assert re.match(sentence, summary.bound_by)


def test_where_spans_were_dropped_only_the_time_before_counts():
    spans = [*spans_of(READER, [(0, 10), (15, 30)]), *spans_of(WRITER, [(30, 40)])]
    summary = summarise(trace_of(spans, dropped=5, dropped_from=20e-9))
    assert summary.seconds == pytest.approx(20e-9)
    assert [(lane.name, lane.share) for lane in summary.lanes] == [(READER, pytest.approx(0.75))]


def test_a_trace_without_spans():
    summary = summarise(trace_of([], seconds=0.0))
    assert (summary.lanes, summary.busiest, summary.overlapped) == ((), None, 0.0)
