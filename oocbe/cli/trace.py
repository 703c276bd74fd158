"""``oocbe trace``: analysis of the trace of a run.

``oocbe simulate``: the estimated time of a run on many workers, from measured times of its pieces.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oocbe.cli.flags import command
from oocbe.cli.output import beside_answer, print_answer, seconds, text_of_rows
from oocbe.errors import UsageError
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.execution.schedule import Simulated, Stage
    from oocbe.runtime.tracing.summary import TraceSummary, Work
    from oocbe.runtime.tracing.trace_file import Trace

MOST_WORKS = 8
"""Maximum number of printed kinds of work of a lane; ``--json`` has all."""


@command("trace")
def trace(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace written by --trace.")],
    png: Annotated[
        Path | None, typer.Option(help="Also draw the timeline; needs matplotlib (the extra trace).")
    ] = None,
) -> None:
    """Summarise a trace: how busy each lane was, the overlap of lanes, and the bottleneck."""
    from oocbe.runtime.tracing.summary import summarise
    from oocbe.runtime.tracing.trace_file import read_trace

    found = read_trace(file)
    summary = summarise(found)
    if png is not None:
        from oocbe.runtime.tracing.picture import draw

        with beside_answer(png):
            draw(found, png)
    lines = [text_of_rows(_facts(found, summary))]
    for lane in summary.lanes:
        parallel = f", {lane.row_seconds / lane.busy:.1f} at a time" if lane.rows > 1 and lane.busy else ""
        lines.append(f"\n{lane.name}: busy {lane.share:.0%}, {seconds(lane.busy)}{parallel}")
        lines += [f"  {_line(work)}" for work in lane.works[:MOST_WORKS]]
    print_answer(lambda: _as_json(found, summary), "\n".join(lines), summary.bound_by)


def _facts(found: Trace, summary: TraceSummary) -> list[tuple[str, object]]:
    from oocbe.model.results.progress_curve import RowsRead
    from oocbe.runtime.tracing.recorder import WORKER

    ended = "" if found.is_whole else "the process was killed: the trace ends with the last block that it wrote"
    if found.error is not None:
        ended = f"ended by {found.error}"
    dropped = ""
    if found.dropped and found.dropped_from is not None:
        dropped = f"{found.dropped:,}, from {seconds(found.dropped_from)} on; figures are of the time before"
    working = [(count, spent) for count, spent in enumerate(summary.at_once) if spent > 0]
    alone = " (of this process, without its workers)" if any(lane.name == WORKER for lane in summary.lanes) else ""
    at_once = ", ".join(f"{count}: {spent / summary.seconds:.0%}" for count, spent in working if summary.seconds)
    return [
        ("run", found.about.get("about")),
        ("ended", ended),
        ("total", seconds(summary.seconds)),
        ("spans dropped", dropped),
        ("bound by", summary.bound_by),
        (
            "processor",
            None if summary.cores_busy is None else f"{summary.cores_busy:.1f} of {summary.cores} cores at work{alone}",
        ),
        ("overlapped", f"{summary.overlapped:.0%} of the time in which anything worked"),
        ("lanes at once", at_once),
        ("workers", RowsRead(summary.rows_read, summary.rows_changed_owner).summary),
    ]


def _line(work: Work) -> str:
    rate = f", {work.bytes / 1e9:.2f} GB at {work.bytes / 1e9 / work.seconds:.2f} GB/s" if work.bytes else ""
    return f"{'(waiting) ' if work.is_wait else ''}{work.name}: {seconds(work.seconds)} in {work.count:,}{rate}"


def _as_json(found: Trace, summary: TraceSummary) -> dict[str, object]:
    return {
        "schema_version": 1,
        "about": found.about.get("about"),
        **{name: getattr(found, name) for name in ("is_whole", "error", "dropped")},
        **{name: getattr(summary, name) for name in ("seconds", "cores", "cores_busy", "bound_by")},
        "busiest": None if summary.busiest is None else summary.busiest.name,
        "overlapped": summary.overlapped,
        "seconds_at_once": summary.at_once,
        "rows_read_by_workers": summary.rows_read,
        "rows_changed_owner": summary.rows_changed_owner,
        "lanes": [asdict(lane) for lane in summary.lanes],
    }


PIECES_A_SEGMENT = 8
"""Median number of pieces of a synthetic segment, so that shorter ones can be split, too."""


@command("simulate")
def simulate(
    pieces: Annotated[
        Path | None, typer.Option(metavar="TRACE", help="A trace written by --trace, whose pieces are scheduled.")
    ] = None,
    times: Annotated[int, typer.Option(metavar="INTEGER", help="Repetitions of each piece.")] = 1,
    segments: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Instead of a trace: number of segments per worker.")
    ] = None,
    segment_seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Longest segment (median).")] = 4.0,
    straggling: Annotated[
        float, typer.Option(metavar="NUMBER", help="95th percentile of equal segments, over their median.")
    ] = 3.0,
    lost: Annotated[float, typer.Option(metavar="SHARE", help="Share of the workers that fail permanently.")] = 0.01,
    *,
    options: SolveOptions,
) -> None:
    """Simulate a run on --workers, with stragglers and failures, and print its efficiency."""
    from oocbe.execution.schedule import Conditions
    from oocbe.execution.schedule import simulate as run

    conditions = Conditions(
        segment_seconds, min(0.5, segment_seconds), straggling=straggling, lost=lost, seed=options.seed
    )
    workers = options.number_of_workers
    if (pieces is None) == (segments is None):
        raise UsageError("give what to schedule: a trace by --pieces, or --segments")
    if times < 1:
        raise UsageError(f"--times must be at least 1, not {times}")
    stages = _stages(pieces, times) if pieces is not None else _invented(workers, segments or 0.0, segment_seconds)
    found = run(stages, workers, conditions)
    content = {"schema_version": 1, **asdict(found), "efficiency": found.efficiency, "conditions": asdict(conditions)}
    print_answer(lambda: content, _simulated_facts(found, stages), f"{found.efficiency:.3f}")


def _stages(path: Path, times: int) -> list[Stage]:
    from oocbe.execution.schedule import repeated, stages_of
    from oocbe.runtime.tracing.trace_file import read_trace

    return repeated(stages_of(read_trace(path)), times)


def _invented(workers: int, segments: float, segment_seconds: float) -> list[Stage]:
    import numpy as np

    from oocbe.execution.schedule import Stage

    count = round(segments * workers * PIECES_A_SEGMENT)
    if count < 1:
        raise UsageError(f"--segments {segments}: this is less than one piece of work")
    return [Stage("segments", np.full(count, segment_seconds / PIECES_A_SEGMENT))]


def _simulated_facts(found: Simulated, stages: list[Stage]) -> list[tuple[str, object]]:
    serial = sum(stage.serial for stage in stages)
    return [
        ("workers", f"{found.workers:,}"),
        ("efficiency", f"{found.efficiency:.3f}"),
        ("time", seconds(found.seconds)),
        ("work", f"{seconds(found.work)} of one worker, in {found.segments:,} segments of {len(stages):,} stages"),
        ("serial", seconds(serial) if serial else None),
        ("critical path", seconds(found.critical_path)),
        ("workers lost", f"{found.lost:,}; {seconds(found.repeated)} of work with them" if found.lost else None),
    ]
