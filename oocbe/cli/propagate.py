"""``oocbe propagate``: remove values that no solution has from a file's domains, and write the reduced problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oocbe.cli.flags import ProblemFile, command, load_model
from oocbe.cli.output import beside_answer, defer_signals, note, print_answer, seconds, warn
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.formats import Model
    from oocbe.model.results.propagation_result import PropagationResult

SHOWN_NAMES = 5
"""Maximum number of omitted parts that are printed; JSON has all."""


@command("propagate", is_partial=True)
def propagate(
    file: ProblemFile,
    output: Annotated[Path | None, typer.Option(help="Write the remaining problem to this file.")] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Also try each value of each variable.")] = False,
    rounds: Annotated[int, typer.Option(metavar="INTEGER", help="Maximum number of rounds.")] = 1000,
    progress: Annotated[
        float, typer.Option(metavar="NUMBER", help="Minimum relative improvement of a real bound.")
    ] = 1e-9,
    tolerance: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Tolerance of linear rows, instead of outward rounding.")
    ] = None,
    *,
    options: SolveOptions,
    format: str | None,
) -> int:
    """Remove values that no solution of FILE has, or tighten its bounds, until a fixpoint.

    Exit code 0 at a fixpoint, 10 if FILE is infeasible (with the constraint that proves it), 20 if a limit was reached.
    Unsupported constraints of FILE are listed and left out; the removals are valid all the same.
    """
    from oocbe.model.run_verb import read_and_work
    from oocbe.propagation.propagate import propagate as run

    def work(model: Model) -> PropagationResult:
        return run(model, rounds=rounds, progress=progress, tolerance=tolerance, probing=probe, backend=options.backend)

    _, result = read_and_work(file, lambda path: load_model(path, format), work, options.time_limit)
    defer_signals()
    if output is not None and result.reduced is not None:
        from oocbe.formats import write

        with beside_answer(output):
            write(result.reduced, output)
            note(f"wrote {output}: {result.reduced!r}")
    print_answer(result.to_json, _rows(result), result.status)
    if output is not None and result.reduced is None:
        warn(f"{result.status}; there is no problem to write to {output}")
    return result.exit_code


def _kind_of(result: PropagationResult) -> str:
    """Removals: bounds of a linear system, values of a problem; unknown if it is infeasible."""
    from oocbe.model.linear_system import LinearSystem

    if result.reduced is None:
        return "value or bound"
    return "bound" if isinstance(result.reduced, LinearSystem) else "value"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what.replace(' or ', 's or ')}s"


def _rows(result: PropagationResult) -> list[tuple[str, object]]:
    probes = f"{result.probes}, {result.failures} of them contradictions" if result.probes else None
    left_out = [*result.left_out[:SHOWN_NAMES]]
    more = len(result.left_out) - len(left_out)
    return [
        ("problem", result.problem),
        ("status", result.status),
        ("reason", result.reason),
        ("left", None if result.reduced is None else repr(result.reduced)),
        ("removed", f"{_counted(result.removed, _kind_of(result))} in {_counted(len(result.rounds), 'round')}"),
        ("probes", probes),
        *(("left out", text) for text in left_out),
        ("left out", f"and {more} more" if more else None),
        ("time", seconds(result.seconds)),
    ]
