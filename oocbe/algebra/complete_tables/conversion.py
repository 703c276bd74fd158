"""From one form of a table to another: rows, packed rows, complete, and each of them on disk.

In memory a table changes its form as a whole: :func:`in_memory` reads what is on disk or packed, :func:`rows_in_memory`
and :func:`complete_in_memory` give the requested form. Of any size it comes piece by piece, for whoever writes
or streams it: :func:`row_pieces` lists a complete table's feasible assignments, :func:`cell_pieces` writes rows out as
a complete table, and :mod:`oocbe.algebra.complete_tables.complete_transpose` reorders one. The two changes themselves,
of what is at hand, are :meth:`oocbe.tables.complete.CompleteTable.to_table` and
:meth:`~oocbe.tables.complete.CompleteTable.from_table`, wherever the table is; packing and writing are
:meth:`oocbe.tables.packed.PackedTable.pack` and the ``save`` of stored tables.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.algebra.complete_tables.complete_transpose import Scratch, transposed
from oocbe.execution.partition import JoinInput, parts
from oocbe.execution.sources import Buffers, Source, row_bytes
from oocbe.kernels.cpu.complete.complete_rows import cells_of_rows
from oocbe.model.infeasible import infeasible_value
from oocbe.model.semiring import Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable, key_fields, rows_among
from oocbe.tables.numbers import check_feasible
from oocbe.tables.packed import PackedTable
from oocbe.tables.residence import to_host
from oocbe.tables.stored import StoredTable
from oocbe.tables.stored_complete import AnyComplete
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.execution.budget import MemoryPlan
    from oocbe.kernels.interface import Backend
    from oocbe.tables.layout import Layout

AnyTable = Table | StoredTable | PackedTable | AnyComplete
"""Every form that a table has."""

COPIES, CELL_BYTES = 3, 24
"""Memory of a row that is written out: as read, sorted by its cell, of the dtype wanted; its cell, and the order of
cells."""


def in_memory(table: AnyTable) -> Table | CompleteTable:
    """A table in memory, rows or complete as it is: itself, wherever its arrays are, or what is read or unpacked.

    Raises ResourceError: memory has no room for it; CorruptDataError: a chunk on disk is missing or damaged.
    """
    if isinstance(table, Table | CompleteTable):
        return table
    return table.to_complete() if isinstance(table, AnyComplete) else table.to_table()


def rows_in_memory(table: AnyTable, scope: Sequence[str] | None = None) -> Table:
    """A table of any form as rows in memory, on the device where it is there.

    scope : order of the variables of a complete table, the least significant first; None: the table's. Rows keep their
    order. Errors as for :func:`in_memory` and :meth:`CompleteTable.to_table`.
    """
    found = in_memory(table)
    return found.to_table(scope) if isinstance(found, CompleteTable) else found


def complete_in_memory(
    table: AnyTable, scope: Sequence[str] | None = None, dtype: DTypeLike | None = None
) -> CompleteTable:
    """A table of any form as a complete one in memory, on the device where it is there; rows on disk come by chunks.

    scope : order of the variables, the fastest first; None: the table's. dtype : of the values, for rows; None: as for
    :meth:`CompleteTable.from_table`. Errors as for it and for :func:`in_memory`.
    """
    if isinstance(table, StoredTable) and dtype is not None:
        table.refuse_duplicates()
        wanted = table.scope if scope is None else scope
        return CompleteTable.from_pieces(table.layout, table.chunks(), table.semiring, wanted, dtype)
    found = in_memory(table)
    if isinstance(found, Table):
        return CompleteTable.from_table(found, scope, dtype)
    return found if scope is None else found.transposed(scope)


def row_pieces(table: AnyComplete, scope: Sequence[str], nbytes: int, scratch: Scratch) -> Iterator[Table]:
    """Feasible assignments of a complete table of any size as sorted rows, piece by piece; pieces without rows are
    left out.

    scope : order of the variables, the least significant first. nbytes : memory to work in.
    scratch : as for :func:`oocbe.algebra.complete_tables.complete_transpose.transposed`.
    Raises CorruptDataError: the table is on disk and damaged; DiskError: the disk is full.
    """
    layout, semiring, first = table.layout.select(scope), table.semiring, 0
    most = max(1, nbytes // (2 * tuning().cell_bytes))
    source = to_host(table) if isinstance(table, CompleteTable) else table
    for values in transposed(source, layout.scope, nbytes, scratch):
        for low in range(0, len(values), most):
            rows = rows_among(layout, values[low : low + most], first + low, semiring)
            if rows.rows:
                yield rows
        first += len(values)


def cell_pieces(
    source: Source, layout: Layout, dtype: np.dtype[Any], semiring: Semiring, space: MemoryPlan, kernels: Backend
) -> Generator[NDArray[Any], None, None]:
    """Values of the complete table that rows of any number stand for, a window of neighbouring cells after the other.

    The rows are partitioned by the variables of the complete table, the one that changes slowest first, so that they
    come in the order of its cells (:mod:`oocbe.execution.partition`); each then falls into the window at hand.

    layout : of the complete table, the same variables as the rows'. dtype : of its values.
    space : memory to work in.
    Raises ValueRangeError: a value that the dtype cannot hold; DiskError: the disk is full.
    """
    cost = COPIES * row_bytes(source.layout, source.dtype) + CELL_BYTES
    what = f"complete table over {layout.scope}"
    infeasible = infeasible_value(dtype, semiring.combination, semiring.marginalisation)
    most = max(1, int(space.budget.limit * tuning().small_share) // dtype.itemsize)
    buffers, low = Buffers(), 0
    window = np.full(min(most, layout.complete_rows), infeasible, dtype=dtype)
    for part in parts([JoinInput(source, layout.scope, layout.scope, cost)], space, kernels):
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
