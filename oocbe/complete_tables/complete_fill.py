"""Rows of any number written out as a complete table: an infeasible value for each assignment without a row.

The rows are partitioned by the variables of the complete table, the one that changes slowest first, so that they come
in the order of its cells (:mod:`oocbe.streaming.partition`); each then falls into the window of cells at hand.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.complete.complete_rows import cells_of_rows
from oocbe.model.infeasible import infeasible_value
from oocbe.model.semiring import Semiring
from oocbe.streaming.partition import Ordered, parts
from oocbe.streaming.sources import Buffers, Source, row_bytes
from oocbe.tables.complete import check_feasible, key_fields

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend
    from oocbe.streaming.space import Space
    from oocbe.tables.layout import Layout

COPIES, CELL_BYTES = 3, 24
"""What a row of a part takes: as read, sorted by its cell, of the dtype wanted; its cell, and the order of cells."""

WINDOW_SHARE = 0.1
"""Share of the memory for the window."""


def filled(
    source: Source, layout: Layout, dtype: np.dtype[Any], semiring: Semiring, space: Space, kernels: Backend
) -> Generator[NDArray[Any], None, None]:
    """Values of the complete table, a window of cells after the other.

    Parameters
    ----------
    layout : of the complete table, the same variables as the rows'. dtype : of its values.
    space : memory to work in.

    Raises
    ------
    ValueRangeError : a value that the dtype cannot hold. DiskError : the disk is full.
    """
    cost = COPIES * row_bytes(source.layout, source.dtype) + CELL_BYTES
    what = f"complete table over {layout.scope}"
    infeasible = infeasible_value(dtype, semiring.combination, semiring.marginalisation)
    most = max(1, int(space.budget.limit * WINDOW_SHARE) // dtype.itemsize)
    buffers, low = Buffers(), 0
    window = np.full(min(most, layout.complete_rows), infeasible, dtype=dtype)
    for part in parts([Ordered(source, layout.scope, layout.scope, cost)], space, kernels):
        table = buffers.load("rows", part.inputs[0].source)
        check_feasible(what, table.values, semiring, dtype)
        cells = cells_of_rows(table.keys, key_fields(table.layout, layout))  # partitioned rows have another layout
        order = np.argsort(cells, kind="stable")
        cells, values = cells[order], table.values[order].astype(dtype, copy=False)
        done = 0
        while done < len(cells):
            last = int(np.searchsorted(cells, low + len(window)))
            window[cells[done:last] - low] = values[done:last]
            done = last
            if done < len(cells):
                yield window
                low += len(window)
                window = np.full(min(most, layout.complete_rows - low), infeasible, dtype=dtype)
    while low < layout.complete_rows:
        yield window
        low += len(window)
        window = np.full(min(most, layout.complete_rows - low), infeasible, dtype=dtype)
