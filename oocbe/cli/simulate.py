"""``oocbe simulate``: the estimated time of a run on many workers, from measured times of its pieces."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oocbe.cli.flags import command
from oocbe.cli.output import print_answer, seconds
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.execution.schedule import Simulated, Stage

PIECES_A_SEGMENT = 8
"""Median number of pieces of a synthetic segment, so that shorter ones can be split, too."""


@command("simulate")
def simulate(
    pieces: Annotated[
        Path | None,
        typer.Option("--pieces", metavar="TRACE", help="A trace written by --trace, whose pieces are scheduled."),
    ] = None,
    times: Annotated[int, typer.Option("--times", metavar="INTEGER", help="Repetitions of each piece.")] = 1,
    segments: Annotated[
        float | None,
        typer.Option("--segments", metavar="NUMBER", help="Instead of a trace: number of segments per worker."),
    ] = None,
    segment_seconds: Annotated[
        float, typer.Option("--segment-seconds", metavar="SECONDS", help="Longest segment (median).")
    ] = 4.0,
    straggling: Annotated[
        float,
        typer.Option("--straggling", metavar="NUMBER", help="95th percentile of equal segments, over their median."),
    ] = 3.0,
    lost: Annotated[
        float, typer.Option("--lost", metavar="SHARE", help="Share of the workers that fail permanently.")
    ] = 0.01,
    *,
    options: SolveOptions,
) -> None:
    """Simulate a run on --workers, with stragglers and failures, and print its efficiency."""
    from oocbe.errors import UsageError
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
    print_answer(lambda: content, _facts(found, stages), f"{found.efficiency:.3f}")


def _stages(path: Path, times: int) -> list[Stage]:
    from oocbe.execution.schedule import repeated, stages_of
    from oocbe.runtime.tracing.trace_file import read_trace

    return repeated(stages_of(read_trace(path)), times)


def _invented(workers: int, segments: float, segment_seconds: float) -> list[Stage]:
    import numpy as np

    from oocbe.errors import UsageError
    from oocbe.execution.schedule import Stage

    count = round(segments * workers * PIECES_A_SEGMENT)
    if count < 1:
        raise UsageError(f"--segments {segments}: this is less than one piece of work")
    return [Stage("segments", np.full(count, segment_seconds / PIECES_A_SEGMENT))]


def _facts(found: Simulated, stages: list[Stage]) -> list[tuple[str, object]]:
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
