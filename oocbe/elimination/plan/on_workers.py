"""How long a plan would take over workers: its predicted rows as stages of the scheduling model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oocbe.elimination.engine.decision import WhyPieces
from oocbe.elimination.plan.planned_bucket import PlannedBucket
from oocbe.execution.schedule.forecast import forecast, piece_rows
from oocbe.execution.schedule.simulation import Simulated
from oocbe.execution.schedule.stages import Stage, predicted_stage

ROWS_A_SECOND = 5_000_000.0
"""Rows of a message that a worker joins in a second: a bucket of ``segment_rows`` takes some 0.2 s. Predicted
efficiency hardly depends on it; predicted seconds do."""


def simulate_plan(buckets: Sequence[PlannedBucket], workers: int) -> Simulated:
    """What the scheduling model says of a plan: buckets one after the other, the large ones shared out.

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
