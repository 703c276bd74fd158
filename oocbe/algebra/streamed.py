"""Plans of the operators through the device, on tables that its memory does not hold, or that are packed or on disk.

Tables can be cut where they lead with the variables that the operation groups by, in one order; otherwise rows would
have to be sorted as a whole, which is for the operators on disk (:mod:`oocbe.algebra.out_of_core`). Whether they can
is decided before any row moves: ``plan_join``, ``plan_elimination`` and ``plan_marginalise`` make a plan, or None.
From disk to disk packed chunks go from files to pinned memory to the device and are unpacked there, and so are the
result's packed there: the processor checks sums and moves bytes, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from oocbe.algebra.inputs import check_pair
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


@dataclass(frozen=True)
class DevicePlan:
    """An operator's way through the device: tables in main memory or packed, how they are cut, the work on a piece."""

    tables: tuple[Streamable, ...]
    cuts: SortedCuts
    operation: StreamedOperation

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the result's values, of packed tables; of others, the least one."""
        return known_dtype(self.tables, self.operation)

    def to_memory(self, piece_rows: int | None) -> Streamable:
        """The result in main memory; arguments and errors: :func:`oocbe.algebra.gpu_streaming.stream_through_gpu`."""
        return stream_through_gpu(self.tables, self.cuts, self.operation, piece_rows)

    def to_disk(
        self,
        output: str | Path,
        context: ExecutionContext,
        create: Callable[..., StoredTableWriter] | None = None,
        rows: RowRanges | None = None,
    ) -> StoredTable | None:
        """The result of packed tables, written; None: the device has no room for a group, and nothing is left of it.

        Parameters
        ----------
        create : makes the result's writer; None: that of a stored table, from the context.
        rows : of the tables, in the plan's order; None: all.

        Raises
        ------
        DiskError : the disk is full.
        """
        layout, limit = self.operation.layout, context.space.budget.limit
        host_bytes, piece_rows = int(limit * tuning().pinned_share), context.space.piece_rows
        if piece_rows is None:
            row_bytes = sum(table.nbytes for table in self.tables) / sum(table.rows for table in self.tables)
            pinned_rows = int(host_bytes / tuning().pinned_pieces / row_bytes)
            most = min(rows_a_piece(self.tables, tuning().disk_piece_bytes), pinned_rows)
            piece_rows = max(1, most)
        whole = self.cuts.whole() if rows is None else rows
        create = create or partial(StoredTable.create, overwrite=context.settings.overwrite)
        chunk_rows = context.chunk_rows(layout, self.dtype)
        try:
            pieces = self.cuts.fitting(whole, piece_rows, int(limit * tuning().cut_search_share))
            with create(output, layout, self.dtype, self.tables[0].semiring, chunk_rows=chunk_rows) as writer:
                result = StoredResult(writer)
                PiecesThroughDevice(self.tables, self.cuts, self.operation, self.dtype, result).over(pieces, host_bytes)
        except DiskError:
            raise
        except ResourceError:
            return None
        return StoredTable.open(output)


Planner = Callable[..., DevicePlan | None]
"""Makes a plan of tables and, by name, ``kernels``: one of the functions below with its other arguments."""


def plan_elimination(t1: Streamable, t2: Streamable, variables: Sequence[str], kernels: Backend) -> DevicePlan | None:
    """Join two tables and eliminate shared variables in one step.

    None: other variables go as well, those that go take more than one key word, or the tables cannot be cut.
    """
    shared = check_pair(t1, t2)
    gone = tuple(name for name in shared if name in variables)
    if not gone or any(name not in shared for name in variables) or split_key_word(gone, t1.layout)[1]:
        return None
    outer, inner = (t1, t2) if t1.rows >= t2.rows else (t2, t1)
    elimination = Elimination(outer.layout, inner.layout, shared, gone)
    kept = elimination.kept
    runs = (*elimination.own_outer, *kept)
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
    return _cut((outer, inner), kept, runs, operation)


def plan_join(t1: Streamable, t2: Streamable, kernels: Backend) -> DevicePlan | None:
    """Join two tables; None: they cannot be cut."""
    shared = check_pair(t1, t2)

    def compute(tables: Sequence[Table], dtype: np.dtype[Any]) -> DeviceRows:
        join = prepare_join(tables[0], tables[1], shared, dtype, kernels)
        return join.rows(join.groups)

    operation = StreamedOperation(
        joined_layout(t1.layout, t2.layout, shared),
        False,
        compute,
        lambda extents: joined_dtype(extents[0], extents[1], t1.semiring),
    )
    return _cut((t1, t2), shared, shared, operation)


def plan_marginalise(table: Streamable, gone: Sequence[str], kernels: Backend) -> DevicePlan | None:
    """Marginalise variables out of a table; None: it cannot be cut."""
    layout, terms = reduced_layout(table, gone)
    operation = StreamedOperation(
        layout,
        True,
        lambda tables, dtype: reduced_rows(tables[0], gone, dtype, kernels),
        lambda extents: reduced_dtype(extents[0], table.semiring, terms),
    )
    return _cut((table,), layout.scope, layout.scope, operation)


def plan_from_disk(tables: Sequence[TableLike], kernels: Backend, planner: Planner) -> DevicePlan | None:
    """The plan for tables on disk or packed; None also for others, and where the kernels work in main memory."""
    if kernels.name != "cuda":
        return None
    packed = [PackedTable.on_disk(table) if isinstance(table, StoredTable) else table for table in tables]
    return planner(*packed, kernels=kernels) if all(isinstance(table, PackedTable) for table in packed) else None


def _cut(
    tables: tuple[Streamable, ...], names: Sequence[str], unit: Sequence[str], operation: StreamedOperation
) -> DevicePlan | None:
    """A plan of tables cut by some variables; None: they are not sorted by them, or empty.

    unit : of the first table, where it leads with these; they are not cut open then.
    """
    if not names or not all(table.rows and leads_with(table, names) for table in tables):
        return None
    cuts = SortedCuts(tables, names, unit if leads_with(tables[0], unit) else names)
    return DevicePlan(tables, cuts, operation)
