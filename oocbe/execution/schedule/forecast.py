"""What the scheduling model says of work that is shared out as this program does it: segments as they are cut here."""

from __future__ import annotations

from collections.abc import Sequence

from oocbe.execution.schedule.simulation import Conditions, Simulated, simulate
from oocbe.execution.schedule.stages import Stage
from oocbe.model.settings.tuning import tuning

PIECE_ROWS, MOST_PIECES = 1 << 19, 100_000
"""Rows of a piece, a tenth of a second or so; more where a stage would have more pieces than this."""

STRAGGLING = 3.0
"""The 95th percentile of the seconds of equal segments over their median."""


def piece_rows(rows: float) -> int:
    """Rows of a piece of a stage that has so many."""
    return max(PIECE_ROWS, int(rows) // MOST_PIECES)


def usual_conditions() -> Conditions:
    """Segments as :mod:`oocbe.execution.cluster.dispatch` cuts them, some of which straggle, by workers none of which
    is lost."""
    numbers = tuning()
    share = 1 / numbers.segment_part
    return Conditions(numbers.most_segment_seconds, numbers.least_segment_seconds, share=share, straggling=STRAGGLING)


def forecast(stages: Sequence[Stage], workers: int) -> Simulated:
    """Run stages on so many workers under the usual conditions; a piece's seconds are the median of what it takes."""
    return simulate(stages, workers, usual_conditions())
