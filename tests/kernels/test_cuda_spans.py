"""Device spans: on a simulated device its arithmetic, on a real one the lanes of a stream of pieces."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

import oocbe
from oocbe.kernels.cuda import spans
from oocbe.runtime.tracing.recorder import (
    CALLER,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    KERNELS,
    STREAM,
    Recorder,
    active,
    set_active,
)
from oocbe.runtime.tracing.trace_file import read_trace
from oocbe.tables.layout import Layout
from oocbe.tables.table import Table


class Device:
    """A device whose streams end each event that much later than it was queued; no event is done before it was."""

    def __init__(self) -> None:
        self.events = 0
        device = self

        class Event:
            def __init__(self, disable_timing=False):
                assert not disable_timing
                device.events += 1

            def record(self, stream):
                self.at = time.perf_counter_ns() + stream.delay

            @property
            def done(self):
                return time.perf_counter_ns() >= self.at

            def synchronize(self):
                while not self.done:
                    time.sleep(1e-4)

        class Stream:
            def __init__(self, non_blocking=True, delay=0):
                self.delay = delay

            def synchronize(self):
                pass

        class Chosen:
            def __init__(self, number):
                pass

            def __enter__(self):
                pass

            def __exit__(self, *error):
                pass

        self.Stream = Stream
        self.module = SimpleNamespace(
            cuda=SimpleNamespace(
                Event=Event,
                Stream=Stream,
                Device=Chosen,
                get_current_stream=Stream,
                get_elapsed_time=lambda a, b: float(np.float32((b.at - a.at) / 1e6)),
                runtime=SimpleNamespace(getDevice=lambda: 0, CUDARuntimeError=RuntimeError),
            )
        )


@pytest.fixture
def device(monkeypatch):
    found = Device()
    monkeypatch.setattr(spans, "cupy", lambda: found.module)
    yield found
    set_active(None)


def collected():
    found = []
    recorder = Recorder(found.extend)
    set_active(recorder)
    return recorder, found


def test_without_a_trace_no_event_is_made(device):
    with spans.device_span(KERNELS, "k"):
        pass
    assert device.events == 0


def test_device_times_are_told_on_the_clock_of_the_process(device):
    recorder, found = collected()
    stream = device.Stream(delay=30_000_000)
    begin = time.perf_counter_ns()
    with spans.device_span(KERNELS, "k", stream, rows=3):
        time.sleep(0.01)
    end = time.perf_counter_ns()
    recorder.close()
    (span,) = found
    assert (span.lane, span.name, span.details) == (KERNELS, "k", {"rows": 3})
    assert begin + 29_000_000 <= span.begin <= span.end <= end + 31_000_000
    assert span.end - span.begin >= 10_000_000


def test_pending_events_are_bounded(device, monkeypatch):
    monkeypatch.setattr(spans, "MOST_PENDING", 8)
    recorder, found = collected()
    for number in range(50):
        with spans.device_span(HOST_TO_DEVICE, f"piece {number}"):
            pass
    (_, clock) = spans._clocks[0]
    assert len(clock._pending) <= 8
    recorder.close()
    assert [span.name for span in found] == [f"piece {number}" for number in range(50)]
    assert not spans._clocks


def test_long_traces_get_a_base_anew(device, monkeypatch):
    monkeypatch.setattr(spans, "BASE_SECONDS", 0.0)
    recorder, found = collected()
    before = time.perf_counter_ns()
    for _ in range(3):
        with spans.device_span(KERNELS, "k"):
            pass
    assert device.events == 9
    recorder.close()
    assert all(before <= span.begin <= span.end for span in found)


def test_a_block_that_fails_gives_no_span_and_each_trace_has_its_own_clock(device):
    recorder, found = collected()
    with pytest.raises(ValueError), spans.device_span(KERNELS, "k"):
        raise ValueError
    other, more = collected()
    with spans.device_span(KERNELS, "k"):
        pass
    recorder.close()
    other.close()
    assert (len(found), len(more)) == (0, 1)


@pytest.mark.gpu
def test_a_stream_of_pieces_has_all_lanes(cuda, tmp_path):
    """Each copy and each piece is there, inside the run, and moves as many bytes as its tables have."""
    rows = 400_000
    key = np.arange(rows, dtype=np.uint64)[np.newaxis]
    f = Table(Layout(("e", "k"), (4, 1 << 18)), key, np.arange(rows, dtype=np.int32), is_sorted=True)
    g = Table(Layout(("e", "k"), (4, 1 << 18)), key, np.arange(rows, dtype=np.int32)[::-1].copy(), is_sorted=True)
    expected = oocbe.join_maximise(f, g, "e", backend="cpu")
    path = tmp_path / "t.json.gz"
    with oocbe.trace(path):
        found = oocbe.join_maximise(f, g, "e", backend="cuda", piece_rows=100_000)
    assert active() is None
    assert np.array_equal(found.values, expected.values)
    trace = read_trace(path)
    by_lane = {lane: [s for s in trace.spans if s.lane == lane] for lane in {s.lane for s in trace.spans}}
    pieces = [s for s in by_lane[STREAM] if s.name.startswith("piece")]
    assert len(pieces) >= 8
    assert len([s for s in by_lane[CALLER] if s.name.startswith("queue piece")]) == len(pieces)
    copies = [s for s in by_lane[HOST_TO_DEVICE] if s.name.startswith("piece")]
    assert sum(s.details["bytes"] for s in copies) == f.nbytes + g.nbytes
    results = [s for s in by_lane[DEVICE_TO_HOST] if s.name == "result"]
    assert sum(s.details["bytes"] for s in results) == expected.nbytes
    assert by_lane[KERNELS]
    for s in trace.spans:
        assert -100_000 <= s.begin <= s.end <= trace.seconds * 1e9 + 100_000
    # A piece's kernels come after its copy, its results after its kernels.
    for copy, piece in zip(copies, pieces, strict=True):
        assert copy.name == piece.name
        assert copy.end <= piece.end
