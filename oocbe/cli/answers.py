"""Answers as text: schedules of photographs, assignments, and values of marginals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from oocbe.model.results.numerals import all_digits

if TYPE_CHECKING:
    from oocbe.model.photographs import ImagingDay
    from oocbe.model.results.task_result import TaskResult


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
