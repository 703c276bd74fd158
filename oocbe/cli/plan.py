"""``oocbe plan``: a forecast of a solve."""

from __future__ import annotations

import typer

from oocbe.cli.failures import guarded
from oocbe.cli.flags import (
    BoundsFlag,
    DebugFlag,
    DominanceFlag,
    EvidenceFlag,
    FormatFlag,
    JsonFlag,
    MaxDiskFlag,
    MemoryFlag,
    OrderFlag,
    OrderSecondsFlag,
    PieceRowsFlag,
    ProblemFile,
    SeedFlag,
    SemiringFlag,
    StreamsFlag,
    TablesFlag,
    WorkdirFlag,
    WorkersFlag,
    load,
    options_from,
)
from oocbe.cli.output import print_json


@guarded
def plan(
    file: ProblemFile,
    json: JsonFlag = False,
    order: OrderFlag = None,
    order_seconds: OrderSecondsFlag = None,
    seed: SeedFlag = None,
    dominance: DominanceFlag = None,
    memory: MemoryFlag = None,
    semiring: SemiringFlag = None,
    tables: TablesFlag = None,
    bounds: BoundsFlag = None,
    workdir: WorkdirFlag = None,
    max_disk: MaxDiskFlag = None,
    streams: StreamsFlag = None,
    piece_rows: PieceRowsFlag = None,
    workers: WorkersFlag = None,
    evidence: EvidenceFlag = None,
    format: FormatFlag = None,
    debug: DebugFlag = False,
) -> None:
    """Show what solving FILE would take.

    Prints the elimination order, its width, and each bucket's scope, bits, predicted rows, complete rows,
    bytes, the form of its message with its density, in how many pieces it is joined, and what goes to disk.
    Nothing is computed but the order, and a sample of rows with bounds of their own. What cannot fit the disk ends
    with 30.
    """
    given = dict(locals())  # the parameters only, as there are no other local variables yet
    from oocbe.api.solving.outlook import plan_solve
    from oocbe.errors import DiskError
    from oocbe.runtime.deadline import Deadline

    options = options_from(given)
    with Deadline(options.time_limit):
        problem = load(file, format, evidence)
    made = plan_solve(problem, options)
    if json:
        print_json(made.to_json())
    else:
        typer.echo(str(made))
    if made.disk_refusal:
        raise DiskError(made.disk_refusal)
