"""Maximisation: variables marginalised out of a table, whatever its semiring (⇓ of bucket elimination)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from oocbe.algebra.dispatch import run
from oocbe.algebra.inputs import ExecutionSettings
from oocbe.tables.packed import PackedTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.algebra.complete_tables.conversion import AnyTable
    from oocbe.algebra.inputs import KernelSettings, OperatorSettings, RowTable, TableLike
    from oocbe.tables.complete import CompleteTable
    from oocbe.tables.stored import StoredTable
    from oocbe.tables.stored_complete import StoredCompleteTable


@overload
def maximise(
    table: PackedTable, variables: str | Sequence[str], *, output: None = None, **settings: Unpack[OperatorSettings]
) -> PackedTable: ...


@overload
def maximise(
    table: RowTable, variables: str | Sequence[str], *, output: None = None, **settings: Unpack[OperatorSettings]
) -> Table: ...


@overload
def maximise(
    table: TableLike, variables: str | Sequence[str], *, output: str | Path, **settings: Unpack[OperatorSettings]
) -> StoredTable: ...


@overload
def maximise(
    table: AnyTable, variables: str | Sequence[str], *, output: str | Path, **settings: Unpack[OperatorSettings]
) -> StoredTable | StoredCompleteTable: ...


@overload
def maximise(
    table: AnyTable, variables: str | Sequence[str], **settings: Unpack[KernelSettings]
) -> Table | CompleteTable | PackedTable: ...


def maximise(table: AnyTable, variables: str | Sequence[str], **settings: Unpack[ExecutionSettings]) -> Any:
    """Marginalise variables out of a table: by maximum, minimum or sum, depending on its semiring.

    All other variables go to the low places and rows are sorted by them, so that rows to reduce are neighbours
    (Bistaffa, Bombieri and Farinelli 2016, section IV-C and algorithm 5). A sorted table whose lowest variables are the
    eliminated ones (elimination-order layout) is not sorted again.

    Parameters
    ----------
    table : in memory or stored, incomplete or complete.
    variables : name of one variable of its scope, or several names.
    settings : ``piece_rows`` and ``backend`` of the kernels. With ``output``, a table of any size is treated piece by
        piece, by ``workers`` or those of a ``client`` where these are asked for, and the same rows are written to a
        table on disk; ``memory``, ``scratch``, ``streams`` and ``overwrite`` are for that. See
        :class:`oocbe.algebra.inputs.Execution`.

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
    return run(variables, (table,), settings)


marginalise = maximise
"""The general name of :func:`maximise`, which also minimises and sums, depending on the semiring."""
