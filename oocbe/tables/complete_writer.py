"""Writing a complete table to disk: its values in cell order, chunk by chunk, then one rename."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.errors import DiskError, ModelError
from oocbe.model.infeasible import feasible_mask
from oocbe.model.semiring import Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.group import table_attributes
from oocbe.tables.group_writer import GroupWriter
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import COMPLETE
from oocbe.tables.table import format_bytes

LEAST_CHUNK_BYTES = 64
"""Minimum bytes of a chunk and its manifest record, reached with equal values; used to refuse oversized tables
early."""


class CompleteTableWriter(GroupWriter):
    """Collects cells into chunks and publishes them as a complete table at the end of its ``with`` block.

    Created by :meth:`oocbe.tables.stored_complete.StoredCompleteTable.create`. ``rows`` counts the feasible cells.
    """

    def __init__(
        self,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike,
        semiring: Semiring,
        chunk_cells: int,
        budget: DiskBudget | None = None,
        overwrite: bool = False,
    ) -> None:
        chunk_cells = min(chunk_cells, layout.complete_rows)
        super().__init__(path, layout, dtype, semiring, chunk_cells, 0, COMPLETE, budget=budget, overwrite=overwrite)
        self._refuse_too_many_chunks()
        self.cells = 0

    def _refuse_too_many_chunks(self) -> None:
        """Refuse (:class:`DiskError`) a table that no compression can fit, before any writing."""
        cells = self.layout.complete_rows
        needed = -(-cells // self._chunk_rows) * LEAST_CHUNK_BYTES
        if needed > self._budget.available:
            raise DiskError(
                f"{self.path}: a complete table of {cells:,} values takes {format_bytes(needed)} or more, even if they "
                f"are all alike; {self._budget.sizes()}. Keep it as rows"
            )

    def append(self, values: NDArray[Any]) -> None:
        """Append the values of the next cells.

        values : (cells,) of the table's dtype; may be reused after return.

        Raises
        ------
        ModelError : another dtype, or more cells than the table has.
        DiskError : the disk or the disk budget is exhausted.
        TimeLimitError, RequestedEndError : the current deadline passed.
        """
        if values.dtype != self.dtype or values.ndim != 1 or self.cells + len(values) > self.layout.complete_rows:
            raise ModelError(
                f"{self.path}: {self.layout.complete_rows:,} values of {self.dtype}, {self.cells:,} of which are there,"
                f" go on with no {values.dtype} {values.shape}"
            )
        step = max(1, tuning().written_cells // self._chunk_rows) * self._chunk_rows
        for begin in range(0, len(values), step):
            check_deadline()
            self._append(values[begin : begin + step])

    def _append(self, values: NDArray[Any]) -> None:
        feasible = feasible_mask(values, self.semiring.combination, self.semiring.marginalisation)
        count = int(np.count_nonzero(feasible))
        self._widen(values if count == len(values) else values[feasible])
        self.rows += count
        self.cells += len(values)
        self._collect(np.empty((0, len(values)), dtype=np.uint64), values)

    def _finish(self) -> None:
        if self.cells != self.layout.complete_rows:
            raise ModelError(f"{self.path}: {self.cells:,} of {self.layout.complete_rows:,} cells were written")
        self._flush()
        attributes = table_attributes(self.layout, self.semiring, self.dtype, self.rows, self._chunk_rows)
        if self._extent is not None:
            attributes["extent"] = list(self._extent)
        self._publish(attributes)
