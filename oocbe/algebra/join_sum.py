"""Join sum: all rows of two tables that agree on their shared variables, values combined (⊕ of bucket elimination)."""

from __future__ import annotations

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
def join_sum(
    table1: PackedTable, table2: PackedTable, *, output: None = None, **settings: Unpack[OperatorSettings]
) -> PackedTable: ...


@overload
def join_sum(
    table1: RowTable, table2: RowTable, *, output: None = None, **settings: Unpack[OperatorSettings]
) -> Table: ...


@overload
def join_sum(
    table1: TableLike, table2: TableLike, *, output: str | Path, **settings: Unpack[OperatorSettings]
) -> StoredTable: ...


@overload
def join_sum(
    table1: AnyTable, table2: AnyTable, *, output: str | Path, **settings: Unpack[OperatorSettings]
) -> StoredTable | StoredCompleteTable: ...


@overload
def join_sum(
    table1: AnyTable, table2: AnyTable, **settings: Unpack[KernelSettings]
) -> Table | CompleteTable | PackedTable: ...


def join_sum(table1: AnyTable, table2: AnyTable, **settings: Unpack[ExecutionSettings]) -> Any:
    """Join two tables on their shared variables.

    Both are preprocessed by :mod:`oocbe.algebra.arrange`; then each output row is gathered from its two input
    rows (Bistaffa, Bombieri and Farinelli 2016, algorithm 4).

    Parameters
    ----------
    table1, table2 : tables in memory or stored, incomplete or complete, of one semiring; scopes may be disjoint, equal
        or empty.
    settings : ``piece_rows`` and ``backend`` of the kernels. With ``output``, tables of any size are joined piece by
        piece, by ``workers`` or those of a ``client`` where these are asked for, and the same rows are written to a
        table on disk; ``memory``, ``scratch``, ``streams`` and ``overwrite`` are for that. See
        :class:`oocbe.algebra.inputs.Execution`.

    Returns
    -------
    Table, or StoredTable with ``output`` : scope = shared variables (in the first table's order), the rest of the
        first table's, the rest of the second's, the least significant first. Rows are grouped by the shared variables,
    not sorted within a group.
    PackedTable where all tables are packed: see :mod:`oocbe.algebra.dispatch`.
    Where a table is complete the result may be a CompleteTable, or a StoredCompleteTable with ``output``: see
        :mod:`oocbe.algebra.complete`.

    Raises
    ------
    ModelError : different semirings, a variable with different domain sizes, or numbers that tables cannot hold
        (:mod:`oocbe.tables.numbers`).
    ValueRangeError : a joined value could leave int64, or has left the range of floats (see
        :func:`oocbe.algebra.inputs.check_result`).
    ResourceError : the joined rows do not fit in memory.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> f = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3])
    >>> g = Table.from_rows({"y": 2, "z": 2}, [[0, 1]], [10])
    >>> join_sum(f, g).to_dict()
    {(0, 0, 1): 11, (0, 1, 1): 12}
    """
    return run((), (table1, table2), settings)
