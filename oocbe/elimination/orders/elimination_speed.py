"""How fast elimination is expected to be, to compare it with bounds and with the search for orders."""

from __future__ import annotations

import math
from typing import NamedTuple

from oocbe.elimination.engine.decision import INCOMPLETE
from oocbe.kernels.choice import cuda_works

ROWS_A_SECOND = 1_000_000.0
"""Predicted rows that elimination gets through in a second, to compare an order's cost with that of the search.

Small problems are slowed by what each bucket costs and do 0.4 to 1 million; large ones do 5 to 15 million, because
predictions leave out dominance. One million ends the search early where elimination is a matter of milliseconds, and
lets hard problems have all the time they were given: there a better order saves more than the search costs.
"""

MANY_ROWS_A_SECOND = 40_000_000.0
"""Predicted rows a second of large problems without bounds: 15 to 40 million have been seen on two cores."""


SECONDS_A_BUCKET, MESSAGE_ROWS_A_SECOND, MESSAGE_CELLS_A_SECOND = 2e-3, 4e6, 5e7
"""What a plan's time is told by: each bucket, predicted rows of messages, and cells of complete ones, without a device.

All of 23 problems whose solves without bounds took from 0.01 to 7 s of processor time on two cores (SPOT5, pedigrees,
circuits, grids, random ones; 2026-11-24) took from half to twice of what these say.
"""


class EliminationSpeed(NamedTuple):
    """How fast elimination is with large messages: predicted rows, and joined cells of complete tables, a second."""

    rows: float
    cells: float

    @property
    def cells_a_row(self) -> float:
        """Cells in the time of a row: of large tables, other than of small ones, a row costs little more than reading
        and writing it."""
        return self.cells / self.rows


CPU_SPEED = EliminationSpeed(MANY_ROWS_A_SECOND, 1e9)
"""Two cores: 0.2 to 3 billion cells a second have been seen."""

DEVICE_SPEED = EliminationSpeed(2e8, 2e11)
"""Any device. On an H200 traces of grid networks of sides 9 and 10 show 0.3 billion rows, and 0.5 to 0.8 trillion
cells, a second in their largest buckets; smaller ones are slower."""


def speed_of(backend: str) -> EliminationSpeed:
    """How fast elimination is expected to be with a backend, ``auto``, ``cpu`` or ``cuda``, on this machine."""
    return DEVICE_SPEED if backend == "cuda" or (backend == "auto" and cuda_works(wanted=False)) else CPU_SPEED


def order_cell_work(speed: EliminationSpeed, tables: str) -> float:
    """What orders are judged by, as :func:`oocbe.elimination.orders.order.search_orders` takes it.

    Without a device, predicted rows alone judge. On a device joined cells are so cheap that the cheaper form does.

    tables : possible forms, see :func:`oocbe.elimination.buckets.forms.supported_representations`.
    """
    return math.inf if tables == INCOMPLETE or speed is not DEVICE_SPEED else 1 / speed.cells_a_row
