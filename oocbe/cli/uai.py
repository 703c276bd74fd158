"""``oocbe uai``: the tasks of the UAI competitions with their files, anytime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oocbe.cli.flags import ProblemFile, command, load
from oocbe.cli.output import beside_answer, defer_signals, note, print_json, prints_json, seconds, text_of_rows
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.model.problem import Problem
    from oocbe.model.results.anytime_result import AnytimeResult

NONE = "-"
"""In place of a file: no evidence, or no query."""


@command("uai", is_partial=True)
def uai(
    file: ProblemFile,
    evidence: Annotated[str, typer.Argument(metavar="EVID", help="File of evidence; -: none.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="File of the variables of MMAP; -: none.")],
    task: Annotated[str, typer.Argument(metavar="TASK", help="PR, MAR, MAP or MMAP.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the result to this file.")
    ] = None,
    *,
    format: str | None,
    options: SolveOptions,
) -> int:
    """Answer a task of the UAI competitions for the network FILE, as well as the limits permit.

    PR: decimal logarithm of the partition function. MAR: marginals of all variables. MAP: best assignment. MMAP: best
    values of the variables in QUERY, the others summed out. At --time-limit, the answer is an estimate with the best
    bounds. The result is printed in the competitions' format, everything else on standard error.

    Exit code 0 if the answer is exact, 10 if every weight is 0, 20 for an estimate.
    """
    from oocbe.formats.files import read_bytes, write_plain
    from oocbe.formats.text import Text
    from oocbe.formats.uai import parse_query
    from oocbe.model.run_verb import read_and_work

    observed = None if evidence == NONE else [evidence]

    def work(problem: Problem) -> AnytimeResult:
        from oocbe.api.tasks.anytime import best_within_limits  # after reading: it loads the compiled loops

        wanted = () if query == NONE or task != "MMAP" else parse_query(Text(query, read_bytes(query)), problem)
        defer_signals()
        return best_within_limits(task, problem, [problem.variables[v].name for v in wanted], options)

    _, result = read_and_work(file, lambda path: load(path, format, observed), work, options.time_limit)
    text = result_text(result)
    if output is not None:
        with beside_answer(output):
            write_plain(output, text)
    if prints_json():
        print_json(result.to_json())
    else:
        typer.echo(text, nl=False)
    note(text_of_rows(_rows(result)))
    return result.exit_code


def result_text(result: AnytimeResult) -> str:
    """The result file of the competitions; decimal logarithms have the shortest text that gives the same number."""
    from oocbe.formats.solutions import line_of_logarithm, line_of_marginals, line_of_pairs, line_of_values, uai_text

    if result.task == "PR":
        line = line_of_logarithm(-float("inf") if result.value is None else result.value)
    elif result.task == "MAR":
        line = line_of_marginals(result.marginals)
    elif result.task == "MAP":
        line = line_of_values([(result.assignment or {}).get(v, 0) for v in range(len(result.variables))])
    else:
        line = line_of_pairs(result.assignment or {})
    return uai_text(result.task, [line])


def _rows(result: AnytimeResult) -> list[tuple[str, object]]:
    return [
        ("problem", result.problem),
        ("task", result.task),
        ("status", result.status),
        ("natural logarithm", result.value),
        ("bounds", None if result.status in ("exact", "infeasible") else f"{result.lower} to {result.upper}"),
        ("method", result.method),
        ("time", seconds(result.seconds["total"])),
        *(("note", text) for text in result.notes),
    ]
