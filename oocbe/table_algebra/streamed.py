"""The operators on tables in main memory that the device's memory does not hold, or that are packed, through streams.

They can be cut where they lead with the variables that the operation groups by, in one order; otherwise rows would have
to be sorted as a whole, which is for the operators on disk (:mod:`oocbe.table_algebra.out_of_core`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from oocbe.table_algebra.eliminate_rows import Elimination, one_word
from oocbe.table_algebra.inputs import check_pair
from oocbe.table_algebra.join_rows import joined_layout, prepare_join
from oocbe.table_algebra.ranges import joined_dtype, reduced_dtype
from oocbe.table_algebra.reduce_rows import reduced_layout, reduced_rows
from oocbe.table_algebra.sorted_cuts import SortedCuts, leads_with
from oocbe.table_algebra.through_device import Rows, Step, through_device
from oocbe.tables.packed import PackedTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend

Streamable = Table | PackedTable
Run = Callable[[Sequence[Streamable], SortedCuts, Step, int | None], Any]


def stream_elimination(
    t1: Streamable,
    t2: Streamable,
    variables: str | Sequence[str],
    kernels: Backend,
    piece_rows: int | None,
    run: Run | None = None,
) -> Any:
    """Join two tables and eliminate shared variables in one step; None where others go as well, or no cut is.

    run : brings pieces through the device; None: :func:`oocbe.table_algebra.through_device.through_device`.
    """
    shared = check_pair(t1, t2)
    gone = (variables,) if isinstance(variables, str) else tuple(dict.fromkeys(variables))
    if not gone or any(name not in shared for name in gone):
        return None
    gone = tuple(name for name in shared if name in gone)
    outer, inner = (t1, t2) if t1.rows >= t2.rows else (t2, t1)
    elimination = Elimination(outer.layout, inner.layout, shared, gone)
    kept = elimination.kept
    if one_word(gone, t1.layout)[1] or not _lead_with(kept, outer, inner):
        return None
    runs = (*elimination.own_outer, *kept)
    cuts = SortedCuts((outer, inner), kept, runs if leads_with(outer, runs) else kept)
    terms = min(prod(outer.layout.select(gone).sizes), max(1, t1.rows * t2.rows))

    def compute(tables: Sequence[Table], dtype: np.dtype[Any]) -> Rows:
        join = elimination.prepare(tables[0], tables[1], dtype, kernels)
        return join.rows(0, len(join.outer.values), join.groups)

    step = Step(
        elimination.layout,
        True,
        compute,
        lambda extents: joined_dtype(extents[0], extents[1], outer.semiring, terms),
    )
    return (run or through_device)((outer, inner), cuts, step, piece_rows)


def stream_join(t1: Streamable, t2: Streamable, kernels: Backend, piece_rows: int | None) -> Streamable | None:
    """Join two tables; None where they cannot be cut."""
    shared = check_pair(t1, t2)
    if not _lead_with(shared, t1, t2):
        return None

    def compute(tables: Sequence[Table], dtype: np.dtype[Any]) -> Rows:
        join = prepare_join(tables[0], tables[1], shared, dtype, kernels)
        return join.rows(join.groups)

    step = Step(
        joined_layout(t1.layout, t2.layout, shared),
        False,
        compute,
        lambda extents: joined_dtype(extents[0], extents[1], t1.semiring),
    )
    return through_device((t1, t2), SortedCuts((t1, t2), shared, shared), step, piece_rows)


def stream_marginalise(
    table: Streamable, gone: Sequence[str], kernels: Backend, piece_rows: int | None, run: Run | None = None
) -> Any:
    """Marginalise variables out of a table; None where it cannot be cut. run : as for :func:`stream_elimination`."""
    layout, terms = reduced_layout(table, gone)
    if not _lead_with(layout.scope, table):
        return None
    step = Step(
        layout,
        True,
        lambda tables, dtype: reduced_rows(tables[0], gone, dtype, kernels),
        lambda extents: reduced_dtype(extents[0], table.semiring, terms),
    )
    return (run or through_device)((table,), SortedCuts((table,), layout.scope, layout.scope), step, piece_rows)


def _lead_with(names: Sequence[str], *tables: Streamable) -> bool:
    return bool(names) and all(table.rows and leads_with(table, names) for table in tables)
