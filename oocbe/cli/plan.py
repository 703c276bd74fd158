"""``oocbe plan``: what a solve would do, before it does anything."""

from __future__ import annotations

import typer

from oocbe.cli.failures import guarded
from oocbe.cli.flags import (
    DebugFlag,
    DominanceFlag,
    EvidenceFlag,
    FormatFlag,
    JsonFlag,
    MemoryFlag,
    OrderFlag,
    OrderSecondsFlag,
    ProblemFile,
    SeedFlag,
    SemiringFlag,
    TablesFlag,
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
    evidence: EvidenceFlag = None,
    format: FormatFlag = None,
    debug: DebugFlag = False,
) -> None:
    """Show what solving FILE would take.

    Prints the elimination order, its width, and each bucket's scope, bits, predicted rows, complete rows,
    bytes, and the form of its message with its density.
    Nothing is computed but the order.
    """
    from oocbe.elimination.plan import make_plan

    options = options_from(
        order=order,
        order_seconds=order_seconds,
        seed=seed,
        dominance=dominance,
        memory=memory,
        semiring=semiring,
        tables=tables,
    )
    made = make_plan(load(file, format, evidence), options)
    if json:
        print_json(made.to_json())
    else:
        typer.echo(str(made))
