"""Operators from disk to disk through the device, where tables are sorted by what the operation groups by.

Packed chunks go from files to pinned memory to the device and are unpacked there, and so are the result's packed there:
the processor checks sums and moves bytes, no more. Where tables cannot be cut as they are, the operators on pieces that
are sorted first (the other modules here) do the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oocbe.errors import DiskError, ResourceError
from oocbe.table_algebra.out_of_core.context import ExecutionContext
from oocbe.table_algebra.sorted_cuts import SortedCuts
from oocbe.table_algebra.stored_result import StoredResult
from oocbe.table_algebra.streamed import Streamable
from oocbe.table_algebra.through_device import PiecesThroughDevice, StreamedOperation, known_dtype, rows_a_piece
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable

if TYPE_CHECKING:
    from oocbe.table_algebra.inputs import TableLike

HOST_SHARE = 0.6
"""Share of the memory limit for pinned memory; the rest is for the tables' indices, and for finding where to cut."""

LOOKING_SHARE = 0.2
"""Of that rest, what is read to find where to cut takes so much of the limit."""

PIECES_AT_A_TIME = 8
"""Pieces that the pinned memory has room for."""

MOST_BYTES = 1 << 28
"""Rows of a piece take no more, unpacked: all else waits for the first one to be read."""


def streamed_to_disk(
    tables: Sequence[TableLike],
    output: str | Path,
    context: ExecutionContext,
    stream: Callable[..., Any],
) -> StoredTable | None:
    """An operator's result on disk; None where the tables cannot go through the device as they are.

    Parameters
    ----------
    stream : the operator, given the tables (packed), ``kernels``, ``piece_rows`` and ``run``; see
        :mod:`oocbe.table_algebra.streamed`.
    """
    if context.kernels.name != "cuda":
        return None
    packed = [table if isinstance(table, PackedTable) else _on_disk(table) for table in tables]
    if any(table is None for table in packed):
        return None
    run = partial(_run, output=output, context=context)
    try:
        found: StoredTable | None = stream(
            *packed, kernels=context.kernels, piece_rows=context.space.piece_rows, run=run
        )
    except DiskError:
        raise
    except ResourceError:
        # A group that the device has no room for: the other way cuts inside groups. Nothing is left of the table.
        return None
    return found


def _on_disk(table: TableLike) -> PackedTable | None:
    return PackedTable.on_disk(table) if isinstance(table, StoredTable) else None


def _run(
    tables: Sequence[Streamable],
    cuts: SortedCuts,
    operation: StreamedOperation,
    piece_rows: int | None,
    output: str | Path,
    context: ExecutionContext,
) -> StoredTable:
    dtype = known_dtype(tables, operation)
    host_bytes = int(context.space.budget.limit * HOST_SHARE)
    if piece_rows is None:
        row_bytes = sum(table.nbytes for table in tables) / sum(table.rows for table in tables)
        most = min(rows_a_piece(tables, MOST_BYTES), int(host_bytes / PIECES_AT_A_TIME / row_bytes))
        piece_rows = max(1, most)
    pieces = cuts.fitting(cuts.whole(), piece_rows, int(context.space.budget.limit * LOOKING_SHARE))
    chunk_rows = context.chunk_rows(operation.layout, dtype)
    with StoredTable.create(output, operation.layout, dtype, tables[0].semiring, chunk_rows=chunk_rows) as writer:
        PiecesThroughDevice(tables, cuts, operation, dtype, StoredResult(writer)).over(pieces, host_bytes)
    return StoredTable.open(output)
