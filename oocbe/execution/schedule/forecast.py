"""Forecasts of the scheduling model for work on workers, with segments as this program cuts them."""

from __future__ import annotations

from collections.abc import Sequence

from oocbe.execution.schedule.simulation import Conditions, Simulated, simulate
from oocbe.execution.schedule.stages import Stage
from oocbe.model.settings.tuning import tuning

STRAGGLING = 3.0
"""The 95th percentile of the seconds of equal segments over their median."""


def piece_rows(rows: float) -> int:
    """Rows of a piece of a stage with ``rows`` rows."""
    return max(tuning().forecast_piece_rows, int(rows) // tuning().forecast_most_pieces)


def usual_conditions() -> Conditions:
    """Segments as cut by :mod:`oocbe.execution.cluster.dispatch`, with stragglers and without lost workers."""
    numbers = tuning()
    share = 1 / numbers.segment_part
    return Conditions(numbers.most_segment_seconds, numbers.least_segment_seconds, share=share, straggling=STRAGGLING)


def forecast(stages: Sequence[Stage], workers: int) -> Simulated:
    """Simulate stages on ``workers`` workers under the usual conditions; a piece's seconds are its median time."""
    return simulate(stages, workers, usual_conditions())
