"""Recording: nothing without a trace, every span with one, from any thread, in bounded memory."""

from __future__ import annotations

import os
import threading
from itertools import pairwise

import pytest

from oocbe.runtime.tracing import recorder as tracing
from oocbe.runtime.tracing.recorder import BLOCK_SPANS, KERNELS, READER, STREAM, Recorder


class Collected:
    """A sink in memory."""

    def __init__(self, error: OSError | None = None) -> None:
        self.blocks, self.error = [], error

    def __call__(self, spans):
        if self.error is not None:
            raise self.error
        self.blocks.append(spans)

    @property
    def spans(self):
        return [span for block in self.blocks for span in block]


@pytest.fixture
def active():
    """Make a recorder the active one for the test."""
    yield tracing.set_active
    tracing.set_active(None)


def test_without_a_trace_nothing_is_made():
    blocks = [tracing.span(READER, "a", bytes=1), tracing.waiting(READER, "b"), tracing.phase("c")]
    assert len({id(block) for block in blocks}) == 1
    with blocks[0], tracing.rows_of(STREAM, 3) as rows:
        assert rows == [0, 1, 2]


def test_spans_have_lane_name_times_and_details(active):
    sink = Collected()
    active(Recorder(sink))
    with tracing.span(READER, "read", bytes=7), tracing.waiting(KERNELS, "wait"):
        pass
    with pytest.raises(ValueError), tracing.span(KERNELS, "fails"):
        raise ValueError
    tracing.active().close()
    wait, read, fails = sink.spans
    assert (read.lane, read.name, read.is_wait, read.details) == (READER, "read", False, {"bytes": 7})
    assert (wait.lane, wait.is_wait, fails.name) == (KERNELS, True, "fails")
    assert read.begin <= wait.begin <= wait.end <= read.end <= fails.begin <= fails.end


def test_phases_are_those_of_the_lane_that_the_thread_works_for(active):
    sink = Collected()
    active(Recorder(sink))
    with tracing.phase("nowhere"):
        pass
    with tracing.working_for(STREAM, 3):
        with tracing.phase("outer"), tracing.working_for(STREAM, 5), tracing.phase("inner"):
            pass
        with tracing.phase("after", is_wait=True):
            pass
    tracing.active().close()
    assert [(s.name, s.row, s.is_wait) for s in sink.spans] == [
        ("inner", 5, False), ("outer", 3, False), ("after", 3, True),
    ]  # fmt: skip


def test_rows_are_given_to_one_at_a_time():
    recorder = Recorder(Collected())
    with recorder.rows(STREAM, 2) as first, recorder.rows(STREAM, 3) as second:
        assert sorted(first + second) == [0, 1, 2, 3, 4]
        with recorder.rows(KERNELS, 1) as other:
            assert other == [0]
    with recorder.rows(STREAM, 1) as again:
        assert again == [0]


def test_spans_of_a_row_never_overlap(active):
    """Sixteen threads at once: all spans are there, and in each row they follow one another."""
    sink = Collected()
    recorder = Recorder(sink)
    active(recorder)
    gate = threading.Barrier(16)

    def work():
        gate.wait()
        for _ in range(200):
            with tracing.span(READER, "outer"), tracing.span(READER, "inner"):
                pass

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    assert len(sink.spans) == 16 * 400
    for row in {span.row for span in sink.spans}:
        mine = sorted((s for s in sink.spans if s.row == row), key=lambda s: s.begin)
        assert all(a.end <= b.begin for a, b in pairwise(mine))


def test_memory_is_bounded_by_blocks_and_spans_beyond_the_limit_are_counted():
    sink = Collected()
    recorder = Recorder(sink, most_spans=3 * BLOCK_SPANS + 10)
    for number in range(4 * BLOCK_SPANS):
        recorder.add(READER, "read", number, number + 1)
    recorder.close()
    assert max(map(len, sink.blocks)) <= BLOCK_SPANS
    assert len(sink.spans) == 3 * BLOCK_SPANS + 10
    assert (recorder.dropped, recorder.dropped_from) == (BLOCK_SPANS - 10, 3 * BLOCK_SPANS + 10)


def test_a_sink_that_fails_ends_the_trace_and_not_the_run(active):
    recorder = Recorder(Collected(OSError(28, "No space left on device")))
    active(recorder)
    for _ in range(BLOCK_SPANS + 5):
        with tracing.span(READER, "read"):
            pass
    assert recorder.failure is not None
    assert recorder.dropped == BLOCK_SPANS + 5
    recorder.close()


def test_spans_that_end_after_the_trace_go_nowhere(active):
    sink = Collected()
    recorder = Recorder(sink)
    active(recorder)
    with tracing.span(READER, "late"):
        active(None)
        recorder.close()
    assert sink.spans == []
    assert recorder.dropped == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_records_nothing(active):
    recorder = Recorder(Collected())
    active(recorder)
    with recorder._lock:  # a lock that another thread of the parent holds
        child = os.fork()
        if child == 0:
            with tracing.span(READER, "in the child"):
                pass
            os._exit(0 if tracing.active() is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tracing.active() is recorder
