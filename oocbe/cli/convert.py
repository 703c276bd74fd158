"""``oocbe convert``: a problem from one format to another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oocbe.cli.failures import guarded
from oocbe.cli.flags import DebugFlag, EvidenceFlag, FormatFlag, ProblemFile, load_model
from oocbe.cli.output import note

if TYPE_CHECKING:
    from oocbe.model.dcop import Dcop
    from oocbe.model.problem import Problem


@guarded
def convert(
    file: ProblemFile,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; .gz and .xz compress.")],
    format: FormatFlag = None,
    to: Annotated[str | None, typer.Option("--to", help="Format of OUT, where its suffix does not tell.")] = None,
    evidence: EvidenceFlag = None,
    debug: DebugFlag = False,
) -> None:
    """Write FILE to OUT in another format."""
    from oocbe.facade import finite_problem
    from oocbe.model.dcop import Dcop

    model = load_model(file, format)
    problem = finite_problem(model, file, evidence or None)
    save(replace(model, problem=problem) if isinstance(model, Dcop) else problem, out, to)


def save(problem: Problem | Dcop, out: Path, format_name: str | None) -> None:
    """Write a problem for a command, and say so on standard error."""
    from oocbe.io import write

    write(problem, out, format_name)
    note(f"wrote {out}: {problem!r}")
