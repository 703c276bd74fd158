"""``oocbe bound``: bounds on the optimum from both sides, by mini-bucket elimination."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from oocbe.cli.flags import ProblemFile, SolutionFlag, command, load
from oocbe.cli.output import beside_answer, defer_signals, print_answer, seconds, warn
from oocbe.cli.progress import observer_for
from oocbe.errors import UsageError
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.model.problem import Problem
    from oocbe.model.results.bound_result import BoundOfZ, BoundResult


@command("bound", is_partial=True)
def bound(
    file: ProblemFile,
    z: Annotated[
        list[str] | None,
        typer.Option(help="Maximum variables of a mini-bucket, including the eliminated one; repeatable; or auto."),
    ] = None,
    partition: Annotated[
        str,
        typer.Option(
            help="Divide buckets by scope (sizes of scopes), content (losses sampled), or auto: by content where costs "
            "are shifted in complete tables."
        ),
    ] = "auto",
    cost_shifting: Annotated[
        bool, typer.Option("--cost-shifting", help="Shift costs between the mini-buckets of a bucket.")
    ] = False,
    solution: SolutionFlag = None,
    *,
    options: SolveOptions,
    evidence: list[str] | None,
    format: str | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Bound the optimum of FILE by mini-bucket elimination, and find an assignment.

    Without --z, oocbe takes the largest z whose messages are predicted to fit --memory. If the greedy backward pass
    finds no assignment, local search continues for --incumbent-seconds. At the time limit before the first message,
    the bound is the sum of the functions' minima (z = 0). Exit code 0, 10 if the problem is infeasible, or 20 with
    z = 0.
    """
    from oocbe.formats.solutions import write_assignment
    from oocbe.model.run_verb import read_and_work

    limits = [_limit(text) for text in z or ["auto"]]

    def work(problem: Problem) -> BoundResult:
        from oocbe.bounds.mini_buckets.mini_buckets_bound import bound as run

        defer_signals()
        return run(problem, options, limits, partition, cost_shifting, observer)

    with closing(observer_for(quiet, verbose)) as observer:
        _, result = read_and_work(file, lambda path: load(path, format, evidence), work, options.time_limit)
    best = result.best
    labels = result.labels(best)
    if solution is not None and best is not None and labels is not None:  # before anything is printed, which may fail
        with beside_answer(solution):
            write_assignment(labels, result.problem, result.semiring, best.incumbent, solution, best.assignment)
    lines = "\n".join(f"{entry.z} {entry.claimed_bound} {entry.claimed_value}" for entry in result.entries)
    print_answer(result.to_json, _rows(result), lines)
    if solution is not None and labels is None:
        warn(f"{result.status}; there is no assignment to write to {solution}")
    return result.exit_code


def _limit(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--z {text}: neither auto nor a number of variables, at least 1")
    return int(text)


def _rows(result: BoundResult) -> list[tuple[str, object]]:
    shifting = " with cost shifting" if result.cost_shifting else ""
    return [
        ("problem", result.problem),
        ("status", result.status),
        ("width", result.width),
        ("mini-buckets", f"by {result.partition}{shifting}"),
        *((f"z = {entry.z}", _line(entry)) for entry in result.entries),
        ("time", seconds(result.seconds["total"])),
        *(("note", text) for text in result.notes),
    ]


def _line(entry: BoundOfZ) -> str:
    took = seconds(entry.seconds["total"])
    rows = f"{entry.largest_message_rows:,} rows in the largest message"
    if entry.status == "infeasible":
        return f"infeasible, {rows}, {took}"
    bound, value = entry.claimed_bound, entry.claimed_value
    what = "" if entry.log_bound is None else " (natural logarithms)"
    found = "no assignment found" if value is None else f"assignment {value}, gap {entry.gap}"
    return f"bound {bound}, {found}{what}, {entry.split_buckets} buckets divided, {rows}, {took}"
