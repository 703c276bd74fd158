"""``oocbe dcop``: agents that pass messages find the optimum of a distributed problem, or bounds on it."""

from __future__ import annotations

import json as json_format
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oocbe.cli.failures import guarded
from oocbe.cli.flags import (
    BackendFlag,
    DebugFlag,
    DeviceMemoryFlag,
    FormatFlag,
    JsonFlag,
    MaxDiskFlag,
    MemoryFlag,
    ProblemFile,
    TablesFlag,
    TimeLimitFlag,
    check_targets,
    load_model,
    options_from,
)
from oocbe.cli.output import defer_signals, note, print_json, print_rows, seconds
from oocbe.cli.progress import observer_for

if TYPE_CHECKING:
    from oocbe.model.results.dcop_result import DcopResult, UtilMessage


@guarded
def dcop(
    file: ProblemFile,
    json: JsonFlag = False,
    z: Annotated[
        int | None,
        typer.Option("--z", metavar="INTEGER", help="ADPOP: most variables of a mini-bucket, an agent's own included."),
    ] = None,
    heuristic: Annotated[
        str,
        typer.Option(
            "--heuristic",
            help="Of the pseudo-tree: auto, max-degree, min-degree, max-ancestors, min-fill, weighted-min-fill.",
        ),
    ] = "auto",
    root: Annotated[str | None, typer.Option("--root", metavar="VARIABLE", help="Of the pseudo-tree.")] = None,
    workers: Annotated[
        int, typer.Option("--workers", metavar="INTEGER", help="Processes for the agents; 0: all in this one.")
    ] = 0,
    metrics: Annotated[
        Path | None, typer.Option("--metrics", help="Write what the messages took to this JSON file.")
    ] = None,
    solution: Annotated[Path | None, typer.Option("--solution", help="Write the assignment to this file.")] = None,
    memory: MemoryFlag = None,
    max_disk: MaxDiskFlag = None,
    tables: TablesFlag = None,
    backend: BackendFlag = None,
    device_memory: DeviceMemoryFlag = None,
    time_limit: TimeLimitFlag = None,
    format: FormatFlag = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress; print the value only.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print a line a message.")] = False,
    debug: DebugFlag = False,
) -> int:
    """Solve FILE by DPOP, or bound it by ADPOP (--z): agents join what they know and pass messages along a pseudo-tree.

    FILE is pyDcop's .yaml, FRODO's .xml, or any other problem, whose variables then have an agent each. Ends with 0
    where the optimum or bounds are found, 10 when FILE is infeasible, 20 when a limit was reached.
    """
    given = dict(locals())  # the parameters only, as there are no other local variables yet
    from oocbe.errors import UsageError
    from oocbe.formats.solutions.solution_file import write_assignment
    from oocbe.runtime.deadline import Deadline

    options = options_from(given | {"workers": None})  # the workers of agents do not share buckets
    if z is not None and z < 1:
        raise UsageError(f"--z {z}: the variables of a mini-bucket are at least 1")
    check_targets(file, solution=solution, metrics=metrics)
    begin = time.perf_counter()
    with observer_for(quiet, verbose) as observer, Deadline(options.time_limit):
        model = load_model(file, format)
        reading = time.perf_counter() - begin
        from oocbe.dcop.protocol import as_dcop, run, with_reading

        defer_signals()
        result = run(as_dcop(model, file), options, z, None, workers, observer, heuristic, root)
        result = with_reading(result, reading)
    labels = result.labels
    if solution is not None and labels is not None:  # before anything is printed, which may fail
        write_assignment(labels, result.problem, result.semiring, result.value, solution, result.assignment)
    if metrics is not None:
        from oocbe.formats.files import write_bytes

        text = json_format.dumps(result.to_json(with_messages=True), indent=2, allow_nan=False)
        write_bytes(metrics, f"{text}\n".encode())
    if json:
        print_json(result.to_json())
    elif quiet:
        typer.echo(result.status if result.value is None else result.value)
    if not quiet:
        _print(result, err=json)
    if solution is not None and labels is None:
        note(f"oocbe: {result.status}; there is no assignment to write to {solution}")
    return result.exit_code


def _print(result: DcopResult, err: bool) -> None:
    found, took = result.metrics, result.seconds
    largest = found.largest_message
    sent = f"{found.util_messages} UTIL and {found.value_messages} VALUE messages"
    if found.messages_between_agents < found.util_messages:
        sent += f", {found.messages_between_agents} UTIL messages between different agents"
    tree = f"{found.trees} by {found.heuristic}, width {found.width}, height {found.height}" if found.heuristic else ""
    phases = ", ".join(
        f"{phase} {seconds(took[phase])}" for phase in ("read", "tree", "util", "value") if phase in took
    )
    print_rows(
        [
            ("problem", result.problem),
            ("status", result.status),
            ("value", result.value),
            ("bound", None if result.status == "optimal" else result.bound),
            ("algorithm", "DPOP" if result.z is None else f"ADPOP with z = {result.z}"),
            ("agents", f"{found.agents:,} with {found.variables:,} variables"),
            ("pseudo-trees", tree),
            ("sent", sent),
            ("largest", "" if largest is None else _line(largest)),
            ("simulated", f"{seconds(found.simulated_seconds)} side by side, {seconds(found.work_seconds)} of work"),
            ("time", f"{seconds(took['total'])} ({phases})"),
            *(("note", text) for text in result.notes),
        ],
        err=err,
    )


def _line(message: UtilMessage) -> str:
    return (
        f"{message.sender} to {message.receiver}, {message.cells:,} cells ({message.complete_bytes:,} bytes complete), "
        f"{message.rows:,} rows in {message.stored_bytes:,} bytes"
    )
