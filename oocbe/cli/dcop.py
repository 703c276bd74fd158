"""``oocbe dcop``: agents that pass messages find the optimum of a distributed problem, or bounds on it."""

from __future__ import annotations

import json as json_format
import math
import os
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oocbe.cli.flags import ProblemFile, SolutionFlag, command, load_model
from oocbe.cli.output import beside_answer, defer_signals, print_answer, seconds, warn
from oocbe.cli.progress import observer_for
from oocbe.errors import UsageError
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.formats import Model
    from oocbe.model.dcop import Dcop
    from oocbe.model.results.dcop_result import DcopResult, UtilMessage

_Texts = list[str] | None
_ignored = partial(typer.Option, help="pyDcop's, about its runtime: ignored, with a warning.")


@command("dcop", is_partial=True)
def dcop(
    file: ProblemFile,
    z: Annotated[
        int | None,
        typer.Option(metavar="INTEGER", help="ADPOP: maximum variables of a mini-bucket, with the agent's own."),
    ] = None,
    heuristic: Annotated[
        str, typer.Option(help="Pseudo-tree: auto, max-degree, min-degree, max-ancestors, min-fill, weighted-min-fill.")
    ] = "auto",
    root: Annotated[str | None, typer.Option(metavar="VARIABLE", help="Root of the pseudo-tree.")] = None,
    metrics: Annotated[Path | None, typer.Option(help="Write sizes and times of messages to this JSON file.")] = None,
    solution: SolutionFlag = None,
    algo: Annotated[
        str | None,
        typer.Option(
            "--algo", "-a", help="dpop: print pyDcop's result in JSON, as pydcop solve; and its options below."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write that JSON here, too.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", "-t", help="The time limit in seconds.")] = None,
    infinity: Annotated[float, typer.Option("--infinity", "-i", help="Cost that is a violation.")] = math.inf,
    distribution: Annotated[
        str | None, typer.Option("--distribution", "-d", help="oneagent: a variable each, whatever the hints in FILE.")
    ] = None,
    algo_params: Annotated[_Texts, _ignored("--algo_params", "-p")] = None,
    collect_on: Annotated[_Texts, _ignored("--collect_on", "-c")] = None,
    period: Annotated[_Texts, _ignored("--period")] = None,
    run_metrics: Annotated[_Texts, _ignored("--run_metrics")] = None,
    end_metrics: Annotated[_Texts, _ignored("--end_metrics")] = None,
    delay: Annotated[_Texts, _ignored("--delay")] = None,
    uiport: Annotated[_Texts, _ignored("--uiport", "-u")] = None,
    mode: Annotated[str, typer.Option("--mode", "-m", help="thread, or process: one a processor.")] = "thread",
    *,
    options: SolveOptions,
    format: str | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Solve FILE by DPOP, or bound it by ADPOP (--z): agents join tables and pass messages along a pseudo-tree.

    FILE is pyDcop's .yaml, FRODO's .xml, or any other problem, with one agent per variable. Exit code 0 if the optimum
    or bounds are found, 10 if FILE is infeasible, 20 if a limit was reached.
    """
    from oocbe.formats.files import write_bytes
    from oocbe.formats.solutions import write_assignment
    from oocbe.model.run_verb import read_and_work

    for flag, value, known in (("algo", algo, "dpop"), ("distribution", distribution, "oneagent")):
        if value not in (None, known):
            raise UsageError(
                f"--{flag} {value}: of pyDcop's, oocbe has {known}; hints in FILE distribute variables, too"
            )
    unused = {"algo_params": algo_params, "collect_on": collect_on, "period": period, "run_metrics": run_metrics}
    unused |= {"end_metrics": end_metrics, "delay": delay, "uiport": uiport}
    if names := ", ".join(f"--{name}" for name, given in unused.items() if given):
        warn(f"ignored: {names}; DPOP has no parameters, and options of pyDcop's runtime have no use here")
    if mode not in ("thread", "process"):
        raise UsageError(f"--mode {mode}: agents are in thread or process")
    if mode == "process" and options.workers is None:
        options = replace(options, workers=str(len(os.sched_getaffinity(0))))
    workers = 0 if options.workers is None else options.number_of_workers
    time_limit = options.time_limit if timeout is None else timeout
    options = replace(options, workers=None, time_limit=time_limit)  # the workers of agents do not share buckets
    if z is not None and z < 1:
        raise UsageError(f"--z {z}: the variables of a mini-bucket are at least 1")
    read: list[Dcop] = []

    def work(model: Model) -> DcopResult:
        from oocbe.dcop.protocol import as_dcop, run

        defer_signals()
        read.append(as_dcop(model, file) if distribution is None else as_dcop(model, file).one_agent_each())
        return run(read[0], options, z, None, workers, observer, heuristic, root)

    with closing(observer_for(quiet, verbose)) as observer:
        _, result = read_and_work(file, lambda path: load_model(path, format), work, options.time_limit)
    labels = result.labels
    if solution is not None and labels is not None:  # before anything is printed, which may fail
        with beside_answer(solution):
            write_assignment(labels, result.problem, result.semiring, result.value, solution, result.assignment)
    if metrics is not None:
        text = json_format.dumps(result.to_json(with_messages=True), indent=2, allow_nan=False)
        with beside_answer(metrics):
            write_bytes(metrics, f"{text}\n".encode())
    if algo is not None:
        from oocbe.formats.pydcop import result_of

        text = json_format.dumps(result_of(read[0], result, infinity), indent="  ", sort_keys=True)
        if output is not None:
            with beside_answer(output):
                write_bytes(output, text.encode())
        typer.echo(text)
    else:
        print_answer(result.to_json, _rows(result), result.status if result.value is None else result.value)
    if solution is not None and labels is None:
        warn(f"{result.status}; there is no assignment to write to {solution}")
    return result.exit_code


def _rows(result: DcopResult) -> list[tuple[str, object]]:
    found, took = result.metrics, result.seconds
    largest = found.largest_message
    sent = f"{found.util_messages} UTIL and {found.value_messages} VALUE messages"
    if found.messages_between_agents < found.util_messages:
        sent += f", {found.messages_between_agents} UTIL messages between different agents"
    tree = f"{found.trees} by {found.heuristic}, width {found.width}, height {found.height}" if found.heuristic else ""
    phases = ", ".join(
        f"{phase} {seconds(took[phase])}" for phase in ("read", "tree", "util", "value") if phase in took
    )
    return [
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
    ]


def _line(message: UtilMessage) -> str:
    return (
        f"{message.sender} to {message.receiver}, {message.cells:,} cells ({message.complete_bytes:,} bytes complete), "
        f"{message.rows:,} rows in {message.stored_bytes:,} bytes"
    )
