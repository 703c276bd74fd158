"""Maximisation: variables marginalised out of a table, whatever its semiring (⇓ of bucket elimination)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from oocbe.table_algebra.arrange import arrange
from oocbe.table_algebra.inputs import (
    OutOfCore,
    any_complete,
    as_rows,
    check_result,
    check_values,
    choose_kernels,
    has_complete,
)
from oocbe.table_algebra.ranges import reduced_dtype
from oocbe.tables.layout import Layout
from oocbe.tables.moves import field_masks
from oocbe.tables.packed import PackedTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend
    from oocbe.table_algebra.inputs import AnyTable, KernelSettings, OperatorSettings, RowTable, TableLike
    from oocbe.tables.complete import CompleteTable
    from oocbe.tables.stored import StoredTable
    from oocbe.tables.stored_complete import StoredCompleteTable


@overload
def maximise(
    table: PackedTable,
    variables: str | Sequence[str],
    *,
    output: None = None,
    **settings: Unpack[OperatorSettings],
) -> PackedTable: ...


@overload
def maximise(
    table: RowTable,
    variables: str | Sequence[str],
    *,
    output: None = None,
    **settings: Unpack[OperatorSettings],
) -> Table: ...


@overload
def maximise(
    table: TableLike,
    variables: str | Sequence[str],
    *,
    output: str | Path,
    **settings: Unpack[OperatorSettings],
) -> StoredTable: ...


@overload
def maximise(
    table: AnyTable,
    variables: str | Sequence[str],
    *,
    output: str | Path,
    **settings: Unpack[OperatorSettings],
) -> StoredTable | StoredCompleteTable: ...


@overload
def maximise(
    table: AnyTable,
    variables: str | Sequence[str],
    **settings: Unpack[KernelSettings],
) -> Table | CompleteTable | PackedTable: ...


def maximise(
    table: AnyTable,
    variables: str | Sequence[str],
    *,
    piece_rows: int | None = None,
    backend: Backend | str | None = None,
    output: str | Path | None = None,
    memory: int | str | None = None,
    scratch: str | Path | None = None,
    streams: int | None = None,
) -> Table | StoredTable | PackedTable | CompleteTable | StoredCompleteTable:
    """Marginalise variables out of a table: by maximum, minimum or sum, as its semiring says.

    All other variables go to the low places and rows are sorted by them, so that rows to reduce are neighbours
    (Bistaffa, Bombieri and Farinelli 2016, section IV-C and algorithm 5). A sorted table whose lowest variables are the
    eliminated ones (elimination-order layout) is not sorted again.

    Parameters
    ----------
    table : in memory or stored, incomplete or complete.
    variables : name of one variable of its scope, or several names.
    piece_rows : rows that a kernel call works on; None: the backend's choice. The result does not depend on it.
    backend : the kernels, or ``auto``, ``cpu`` or ``cuda``; None: what ``OOCBE_BACKEND`` says, or ``auto``.
    output, memory, scratch, streams : with ``output``, a table of any size is treated piece by piece and the same rows
        written to a table on disk; see :class:`oocbe.table_algebra.inputs.OutOfCore`.

    Returns
    -------
    Table, or StoredTable with ``output`` : scope = the other variables in the table's order; sorted.
    Of a complete table CompleteTable, or StoredCompleteTable with ``output``, over the same scope.

    Raises
    ------
    ModelError : a variable is not in the scope, or numbers that tables cannot hold (:mod:`oocbe.tables.numbers`).
    ValueRangeError : a sum could leave int64, or has left the range of floats.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> maximise(Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3]), "x").to_dict()
    {(0,): 2, (1,): 3}
    """
    gone = (variables,) if isinstance(variables, str) else tuple(variables)
    check_values(table)
    settings = OutOfCore(output, memory, scratch, streams)
    if settings.wanted:
        from oocbe.table_algebra.out_of_core.maximise import maximise_stored

        if has_complete(table):
            from oocbe.table_algebra.out_of_core.complete import combine_stored

            table.layout.select(gone)  # refuses what is not in the scope
            return combine_stored(
                (table,),
                gone,
                settings,
                piece_rows,
                backend,
                lambda rows: maximise_stored(rows[0], gone, settings, piece_rows, backend),
            )
        return maximise_stored(as_rows(table), gone, settings, piece_rows, backend)
    if isinstance(table, PackedTable):
        from oocbe.table_algebra.on_packed import on_packed
        from oocbe.table_algebra.streamed import stream_maximise

        table.layout.select(gone)  # refuses what is not in the scope
        return on_packed(
            (table,),
            backend,
            lambda kernels: stream_maximise(table, gone, kernels, piece_rows),
            lambda t: maximise(t, gone, piece_rows=piece_rows, backend=backend),
        )
    if (found := any_complete(table)) is not None:
        from oocbe.table_algebra.complete import combine_tables

        table.layout.select(gone)  # refuses what is not in the scope
        return check_result(combine_tables(found, gone, backend, piece_rows), table)
    place = choose_kernels(backend, as_rows(table))
    (t,) = place.tables
    if place.has_to_stream(piece_rows):
        from oocbe.table_algebra.streamed import stream_maximise

        streamed: Table | None = stream_maximise(t, gone, place.kernels, piece_rows)
        if streamed is not None:
            return check_result(streamed, t)
    place = place.moved()
    (t,), kernels = place.tables, place.kernels
    layout, terms = reduced_layout(t, gone)
    dtype = reduced_dtype(t.values, t.semiring, terms)
    keys, values = reduced_rows(t, gone, dtype, kernels, piece_rows)
    return place.hand_over(check_result(Table(layout, keys, values, t.semiring, is_sorted=True), t))


def reduced_layout(table: Table | PackedTable, gone: Sequence[str]) -> tuple[Layout, int]:
    """Layout of what is left of a table, and how many rows at most become one."""
    sizes = [table.layout.sizes[table.layout.place(name)] for name in gone]
    kept = [name for name in table.scope if name not in gone]
    return table.layout.select(kept), min(prod(sizes), max(1, table.rows))


def reduced_rows(
    table: Table, gone: Sequence[str], dtype: np.dtype[Any], kernels: Backend, piece_rows: int | None = None
) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Keys and values of a table with variables marginalised out, sorted; the table is where the kernels work."""
    kept = tuple(name for name in table.scope if name not in gone)
    last = tuple(name for name in table.scope if name in gone)
    rows = arrange(table, (*kept, *last), kept, dtype, kernels, piece_rows)
    masks = field_masks(table.layout.select(kept), kept)
    starts = kernels.group_starts(rows.keys, field_masks(rows.layout, kept), piece_rows)
    return kernels.reduce_groups(rows.keys, rows.values, starts, masks, table.semiring.marginalisation, piece_rows)
