"""Conversion between tables of rows and complete tables, in memory and out of core."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oocbe.algebra.complete_tables.conversion import complete_in_memory, rows_in_memory
from oocbe.algebra.inputs import Execution
from oocbe.tables.complete import CompleteTable
from oocbe.tables.stored_complete import AnyComplete, StoredCompleteTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.algebra.complete_tables.conversion import AnyTable
    from oocbe.tables.stored import StoredTable


def to_complete(
    table: AnyTable,
    scope: Sequence[str] | None = None,
    *,
    piece_rows: int | None = None,
    output: str | Path | None = None,
    memory: int | str | None = None,
    scratch: str | Path | None = None,
    streams: int | None = None,
    overwrite: bool = False,
) -> CompleteTable | StoredCompleteTable:
    """Write a table out as a complete one: an infeasible value for each assignment without a row.

    Parameters
    ----------
    table : of either form, in memory or stored. scope : order of the variables, the fastest first; None: the table's.
    piece_rows : most rows, or cells, of a piece out of core; None: as many as fit.
    output, memory, scratch, streams, overwrite : with ``output``, a table of any size is converted piece by
        piece and written; see :class:`oocbe.algebra.inputs.Execution`.

    Raises
    ------
    ModelError : the scope has other variables. ResourceError : the values do not fit in memory.
    ValueRangeError : a value that no dtype of a complete table holds. DiskError : the disk is full.

    Examples
    --------
    >>> to_complete(Table.from_rows({"x": 2}, [[1]], [5])).to_dict()
    {(1,): 5}
    """
    settings = Execution(output, memory, scratch, streams, None, None, overwrite, piece_rows, "cpu")
    wanted = table.scope if scope is None else tuple(table.layout.select(scope).scope)
    if settings.wanted:
        from oocbe.algebra.complete import CompletePlace

        assert output is not None
        with CompletePlace.of(settings) as place:
            if isinstance(table, AnyComplete):
                return place.reordered(table, wanted, output)
            return place.written_out(table, wanted, output)
    return complete_in_memory(table, wanted)


def to_rows(
    table: AnyComplete,
    scope: Sequence[str] | None = None,
    *,
    piece_rows: int | None = None,
    output: str | Path | None = None,
    memory: int | str | None = None,
    scratch: str | Path | None = None,
    streams: int | None = None,
    overwrite: bool = False,
) -> Table | StoredTable:
    """The feasible assignments of a complete table as rows, sorted.

    Parameters
    ----------
    scope : order of the variables, the least significant first; None: the table's. Others as for :func:`to_complete`.

    Raises
    ------
    ModelError : the scope has other variables. ResourceError : the rows do not fit in memory. DiskError : the disk is
        full.

    Examples
    --------
    >>> to_rows(CompleteTable.from_array("x", [3.0, float("-inf")])).to_dict()
    {(0,): 3.0}
    """
    settings = Execution(output, memory, scratch, streams, None, None, overwrite, piece_rows, "cpu")
    wanted = table.scope if scope is None else tuple(table.layout.select(scope).scope)
    if settings.wanted:
        from oocbe.algebra.complete import CompletePlace

        assert output is not None
        with CompletePlace.of(settings) as place:
            return place.listed(table, wanted, output)
    return rows_in_memory(table, wanted)
