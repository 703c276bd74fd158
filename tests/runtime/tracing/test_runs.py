"""Traces of real runs: every lane there, the work that was done, and the same answers as without."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.execution.cluster.workers import use_workers
from oocbe.model.settings.tuning import tuned
from oocbe.runtime.tracing.recorder import CALLER, ELIMINATION, KERNELS, READER, STREAM, WORKER, WRITER
from oocbe.runtime.tracing.trace_file import read_trace
from oocbe.stress.tables import SyntheticTable
from tests.helpers.thread_workers import InThreads

DAILY = "examples/daily.spot"


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def tables(tmp_path):
    return [
        SyntheticTable(rows=40_000, groups=900, sizes="uniform", is_sorted=False, own=own, seed=seed).write(
            tmp_path / own
        )
        for seed, own in enumerate("ab")
    ]


@pytest.mark.parametrize("streams", [1, 3])
def test_an_operator_out_of_core(tables, tmp_path, streams):
    expected = oocbe.join_maximise(*(t.to_table() for t in tables), "e", backend="cpu")
    path = tmp_path / "t.json.gz"
    with oocbe.trace(path):
        found = oocbe.join_maximise(
            *tables, "e", output=tmp_path / "out", memory="32MiB", piece_rows=5000, streams=streams, backend="cpu"
        )
    assert np.array_equal(found.to_table().values, expected.values)
    trace = read_trace(path)
    names = {lane: {s.name for s in trace.spans if s.lane == lane} for lane in {s.lane for s in trace.spans}}
    assert set(names) == {ELIMINATION, STREAM, CALLER, READER, KERNELS, WRITER}
    (step,) = (s for s in trace.spans if s.lane == ELIMINATION)
    assert (step.name, step.details["rows"]) == ("join and eliminate e", found.rows)
    assert names[STREAM] == {"compute", "read", "wait to hand over"}
    assert {"read file", "check file", "decode", "read scratch", "check scratch"} <= names[READER]
    assert {"sort_rows", "group_starts", "join_reduce"} <= names[KERNELS]
    assert {"encode", "write file", "force to disk", "write scratch"} <= names[WRITER]
    # All of both tables is read, beside samples of them, and all of the result is written.
    read = sum(s.details["bytes"] for s in trace.spans if s.name == "decode")
    assert read >= sum(t.nbytes for t in tables)
    written = sum(s.details["bytes"] for s in trace.spans if s.name == "write file")
    assert written >= found.stored_bytes
    # Streams of pieces, and beside them those that partition the rows of one piece.
    assert len({s.row for s in trace.spans if s.lane == STREAM}) <= 2 * streams
    assert all(0 <= s.begin <= s.end <= trace.seconds * 1e9 for s in trace.spans)


def test_workers_are_told_of(tables, tmp_path):
    """Each has a row of its own, and what is said of the processor is said of the process that asks."""
    path = tmp_path / "t.json"
    with InThreads(2) as workers, use_workers(workers), tuned(segment_rows=1000), oocbe.trace(path):
        oocbe.join_maximise(*tables, "e", output=tmp_path / "out")
    segments = [span for span in read_trace(path).spans if span.lane == WORKER]
    assert len({span.details["worker"] for span in segments}) == len({span.row for span in segments}) > 1
    counted = [sum(span.details.get(name, 0) for span in segments) for name in ("rows_read", "rows_changed_owner")]
    assert counted == list(workers.read) and 0 <= counted[1] <= counted[0] > 0
    shown = call("trace", path)
    assert "cores at work (of this process, without its workers)" in " ".join(shown.stdout.split())
    assert workers.read.summary in " ".join(shown.stdout.split())
    content = json.loads(call("trace", path, "--json").stdout)
    assert [content["rows_read_by_workers"], content["rows_changed_owner"]] == counted
    with oocbe.trace(path):
        oocbe.join_maximise(*tables, "e", output=tmp_path / "alone")
    assert "without its workers" not in call("trace", path).stdout


def test_a_solve_has_its_buckets(tmp_path):
    path = tmp_path / "t.json"
    with oocbe.trace(path):
        result = oocbe.solve(DAILY, order_seconds=0, backend="cpu")
    assert result.value == 2112
    buckets = [s for s in read_trace(path).spans if s.lane == ELIMINATION and s.name.startswith("bucket")]
    assert max(s.details["rows"] for s in buckets) == result.largest_message_rows
    assert sum(s.details["rows"] for s in buckets) >= result.total_rows
    assert {s.name for s in read_trace(path).spans if s.lane == ELIMINATION} >= {"search for orders", "backward pass"}


def test_a_run_that_fails_leaves_its_trace(tables, tmp_path):
    with pytest.raises(oocbe.UsageError), oocbe.trace(tmp_path / "t.json"):
        oocbe.join_maximise(*tables, "e", output=tables[0].path, memory="32MiB", backend="cpu")
    trace = read_trace(tmp_path / "t.json")
    assert (trace.is_whole, trace.error) == (True, "UsageError")


def test_solve_writes_a_trace_and_trace_reads_it(tmp_path):
    path = tmp_path / "t.json.gz"
    done = call("solve", DAILY, "--order-seconds", 0, "--quiet", "--trace", path)
    assert (done.exit_code, done.stdout) == (0, "optimal 2112\n")
    shown = call("trace", path, "--png", tmp_path / "t.png")
    assert shown.exit_code == 0, shown.output
    assert "oocbe solve daily.spot" in shown.stdout
    assert "bound by" in shown.stdout
    assert "elimination: busy" in shown.stdout
    content = json.loads(call("trace", path, "--json").stdout)
    assert content["is_whole"]
    lanes = {lane["name"] for lane in content["lanes"]}
    assert {"elimination", "kernels"} <= lanes <= {"elimination", "kernels", "device to host"}  # where there is one
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("task", ["count", "kbest"])
def test_tasks_write_a_trace(tmp_path, task):
    done = call("solve", "examples/grid.wcsp", "--task", task, "--order-seconds", 0, "--trace", tmp_path / "t.json")
    assert done.exit_code == 0, done.output
    assert read_trace(tmp_path / "t.json").about["about"] == f"oocbe solve grid.wcsp --task {task}"


def test_stress_writes_a_trace_of_the_operator(tmp_path):
    path = tmp_path / "t.json"
    done = call(
        "stress", "--rows", "3e4", "--memory", "32MiB", "--workdir", tmp_path, "--backend", "cpu", "--trace", path
    )
    assert done.exit_code == 0, done.output
    assert {s.lane for s in read_trace(path).spans} == {ELIMINATION, STREAM, CALLER, READER, KERNELS, WRITER}


def test_the_problem_is_not_overwritten(tmp_path):
    problem = tmp_path / "daily.spot"
    with open(DAILY, "rb") as file:  # noqa: PTH123
        problem.write_bytes(file.read())
    done = call("solve", problem, "--trace", problem)
    assert done.exit_code == 2
    assert "the problem itself" in done.stderr
    assert oocbe.read(problem).variables


def test_wrong_use(tmp_path):
    (tmp_path / "x").write_text("x")
    assert call("trace", tmp_path / "x").exit_code == 2
    assert call("trace", tmp_path / "missing").exit_code == 2
    with oocbe.trace(tmp_path / "empty.json"):
        pass
    assert call("trace", tmp_path / "empty.json").exit_code == 0
    done = call("trace", tmp_path / "empty.json", "--png", tmp_path / "t.png")
    assert done.exit_code == 2
    assert "nothing to draw" in done.stderr
    call("solve", DAILY, "--order-seconds", 0, "--trace", tmp_path / "t.json")
    assert call("trace", tmp_path / "t.json", "--png", tmp_path / "t.unknown").exit_code == 2


def test_dropped_spans_are_said(tmp_path, monkeypatch):
    from oocbe.runtime.tracing import trace_file as session

    monkeypatch.setattr(session, "Recorder", lambda sink: recorder(sink, most_spans=20))
    from oocbe.runtime.tracing.recorder import Recorder as recorder

    path = tmp_path / "t.json"
    done = call("solve", DAILY, "--order-seconds", 0, "--trace", path)
    assert done.exit_code == 0
    assert "lacks" in done.stderr
    assert "spans dropped" in call("trace", path).stdout
    assert len(read_trace(path).spans) == 20
