"""``oocbe bound``: bounds on the optimum from both sides, by mini-bucket elimination."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oocbe.cli.failures import guarded
from oocbe.cli.flags import (
    BackendFlag,
    DebugFlag,
    DeviceMemoryFlag,
    EvidenceFlag,
    FormatFlag,
    IncumbentSecondsFlag,
    JsonFlag,
    MaxDiskFlag,
    MemoryFlag,
    OrderFlag,
    OrderSecondsFlag,
    ProblemFile,
    SeedFlag,
    SemiringFlag,
    TablesFlag,
    TimeLimitFlag,
    check_targets,
    load,
    options_from,
)
from oocbe.cli.output import defer_signals, note, print_json, print_rows, seconds
from oocbe.cli.progress import observer_for

if TYPE_CHECKING:
    from oocbe.model.results.bound_result import BoundOfZ, BoundResult


@guarded
def bound(
    file: ProblemFile,
    json: JsonFlag = False,
    z: Annotated[
        list[str] | None,
        typer.Option(
            "--z", help="Most variables of a mini-bucket, the eliminated one included; may be repeated; or auto."
        ),
    ] = None,
    partition: Annotated[
        str,
        typer.Option(
            "--partition",
            help="Divide buckets by scope (sizes of scopes), content (losses sampled), or auto: by content where costs "
            "are shifted in complete tables.",
        ),
    ] = "auto",
    cost_shifting: Annotated[
        bool, typer.Option("--cost-shifting", help="Shift costs between the mini-buckets of a bucket.")
    ] = False,
    solution: Annotated[Path | None, typer.Option("--solution", help="Write the best assignment to this file.")] = None,
    order: OrderFlag = None,
    order_seconds: OrderSecondsFlag = None,
    seed: SeedFlag = None,
    memory: MemoryFlag = None,
    max_disk: MaxDiskFlag = None,
    semiring: SemiringFlag = None,
    tables: TablesFlag = None,
    backend: BackendFlag = None,
    device_memory: DeviceMemoryFlag = None,
    incumbent_seconds: IncumbentSecondsFlag = None,
    time_limit: TimeLimitFlag = None,
    evidence: EvidenceFlag = None,
    format: FormatFlag = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress; print bound and value only.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print a line a bucket.")] = False,
    debug: DebugFlag = False,
) -> int:
    """Bound the optimum of FILE by mini-bucket elimination, and find an assignment.

    Without --z, the largest z is taken whose messages are predicted to fit --memory. Where the greedy backward pass
    ends in dead ends, local search looks for an assignment for --incumbent-seconds. Ends with 0, or 10 when the problem
    is infeasible.
    """
    given = dict(locals())  # the parameters only, as there are no other local variables yet
    from oocbe.api.facade import with_reading
    from oocbe.formats.solutions.solution_file import write_assignment
    from oocbe.runtime.deadline import Deadline

    options = options_from(given)
    check_targets(file, solution=solution)
    limits = [_limit(text) for text in z or ["auto"]]
    begin = time.perf_counter()
    with observer_for(quiet, verbose) as observer, Deadline(options.time_limit):
        problem = load(file, format, evidence)
        reading = time.perf_counter() - begin
        from oocbe.bounds.mini_buckets.mini_buckets_bound import bound as run

        defer_signals()
        result = with_reading(run(problem, options, limits, partition, cost_shifting, observer), reading)
    best = result.best
    labels = result.labels(best)
    if solution is not None and best is not None and labels is not None:  # before anything is printed, which may fail
        write_assignment(labels, result.problem, result.semiring, best.incumbent, solution, best.assignment)
    if json:
        print_json(result.to_json())
    elif quiet:
        for entry in result.entries:
            typer.echo(f"{entry.z} {entry.claimed_bound} {entry.claimed_value}")
    if not quiet:
        _print(result, err=json)
    if solution is not None and labels is None:
        note(f"oocbe: {result.status}; there is no assignment to write to {solution}")
    return result.exit_code


def _limit(text: str) -> int | str:
    from oocbe.errors import UsageError

    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--z {text}: neither auto nor a number of variables, at least 1")
    return int(text)


def _print(result: BoundResult, err: bool) -> None:
    shifting = " with cost shifting" if result.cost_shifting else ""
    print_rows(
        [
            ("problem", result.problem),
            ("status", result.status),
            ("width", result.width),
            ("mini-buckets", f"by {result.partition}{shifting}"),
            *((f"z = {entry.z}", _line(entry)) for entry in result.entries),
            ("time", seconds(result.seconds["total"])),
            *(("note", text) for text in result.notes),
        ],
        err=err,
    )


def _line(entry: BoundOfZ) -> str:
    took = seconds(entry.seconds["total"])
    rows = f"{entry.largest_message_rows:,} rows in the largest message"
    if entry.status == "infeasible":
        return f"infeasible, {rows}, {took}"
    bound, value = entry.claimed_bound, entry.claimed_value
    what = "" if entry.log_bound is None else " (natural logarithms)"
    found = "no assignment found" if value is None else f"assignment {value}, gap {entry.gap}"
    return f"bound {bound}, {found}{what}, {entry.split_buckets} buckets divided, {rows}, {took}"
