"""Trace files: what viewers need, whole or cut short anywhere, and clear errors for what is none."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

import oocbe
from oocbe.errors import FormatError, UsageError
from oocbe.runtime.tracing.recorder import KERNELS, READER, STREAM, active, rows_of, span, waiting
from oocbe.runtime.tracing.trace_file import read_trace

NAMES = ["t.json", "t.json.gz"]


def write(path, spans=5):
    with oocbe.trace(path, about="a test") as recorder, rows_of(STREAM, 2):
        for number in range(spans):
            with span(READER, f"read {number}", bytes=100), waiting(KERNELS, "wait"):
                pass
    return recorder


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_read_again(tmp_path, name):
    recorder = write(tmp_path / name)
    trace = read_trace(tmp_path / name)
    assert active() is None
    assert recorder.dropped == 0
    assert trace.is_whole
    assert trace.error is None
    assert trace.about["about"] == "a test"
    assert [(s.lane, s.name, s.is_wait) for s in trace.spans] == [
        item for n in range(5) for item in ((KERNELS, "wait", True), (READER, f"read {n}", False))
    ]
    assert all(s.details == {"bytes": 100} for s in trace.spans[1::2])
    assert all(0 <= s.begin <= s.end <= trace.seconds * 1e9 for s in trace.spans)


def test_the_file_is_what_viewers_read(tmp_path):
    write(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())
    names = {
        (e["pid"], e.get("tid")): e["args"]["name"] for e in events if e["name"] in ("process_name", "thread_name")
    }
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == 10
    for event in complete:
        assert set(event) <= {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}
        assert names[event["pid"], None] in names[event["pid"], event["tid"]]
    assert sorted(names.values()) == ["kernels", "kernels 0", "reader", "reader 0"]


@pytest.mark.parametrize("name", NAMES)
def test_an_error_in_the_block_is_named_and_what_was_there_is_kept(tmp_path, name):
    with pytest.raises(KeyboardInterrupt), oocbe.trace(tmp_path / name), span(READER, "read"):
        raise KeyboardInterrupt
    trace = read_trace(tmp_path / name)
    assert (trace.is_whole, trace.error, len(trace.spans)) == (True, "KeyboardInterrupt", 1)
    with oocbe.trace(tmp_path / name):  # the next one may be written, over the first
        pass
    assert read_trace(tmp_path / name).spans == []


def test_one_trace_at_a_time(tmp_path):
    with oocbe.trace(tmp_path / "one.json"):
        with pytest.raises(UsageError, match="only one at a time"), oocbe.trace(tmp_path / "two.json"):
            pass
        assert active() is not None
    assert not (tmp_path / "two.json").exists()


def test_a_file_that_cannot_be_made_is_an_error_before_the_run(tmp_path):
    with pytest.raises(FileNotFoundError), oocbe.trace(tmp_path / "missing" / "t.json"):
        raise AssertionError
    assert active() is None


def test_a_full_disk_is_an_error_before_the_run(tmp_path):
    if not os.path.exists("/dev/full"):  # noqa: PTH110 - a device, not a file of ours
        pytest.skip("no /dev/full here")
    (tmp_path / "t.json").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"), oocbe.trace(tmp_path / "t.json"):
        raise AssertionError
    assert active() is None


@pytest.mark.parametrize("name", NAMES)
def test_every_prefix_is_read_as_far_as_it_goes(tmp_path, name):
    write(tmp_path / name, spans=30)
    data = (tmp_path / name).read_bytes()
    whole = read_trace(tmp_path / name).spans
    head = data.index(b'"about": "a test"}}') + 20 if name == "t.json" else 150
    lengths = []
    for end in range(head, len(data), 7):
        (tmp_path / name).write_bytes(data[:end])
        found = read_trace(tmp_path / name)
        assert found.spans == whole[: len(found.spans)]
        lengths.append(len(found.spans))
    assert lengths == sorted(lengths)
    assert lengths[-1] > 50


KILLED = """
import os, sys, time
import oocbe
from oocbe.runtime.tracing import recorder
recorder.BLOCK_SPANS = 10
with oocbe.trace(sys.argv[1]):
    for number in range(25):
        with recorder.span("reader", f"read {number}"):
            pass
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_process_leaves_a_prefix(tmp_path, name):
    with subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / name], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
    trace = read_trace(tmp_path / name)
    assert not trace.is_whole
    # The last line of a prefix that is gzipped may not be told from a part of one.
    assert len(trace.spans) in (19, 20)
    assert trace.seconds > 0


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", None),
        (b"{}", 1),
        (b"[\n1,\n2]\n", 2),
        (b'[\n{"name": "x", "ph": "M"},\n', 2),
        (b'[\n{"name": "oocbe", "ph": "M", "args": {"version": 99}},\n]\n', 2),
        (b'[\n{"name": "oocbe", "ph": "M", "args": {"version": 1}},\n{"ph": "X", "pid": 99},\n]\n', 3),
        (b'[\n{"name": "oocbe", "ph": "M", "args": {"version": 1}},\n{"ph": "X", "pid": 0},\n]\n', 3),
    ],
)
def test_other_files_are_refused_with_the_line(tmp_path, content, line):
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="trace") as caught:
        read_trace(path)
    assert caught.value.line == line
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(content))
    with pytest.raises(FormatError):
        read_trace(tmp_path / "t.json.gz")


def test_a_file_that_is_not_gzip_is_refused(tmp_path):
    (tmp_path / "t.json.gz").write_bytes(b"no gzip, whatever its name says")
    with pytest.raises(FormatError, match="not gzip"):
        read_trace(tmp_path / "t.json.gz")


def test_threads_write_one_file(tmp_path):
    def work():
        for _ in range(3000):
            with span(KERNELS, "k"):
                pass

    with oocbe.trace(tmp_path / "t.json.gz"):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read_trace(tmp_path / "t.json.gz").spans) == 12_000
