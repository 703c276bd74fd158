"""``oocbe plan``: a forecast of a solve."""

from __future__ import annotations

from typing import Annotated

import typer

from oocbe.cli.flags import ProblemFile, command, load
from oocbe.cli.output import print_answer
from oocbe.model.settings.options import SolveOptions


@command("plan")
def plan(
    file: ProblemFile,
    *,
    options: SolveOptions,
    evidence: list[str] | None,
    format: str | None,
    task: Annotated[str, typer.Option("--task", help="A task, as for oocbe solve.")] = "optimum",
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="NUMBER", help="Temperature of the tasks logz and marginals.")
    ] = 1.0,
) -> None:
    """Predict time, memory and disk of solving FILE, or of another task.

    Prints the elimination order, its width, and for each bucket scope, bits, predicted rows, complete rows, bytes,
    form and density of the message, number of pieces, and bytes on disk. Computes only the order, and bounds of a
    sample of rows. Exit code 30 if the messages do not fit the disk. With --quiet, prints the width.
    """
    from oocbe.api.solving.outlook import plan_task
    from oocbe.errors import DiskError

    made = plan_task(load(file, format, evidence), task, options, temperature)
    print_answer(made.to_json, str(made), made.width)
    if made.disk_refusal:
        raise DiskError(made.disk_refusal)
