"""``oocbe solve --task``: printing of task results."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import typer

from oocbe.cli.output import print_answer, prints_json, times
from oocbe.model.results.numerals import all_digits, digits

if TYPE_CHECKING:
    from oocbe.model.photographs import ImagingDay
    from oocbe.model.results.task_result import TaskResult

SHOWN_DIGITS = 60
"""Digits of a count above which a terminal shows its magnitude; --json and --quiet have all digits."""

FLOAT_DIGITS = 300
"""Decimal exponent up to which a fraction is also shown as a decimal number."""


def print_task(result: TaskResult, day: ImagingDay | None = None) -> None:
    """Print a task's result the way ``solve`` prints an optimum: JSON, or rows (quiet: one line), then the answers.

    day : of a SPOT5 file, to print assignments as photographs.
    """
    print_answer(result.to_json, _rows(result), result.status, result.value)
    if not prints_json():
        for line in task_answers(result, day):
            typer.echo(line)


def print_count(result: TaskResult) -> None:
    """Print a count as lines of the model counting competition (its data format 1.2, 2025)."""
    if result.value is None or result.log10 is None:
        typer.echo("s UNKNOWN")
        return
    is_float = isinstance(result.value, float)
    form = "arb frac" if isinstance(result.value, Fraction) else "double float" if is_float else "arb int"
    typer.echo(f"s {'UN' * (result.status == 'infeasible')}SATISFIABLE")
    typer.echo(f"c s type {result.kind}")
    typer.echo(f"c s {'neg' * (result.value < 0)}log10-estimate {result.log10:.15g}")
    typer.echo(f"c s exact {form} {digits(result.value)}")


def _rows(result: TaskResult) -> list[tuple[str, object]]:
    from oocbe.runtime.pictures.html import first_pairs
    from oocbe.tables.table import format_bytes

    return [
        ("problem", result.problem),
        ("task", result.task),
        ("status", result.status),
        *_value_rows(result),
        ("evidence", first_pairs(result.evidence)),
        ("temperature", result.temperature),
        ("width", result.width),
        ("largest message", f"{result.largest_message_rows:,} rows"),
        ("all messages", f"{result.total_rows:,} rows"),
        ("workers", None if result.read_by_workers is None else result.read_by_workers.summary),
        ("passes", result.passes),
        ("time", times(result.seconds)),
        ("presolve removed", ", ".join(map(str, result.presolve))),
        ("peak memory", format_bytes(result.peak_memory_bytes)),
        *(("note", text) for text in result.notes),
    ]


def _value_rows(result: TaskResult) -> list[tuple[str, object]]:
    if result.value is None and result.status == "interrupted":
        return [("bound", result.bound)]
    if result.counts:
        assert result.value is not None and result.log10 is not None
        exact = digits(result.value)
        sign = "-" * (result.value < 0)
        shown = exact if len(exact) <= SHOWN_DIGITS else f"{sign}10^{result.log10:.6g}"
        if isinstance(result.value, Fraction) and result.value.denominator > 1 and abs(result.log10) < FLOAT_DIGITS:
            shown = f"{shown} = {float(result.value):.12g}" if shown == exact else f"{float(result.value):.12g}"
        kind = result.kind if result.kind != "mc" else None
        return [("type", kind), ("count", shown), ("optimum", result.optimum)]
    if result.task == "mpe":
        return [
            ("log probability", result.value),
            ("bound", None if result.status == "exact" else result.bound),
            ("tolerance", result.tolerance),
        ]
    if result.task in ("logz", "marginals"):
        return [("log Z", result.value)]
    return [("optimum", result.value)]


def task_answers(result: TaskResult, day: ImagingDay | None) -> Iterator[str]:
    """A line for each assignment of ``kbest`` and ``mpe``, and for each variable of marginals.

    For a day of photographs, it lists the taken ones and the profit.
    """
    for (value, labels), (_, assignment) in zip(result.labelled, result.assignments, strict=True):
        with all_digits():
            shown = f"{value}  "
        if day is None:
            yield shown + " ".join(f"{name}={label}" for name, label in labels.items())
        else:
            schedule = day.schedule(assignment)
            yield f"{shown}profit {schedule.profit}: " + " ".join(f"{t.name}:{t.camera}" for t in schedule.taken)
    for name, own in result.marginals_by_name.items():
        yield f"{name}  " + "  ".join(f"{label}: {_shown(x)}" for label, x in own.items())


def _shown(x: int | float) -> str:
    """All digits of an integer, the leading digits of another number."""
    return str(x) if isinstance(x, int) else f"{x:.6g}"
