"""``oocbe verify``: an independent judgement of an assignment against the original file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oocbe.cli.failures import guarded
from oocbe.cli.flags import DebugFlag, EvidenceFlag, FormatFlag, JsonFlag, ProblemFile, load
from oocbe.cli.output import print_json, print_rows
from oocbe.errors import EXIT_INFEASIBLE, EXIT_OPTIMAL, EXIT_USAGE


@guarded
def verify(
    file: ProblemFile,
    solution: Annotated[Path, typer.Argument(help="What solve wrote with --solution, or printed with --json.")],
    json: JsonFlag = False,
    evidence: EvidenceFlag = None,
    format: FormatFlag = None,
    debug: DebugFlag = False,
) -> int:
    """Judge the assignment in SOLUTION against FILE.

    It is evaluated without any part of the solver. Ends with 0 when it is feasible and worth what the file claims, 10
    when it violates something, 2 when its value is not the one claimed. Whether a better one exists is not looked into.
    """
    from oocbe.verification import read_solution, verify_solution

    verdict = verify_solution(load(file, format, evidence), read_solution(solution))
    if json:
        print_json(verdict.to_json())
    else:
        claimed, value = verdict.claimed_value, verdict.value
        print_rows(
            [
                ("verdict", "accepted" if verdict.accepted else "rejected"),
                ("value", "none, the assignment is infeasible" if value is None else value),
                ("claimed", "nothing" if claimed is None else f"{claimed}{'' if verdict.agrees else ' (wrong)'}"),
                *(("violated", text) for text in verdict.violations),
            ]
        )
    if verdict.value is None:
        return EXIT_INFEASIBLE
    return EXIT_OPTIMAL if verdict.accepted else EXIT_USAGE
