"""The operators through the device in streams, on tables that its memory does not hold, or that are packed or on disk.

Tables can be cut where they lead with the variables that the operation groups by, in one order; otherwise rows would
have to be sorted as a whole, which is for the operators on disk (:mod:`oocbe.algebra.out_of_core`). From disk to
disk packed chunks go from files to pinned memory to the device and are unpacked there, and so are the result's packed
there: the processor checks sums and moves bytes, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oocbe.algebra.device_results import StoredResult
from oocbe.algebra.eliminate_rows import Elimination, split_key_word
from oocbe.algebra.gpu_streaming import (
    DeviceRows,
    PiecesThroughDevice,
    StreamedOperation,
    known_dtype,
    rows_a_piece,
    stream_through_gpu,
)
from oocbe.algebra.inputs import CannotStreamError, check_pair
from oocbe.algebra.join_rows import joined_layout, prepare_join
from oocbe.algebra.out_of_core.context import ExecutionContext
from oocbe.algebra.ranges import joined_dtype, reduced_dtype
from oocbe.algebra.reduce_rows import reduced_layout, reduced_rows
from oocbe.algebra.sorted_cuts import RowRanges, SortedCuts, leads_with
from oocbe.errors import DiskError, ResourceError
from oocbe.model.settings.tuning import tuning
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.algebra.inputs import TableLike
    from oocbe.kernels.interface import Backend
    from oocbe.tables.writer import StoredTableWriter

Streamable = Table | PackedTable
Run = Callable[[Sequence[Streamable], SortedCuts, StreamedOperation, int | None], Any]


def stream_elimination(
    t1: Streamable,
    t2: Streamable,
    variables: str | Sequence[str],
    kernels: Backend,
    piece_rows: int | None,
    run: Run | None = None,
) -> Any:
    """Join two tables and eliminate shared variables in one step.

    run : brings pieces through the device; None: :func:`oocbe.algebra.gpu_streaming.stream_through_gpu`.

    Raises
    ------
    CannotStreamError : other variables go as well, or the tables cannot be cut.
    """
    shared = check_pair(t1, t2)
    gone = (variables,) if isinstance(variables, str) else tuple(dict.fromkeys(variables))
    if not gone or any(name not in shared for name in gone):
        raise CannotStreamError("only shared variables are eliminated on the way")
    gone = tuple(name for name in shared if name in gone)
    outer, inner = (t1, t2) if t1.rows >= t2.rows else (t2, t1)
    elimination = Elimination(outer.layout, inner.layout, shared, gone)
    kept = elimination.kept
    if split_key_word(gone, t1.layout)[1]:
        raise CannotStreamError("the eliminated variables take more than one key word")
    _check_lead(kept, outer, inner)
    runs = (*elimination.own_outer, *kept)
    cuts = SortedCuts((outer, inner), kept, runs if leads_with(outer, runs) else kept)
    terms = min(prod(outer.layout.select(gone).sizes), max(1, t1.rows * t2.rows))

    def compute(tables: Sequence[Table], dtype: np.dtype[Any]) -> DeviceRows:
        join = elimination.prepare(tables[0], tables[1], dtype, kernels)
        return join.rows(0, len(join.outer.values), join.groups)

    operation = StreamedOperation(
        elimination.layout,
        True,
        compute,
        lambda extents: joined_dtype(extents[0], extents[1], outer.semiring, terms),
    )
    return (run or stream_through_gpu)((outer, inner), cuts, operation, piece_rows)


def stream_join(t1: Streamable, t2: Streamable, kernels: Backend, piece_rows: int | None) -> Streamable:
    """Join two tables; CannotStreamError where they cannot be cut."""
    shared = check_pair(t1, t2)
    _check_lead(shared, t1, t2)

    def compute(tables: Sequence[Table], dtype: np.dtype[Any]) -> DeviceRows:
        join = prepare_join(tables[0], tables[1], shared, dtype, kernels)
        return join.rows(join.groups)

    operation = StreamedOperation(
        joined_layout(t1.layout, t2.layout, shared),
        False,
        compute,
        lambda extents: joined_dtype(extents[0], extents[1], t1.semiring),
    )
    return stream_through_gpu((t1, t2), SortedCuts((t1, t2), shared, shared), operation, piece_rows)


def stream_marginalise(
    table: Streamable, gone: Sequence[str], kernels: Backend, piece_rows: int | None, run: Run | None = None
) -> Any:
    """Marginalise variables out of a table; run and errors as for :func:`stream_elimination`."""
    layout, terms = reduced_layout(table, gone)
    _check_lead(layout.scope, table)
    operation = StreamedOperation(
        layout,
        True,
        lambda tables, dtype: reduced_rows(tables[0], gone, dtype, kernels),
        lambda extents: reduced_dtype(extents[0], table.semiring, terms),
    )
    return (run or stream_through_gpu)(
        (table,), SortedCuts((table,), layout.scope, layout.scope), operation, piece_rows
    )


def streamed_to_disk(
    tables: Sequence[TableLike],
    output: str | Path,
    context: ExecutionContext,
    stream: Callable[..., Any],
    create: Callable[..., StoredTableWriter] | None = None,
    rows: RowRanges | None = None,
) -> StoredTable:
    """An operator's result on disk, from tables on disk or packed.

    Parameters
    ----------
    stream : the operator: :func:`stream_elimination` or :func:`stream_marginalise` with its other arguments.
    create : makes the result's writer; None: that of a stored table, from the context.
    rows : of the tables, the one with more of them first; None: all.

    Raises
    ------
    CannotStreamError : the tables cannot go through the device as they are; nothing is left of the result.
    DiskError : the disk is full.
    """
    if context.kernels.name != "cuda":
        raise CannotStreamError("the kernels work in main memory")
    packed = [PackedTable.on_disk(table) if isinstance(table, StoredTable) else table for table in tables]
    if not all(isinstance(table, PackedTable) for table in packed):
        raise CannotStreamError("a table is neither packed nor on disk")
    create = create or partial(StoredTable.create, overwrite=context.overwrite)
    run = partial(_run, output=output, context=context, create=create, rows=rows)
    piece_rows = context.space.piece_rows
    try:
        found: StoredTable = stream(*packed, kernels=context.kernels, piece_rows=piece_rows, run=run)
    except DiskError:
        raise
    except ResourceError as error:
        # A group that the device has no room for: the other way cuts inside groups.
        raise CannotStreamError(str(error)) from None
    return found


def _run(
    tables: Sequence[Streamable],
    cuts: SortedCuts,
    operation: StreamedOperation,
    piece_rows: int | None,
    output: str | Path,
    context: ExecutionContext,
    create: Callable[..., StoredTableWriter],
    rows: RowRanges | None,
) -> StoredTable:
    dtype = known_dtype(tables, operation)
    host_bytes = int(context.space.budget.limit * tuning().pinned_share)
    if piece_rows is None:
        row_bytes = sum(table.nbytes for table in tables) / sum(table.rows for table in tables)
        pinned_rows = int(host_bytes / tuning().pinned_pieces / row_bytes)
        most = min(rows_a_piece(tables, tuning().disk_piece_bytes), pinned_rows)
        piece_rows = max(1, most)
    whole = cuts.whole() if rows is None else rows
    pieces = cuts.fitting(whole, piece_rows, int(context.space.budget.limit * tuning().cut_search_share))
    chunk_rows = context.chunk_rows(operation.layout, dtype)
    with create(output, operation.layout, dtype, tables[0].semiring, chunk_rows=chunk_rows) as writer:
        PiecesThroughDevice(tables, cuts, operation, dtype, StoredResult(writer)).over(pieces, host_bytes)
    return StoredTable.open(output)


def _check_lead(names: Sequence[str], *tables: Streamable) -> None:
    """CannotStreamError where tables cannot be cut by some variables: they are not sorted by them, or empty."""
    if not names or not all(table.rows and leads_with(table, names) for table in tables):
        scopes = ", ".join(str(table.scope) for table in tables)
        raise CannotStreamError(f"tables over {scopes} are not cut by {tuple(names)}")
