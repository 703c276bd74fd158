"""Simulated schedules against closed forms, and against a simulation that moves the clock tick by tick."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.errors import ResourceError, UsageError
from oocbe.execution import schedule
from oocbe.execution.schedule import (
    Conditions,
    Stage,
    critical_path,
    predicted_stage,
    repeated,
    simulate,
    stages_of,
)
from oocbe.runtime.tracing.recorder import ELIMINATION, STREAM, WORKER, Span
from oocbe.runtime.tracing.trace_file import Trace, read_trace
from tests.helpers.effort import examples
from tests.helpers.small_problems import clique

PIECE_BY_PIECE = Conditions(segment_seconds=1e-9, least_seconds=1e-9, dispatch=0.0)
"""Every piece is a segment of its own."""


def stage(*seconds, serial=0.0, after=()):
    return Stage("stage", np.array(seconds, dtype=np.float64), serial, after)


@st.composite
def graphs(draw):
    """Stages of whole seconds, each after some of those before."""
    stages = []
    for number in range(draw(st.integers(1, 5))):
        after = tuple(draw(st.sets(st.integers(0, number - 1), max_size=2))) if number else ()
        pieces = draw(st.lists(st.integers(1, 6), max_size=6))
        stages.append(stage(*pieces, serial=float(draw(st.integers(0, 3))), after=after))
    return stages


@given(graphs())
def test_one_worker_takes_the_sum(stages):
    found = simulate(stages, 1, PIECE_BY_PIECE)
    assert found.seconds == found.work == sum(s.seconds for s in stages)
    assert found.efficiency == 1


@given(graphs())
def test_enough_workers_take_the_critical_path(stages):
    most = sum(len(s.pieces) + 1 for s in stages)
    assert simulate(stages, most, PIECE_BY_PIECE).seconds == critical_path(stages) == longest_path(stages)


def longest_path(stages):
    """Over all paths through the stages, each by its longest piece."""

    def from_stage(number):
        followers = [n for n, s in enumerate(stages) if number in s.after]
        own = stages[number].serial + max(stages[number].pieces, default=0.0)
        return own + max(map(from_stage, followers), default=0.0)

    return max(from_stage(n) for n in range(len(stages)))


def by_ticks(stages, workers, dying):
    """Seconds of a run, a second at a time; ``dying``: the second from which on a worker is no more."""
    pending = [[("serial", s.serial)] if s.serial else [("piece", p) for p in s.pieces] for s in stages]
    at_work = [None] * workers
    done = set()
    clock = 0
    idle = list(range(workers))
    end_stages(stages, pending, at_work, done)
    while len(done) < len(stages):
        assert clock < 10_000
        for number, s in enumerate(stages):
            if number in done or not set(s.after) <= done:
                continue
            while idle and pending[number]:
                worker = idle.pop(0)
                if dying.get(worker, math.inf) > clock:
                    kind, seconds = pending[number].pop(0)
                    at_work[worker] = [number, kind, seconds, seconds]
        clock += 1
        ended, lost = [], []
        for worker, work in enumerate(at_work):
            if work is None:
                continue
            work[3] -= 1
            if work[3] == 0:
                ended.append((worker, work))
            elif dying.get(worker, math.inf) <= clock:
                lost.append((work[0], work[1], work[2]))
                at_work[worker] = None
        for number, kind, seconds in reversed(lost):
            pending[number].insert(0, (kind, seconds))
        for worker, (number, kind, _, _) in ended:
            at_work[worker] = None
            idle = sorted([*idle, worker])
            if kind == "serial":
                pending[number] = [("piece", p) for p in stages[number].pieces]
        end_stages(stages, pending, at_work, done)
    return clock


def end_stages(stages, pending, at_work, done):
    """Enter what has ended: stages without pieces end as soon as those before them, be it at the beginning."""
    busy = {work[0] for work in at_work if work is not None}
    moved = True
    while moved:
        moved = False
        for number, s in enumerate(stages):
            if number not in done | busy and not pending[number] and set(s.after) <= done:
                done.add(number)
                moved = True


@settings(max_examples=examples(200))
@given(graphs(), st.integers(1, 4))
def test_list_scheduling_is_that_of_the_clock(stages, workers):
    if sum(s.seconds for s in stages):
        assert simulate(stages, workers, PIECE_BY_PIECE).seconds == pytest.approx(by_ticks(stages, workers, {}))


@pytest.mark.parametrize("seed", range(examples(48)))
def test_lost_workers_are_those_of_the_clock(seed):
    """Of six workers, two die at a whole second; what they were at is begun again by others at once."""
    random = np.random.default_rng(seed)
    stages = [stage(*random.integers(1, 9, 15)), stage(*random.integers(1, 9, 9), serial=2.0, after=(0,))]
    run = schedule._Run(stages, 6, Conditions(1e-9, 1e-9, dispatch=0.0, notice=0.0))
    dying = {int(w): int(random.integers(1, 12)) for w in random.choice(6, 2, replace=False)}
    run._ends = [float(dying.get(worker, math.inf)) for worker in range(6)]
    found = run.run()
    assert found.seconds == pytest.approx(by_ticks(stages, 6, dying))
    assert found.work == sum(s.seconds for s in stages)


@pytest.mark.parametrize(("segments", "floor"), [(40, 0.80), pytest.param(100, 0.92, marks=pytest.mark.slow)])
def test_a_thousand_workers_with_stragglers_and_failures(segments, floor):
    """Segments of 4 s at the median, the 95th percentile three times that, one worker in a hundred lost."""
    work = stage(*np.full(1000 * segments * 8, 0.5))
    found = simulate([work], 1000, Conditions(4.0, straggling=3.0, lost=0.01, seed=segments))
    assert found.lost == 10
    assert floor <= found.efficiency < 1


def test_stragglers_are_lognormal():
    work = stage(*np.ones(20_000))
    found = simulate([work], 1, Conditions(1.0, 1.0, straggling=3.0, dispatch=0.0))
    assert found.segments == 20_000
    mean = math.exp((math.log(3) / 1.6448536) ** 2 / 2)
    assert found.work / 20_000 == pytest.approx(mean, rel=0.03)


def test_a_scheduler_hands_out_one_after_the_other():
    found = simulate([stage(*np.full(100, 0.001))], 100, Conditions(0.001, 0.001, dispatch=1.0))
    assert found.seconds == pytest.approx(100.001)


def test_no_worker_left():
    with pytest.raises(ResourceError, match="no worker of 5 is left"):
        simulate([stage(*np.ones(100))], 5, Conditions(lost=1.0))


@pytest.mark.parametrize(
    "wrong",
    [{"segment_seconds": 0}, {"least_seconds": 9}, {"straggling": 0.5}, {"lost": 2}, {"share": 0}, {"dispatch": -1}],
)
def test_conditions_that_make_no_sense(wrong):
    with pytest.raises(UsageError):
        Conditions(**wrong)
    with pytest.raises(UsageError):
        simulate([], 0)
    with pytest.raises(UsageError, match="must come before"):
        simulate([stage(1, after=(0,))], 1)


def span(lane, name, begin, end, row=0, is_wait=False, **details):
    return Span(lane, row, name, round(begin * 1e9), round(end * 1e9), is_wait, details)


def test_stages_of_a_trace(tmp_path):
    spans = [
        span(ELIMINATION, "bucket 1", 1, 3, variable="a"),
        span(ELIMINATION, "bucket 2", 3, 10, variable="b"),
        span(STREAM, "compute", 4, 6, row=0),
        span(STREAM, "compute", 5, 9, row=1),
        span(STREAM, "wait to hand over", 6, 9, row=0, is_wait=True),
    ]
    one, two, rest = stages_of(Trace(tmp_path / "trace", spans, seconds=12.0))
    assert (one.name, one.pieces.tolist(), one.serial, one.after) == ("a", [2.0], 1.0, ())
    assert (two.name, two.pieces.tolist(), two.serial, two.after) == ("b", [2.0, 4.0], 2.0, (0,))
    assert (rest.pieces.tolist(), rest.serial, rest.after) == ([], 2.0, (1,))
    [all_pieces] = stages_of(Trace(tmp_path / "trace", spans[2:], seconds=12.0))
    assert (all_pieces.pieces.tolist(), all_pieces.serial) == ([2.0, 4.0], 7.0)
    assert repeated([two], 3)[0].pieces.tolist() == [2.0, 4.0] * 3
    with pytest.raises(UsageError, match="no bucket and no piece"):
        stages_of(Trace(tmp_path / "trace", [], seconds=1.0))


def test_segments_of_workers_are_pieces(tmp_path):
    """What streams of this process had at work meanwhile is part of the segments that it has done itself."""
    spans = [
        span(STREAM, "compute", 0, 1),
        span(WORKER, "segment", 1, 3),
        span(STREAM, "compute", 1.5, 2.5),
        span(WORKER, "segment", 3, 7, row=1),
        span(WORKER, "segment", 4, 8, row=2),
        span(STREAM, "compute", 9, 11),
    ]
    [stage] = stages_of(Trace(tmp_path / "trace", spans, seconds=12.0))
    assert (stage.pieces.tolist(), stage.serial) == ([1.0, 2.0, 4.0, 4.0, 2.0], 2.0)


def test_a_predicted_stage():
    made = predicted_stage("x", 1e6, 1e-6, 300_000, ())
    assert len(made.pieces) == 4 and made.seconds == pytest.approx(1.0)


def test_the_command_on_a_trace_of_a_run_in_pieces(tmp_path):
    path = tmp_path / "run.json.gz"
    with oocbe.trace(path):
        oocbe.solve(clique(6, 4), bounds="none", order_seconds=0, backend="cpu", piece_rows=50, tables="incomplete")
    stages = stages_of(read_trace(path))
    assert max(len(s.pieces) for s in stages) > 1
    arguments = ["simulate", "--workers", "1", "--pieces", str(path), "--straggling", "1", "--lost", "0", "--json"]
    answer = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert answer["work"] == pytest.approx(sum(s.seconds for s in stages))
    assert answer["efficiency"] <= 1 and answer["critical_path"] == pytest.approx(critical_path(stages))


@pytest.mark.parametrize(
    "wrong", [[], ["--segments", "1", "--pieces", "x"], ["--segments", "0"], ["--segments", "1", "--times", "0"]]
)
def test_the_command_refuses(wrong):
    found = CliRunner().invoke(app, ["simulate", "--workers", "2", *wrong])
    assert found.exit_code == 2


def test_the_command_without_a_trace():
    found = CliRunner().invoke(app, ["simulate", "--workers", "10", "--segments", "20"])
    assert found.exit_code == 0 and "efficiency" in found.stdout
