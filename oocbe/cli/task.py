"""``oocbe solve --task``: printing of task results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from oocbe.cli.output import print_answer, prints_json, times
from oocbe.model.results.numerals import all_digits

if TYPE_CHECKING:
    from oocbe.model.photographs import ImagingDay
    from oocbe.model.results.task_result import TaskResult

SHOWN_DIGITS = 60
"""Digits of a count above which a terminal shows its magnitude; --json and --quiet have all digits."""


def print_task(result: TaskResult, day: ImagingDay | None = None) -> None:
    """Print a task's result the way ``solve`` prints an optimum: JSON, or rows (quiet: one line), then the answers.

    day : of a SPOT5 file, to print assignments as photographs.
    """
    print_answer(result.to_json, _rows(result), result.status, result.value)
    if not prints_json():
        for line in task_answers(result, day):
            typer.echo(line)


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
        assert isinstance(result.value, int)
        logarithm = result.logarithm
        assert logarithm is not None
        is_short = result.value < 10**SHOWN_DIGITS
        shown = str(result.value) if is_short else f"10^{logarithm / math.log(10):.6g}"
        return [("count", shown), ("optimum", result.optimum)]
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
