"""``oocbe plan``: a forecast of a solve."""

from __future__ import annotations

from oocbe.cli.flags import ProblemFile, command, load
from oocbe.cli.output import print_answer
from oocbe.model.settings.options import SolveOptions


@command("plan")
def plan(file: ProblemFile, *, options: SolveOptions, evidence: list[str] | None, format: str | None) -> None:
    """Predict time, memory and disk of solving FILE.

    Prints the elimination order, its width, and for each bucket scope, bits, predicted rows, complete rows, bytes,
    form and density of the message, number of pieces, and bytes on disk. Computes only the order, and bounds of a
    sample of rows. Exit code 30 if the messages do not fit the disk. With --quiet, prints the width.
    """
    from oocbe.api.solving.outlook import plan_solve
    from oocbe.errors import DiskError

    made = plan_solve(load(file, format, evidence), options)
    print_answer(made.to_json, str(made), made.width)
    if made.disk_refusal:
        raise DiskError(made.disk_refusal)
