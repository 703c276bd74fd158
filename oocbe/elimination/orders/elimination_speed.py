"""Expected speed of elimination, for comparison with bounds and with the search for orders."""

from __future__ import annotations

import math
from typing import NamedTuple

from oocbe.elimination.engine.decision import INCOMPLETE
from oocbe.kernels.choice import cuda_works

ROWS_A_SECOND = 1_000_000.0
"""Predicted rows that elimination processes in a second, to compare an order's cost with that of the search.

Small problems reach 0.4 to 1 million, because of the cost of each bucket; large ones reach 5 to 15 million, because
predictions ignore dominance. One million ends the search early if elimination takes milliseconds, and lets hard
problems use their whole search time: for them a better order saves more than the search costs.
"""

MANY_ROWS_A_SECOND = 40_000_000.0
"""Predicted rows a second of large problems without bounds: 15 to 40 million were measured on two cores."""


SECONDS_A_BUCKET, MESSAGE_ROWS_A_SECOND, MESSAGE_CELLS_A_SECOND = 2e-3, 4e6, 5e7
"""Model of a plan's time without a device: seconds a bucket, predicted message rows and complete cells a second.

For all of 23 problems whose solves without bounds took from 0.01 to 7 s of processor time on two cores (SPOT5,
pedigrees, circuits, grids, random ones; 2026-11-24) the time was from half to twice the model's.
"""


class EliminationSpeed(NamedTuple):
    """Speed of elimination with large messages: predicted rows, and joined cells of complete tables, a second."""

    rows: float
    cells: float

    @property
    def cells_a_row(self) -> float:
        """Cells processed in the time of a row of a large table, whose cost is little more than its reading and
        writing."""
        return self.cells / self.rows


CPU_SPEED = EliminationSpeed(MANY_ROWS_A_SECOND, 1e9)
"""Speed of two cores: 0.2 to 3 billion cells a second were measured."""

DEVICE_SPEED = EliminationSpeed(2e8, 2e11)
"""Speed of any device. On an H200, traces of grid networks of sides 9 and 10 show 0.3 billion rows, and 0.5 to 0.8
trillion cells, a second in their largest buckets; smaller buckets are slower."""


def speed_of(backend: str) -> EliminationSpeed:
    """Expected speed of elimination with a backend, ``auto``, ``cpu`` or ``cuda``, on this machine."""
    return DEVICE_SPEED if backend == "cuda" or (backend == "auto" and cuda_works(wanted=False)) else CPU_SPEED


def order_cell_work(speed: EliminationSpeed, tables: str) -> float:
    """The ``cell_work`` argument of :func:`oocbe.elimination.orders.order.search_orders`.

    Without a device, orders are compared by predicted rows alone. On a device joined cells are so cheap that the
    cheaper form of each bucket counts.

    tables : possible forms, see :func:`oocbe.elimination.buckets.forms.supported_representations`.
    """
    return math.inf if tables == INCOMPLETE or speed is not DEVICE_SPEED else 1 / speed.cells_a_row
