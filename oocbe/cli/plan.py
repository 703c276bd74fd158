"""``oocbe plan``: a forecast of a solve."""

from __future__ import annotations

from oocbe.cli.flags import ProblemFile, command, load
from oocbe.cli.output import print_answer
from oocbe.model.settings.options import SolveOptions


@command("plan")
def plan(file: ProblemFile, *, options: SolveOptions, evidence: list[str] | None, format: str | None) -> None:
    """Show what solving FILE would take.

    Prints the elimination order, its width, and each bucket's scope, bits, predicted rows, complete rows,
    bytes, the form of its message with its density, in how many pieces it is joined, and what goes to disk.
    Nothing is computed but the order, and a sample of rows with bounds of their own. What cannot fit the disk ends
    with 30. With --quiet, the width is printed.
    """
    from oocbe.api.solving.outlook import plan_solve
    from oocbe.errors import DiskError

    made = plan_solve(load(file, format, evidence), options)
    print_answer(made.to_json, str(made), made.width)
    if made.disk_refusal:
        raise DiskError(made.disk_refusal)
