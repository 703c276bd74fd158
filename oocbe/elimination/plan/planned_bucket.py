"""A bucket of a plan, a plan in a notebook, and the time of a plan on workers by the scheduling model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from oocbe.elimination.engine.decision import COMPLETE, WhyPieces
from oocbe.elimination.orders.order import (
    MESSAGE_CELLS_A_SECOND,
    MESSAGE_ROWS_A_SECOND,
    SECONDS_A_BUCKET,
)
from oocbe.elimination.plan.bucket_forecast import BucketForecast
from oocbe.execution.schedule import Simulated, Stage, forecast, piece_rows, predicted_stage
from oocbe.model.problem import Problem
from oocbe.model.results.numerals import content
from oocbe.runtime.pictures.shown import Shown
from oocbe.tables.table import format_bytes

if TYPE_CHECKING:
    from oocbe.runtime.pictures.plots import Picture


@dataclass(frozen=True)
class PlannedBucket:
    """One bucket of a plan.

    variable : index of the variable eliminated. name : its name.
    separator : variable indices of the message's scope, the one eliminated next at the front.
    bits : of the message's keys.
    predicted_rows : estimated feasible rows of the message, dominance not counted.
    complete_rows : rows of a complete table over the separator.
    predicted_bytes : of the message in its form.
    form : ``complete`` (values only) or ``incomplete`` (rows with keys), as is decided by what is predicted.
    passage : how the bucket passes through memory and disk.
    """

    variable: int
    name: str
    separator: tuple[int, ...]
    bits: int
    predicted_rows: int
    complete_rows: int
    predicted_bytes: int
    form: str
    passage: BucketForecast

    @property
    def density(self) -> float:
        """Predicted rows over complete ones."""
        return self.predicted_rows / self.complete_rows

    @property
    def predicted_seconds(self) -> float:
        """Processor time that it takes, about: without bounds, a device, or what disks add."""
        is_complete = self.form == COMPLETE
        rows = self.complete_rows if is_complete else self.predicted_rows
        return SECONDS_A_BUCKET + rows / (MESSAGE_CELLS_A_SECOND if is_complete else MESSAGE_ROWS_A_SECOND)

    def to_json(self, names: Sequence[str]) -> dict[str, object]:
        """Everything as JSON types; ``names`` are those of all variables."""
        return {
            "variable": self.name,
            "separator": [names[v] for v in self.separator],
            **content(self, "bits predicted_rows complete_rows predicted_bytes predicted_seconds form density"),
            **content(self.passage, "input_bytes pieces fits disk_bytes"),
        }


class PlanPictures(Shown):
    """Display of a plan in notebooks; attributes as in :class:`oocbe.elimination.plan.plan.Plan`."""

    problem: Problem
    buckets: tuple[PlannedBucket, ...]
    bounds: str
    memory: int
    loop_seconds: float

    @property
    def predicted_seconds(self) -> float:
        """Processor time that elimination alone takes by what is predicted; a factor of two either way is usual."""
        return self.loop_seconds or math.fsum(b.predicted_seconds for b in self.buckets)

    @property
    def is_bounded(self) -> bool:
        """Whether a solve begins with bounds, or with a search that has bounds of its own."""
        return bool(self.bounds) and not self.bounds.startswith("none")

    @property
    def headline(self) -> str:
        """One sentence about what a solve does."""
        if self.is_bounded:
            return self.bounds
        way = "elimination of all buckets in one loop" if self.loop_seconds else "elimination"
        return f"{way}, about {duration_of(self.predicted_seconds)} of processor time"

    def _summary(self) -> tuple[str, list[tuple[str, object]]]:
        buckets = self.buckets
        largest = sorted(buckets, key=lambda b: -b.predicted_bytes)[:3]
        to_disk = sum(b.passage.disk_bytes for b in buckets)
        return f"Plan of {self.problem.name}", [
            ("buckets", len(buckets)),
            ("width", max((len(b.separator) for b in buckets), default=0)),
            ("predicted rows", powers(sum(b.predicted_rows for b in buckets))),
            ("predicted bytes", size_of(sum(b.predicted_bytes for b in buckets))),
            ("solve", self.headline),
            ("elimination alone", f"about {duration_of(self.predicted_seconds)}" if self.is_bounded else None),
            ("memory for messages", size_of(self.memory)),
            ("to disk", size_of(to_disk) if to_disk else None),
            *(
                (f"bucket of {b.name}", f"{powers(b.predicted_rows)} rows, {size_of(b.predicted_bytes)}, {b.form}")
                for b in largest
            ),
        ]

    def plot(self) -> Picture:
        """The tree of buckets by bytes of their messages, and the profile of the order; UsageError without matplotlib.

        A bucket's parent is the one that its message goes to: that of the separator's first variable.
        """
        from oocbe.runtime.pictures.plots import bucket_tree

        place = {b.variable: number for number, b in enumerate(self.buckets)}
        return bucket_tree(
            self.problem.name,
            [b.name for b in self.buckets],
            [place[b.separator[0]] if b.separator else None for b in self.buckets],
            [b.predicted_bytes for b in self.buckets],
            [len(b.separator) for b in self.buckets],
        )


def powers(rows: int) -> str:
    """Row counts beyond a billion as powers of two."""
    return f"{rows:,}" if rows < 10**9 else f"2^{math.log2(rows):.1f}"


def duration_of(seconds: float) -> str:
    """An estimated time in words, no more exact than it is; beyond a year as a power of ten."""
    for unit, length in (("years", 31_557_600.0), ("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            count = seconds / length
            return f"{_two_digits(count)} {unit}" if count < 10_000 else f"10^{math.log10(count):.0f} {unit}"
    return f"{_two_digits(seconds)} s"


def _two_digits(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{round(number, 1 - math.floor(math.log10(number))):,.0f}"


def size_of(count: int) -> str:
    """Bytes for people, beyond any disk as powers of two."""
    return format_bytes(count) if count < 1 << 60 else f"2^{math.log2(count):.1f} B"


ROWS_A_SECOND = 5_000_000.0
"""Rows of a message that a worker joins in a second: a bucket of ``segment_rows`` takes some 0.2 s. Predicted
efficiency hardly depends on it; predicted seconds do."""


def simulate_plan(buckets: Sequence[PlannedBucket], workers: int) -> Simulated:
    """Prediction of the scheduling model for a plan: buckets one after the other, the large ones shared out.

    Buckets that are not shared out are one worker's, as all that comes before the first is; what a search with bounds
    leaves of the rows is not known.
    """
    stages: list[Stage] = []
    for bucket in buckets:
        after = (len(stages) - 1,) if stages else ()
        rows = float(bucket.predicted_rows)
        if bucket.passage.strategy.why_pieces is WhyPieces.WORKERS:
            stages.append(predicted_stage(bucket.name, rows, 1 / ROWS_A_SECOND, piece_rows(rows), after))
        else:
            stages.append(Stage(bucket.name, np.zeros(0), rows / ROWS_A_SECOND, after))
    return forecast(stages, workers)
