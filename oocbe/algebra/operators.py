"""The public operators: join sum, maximisation, and both in one step (⊕ and ⇓ of bucket elimination).

Each has five signatures: packed tables give a packed one, tables of rows a table; with ``output`` the result is a
stored table; where a table is complete the result may be (see :mod:`oocbe.algebra.complete`). The choice of memory,
disk or device is in :mod:`oocbe.algebra.dispatch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, overload

from oocbe.algebra.dispatch import run
from oocbe.algebra.inputs import ExecutionSettings
from oocbe.tables.packed import PackedTable
from oocbe.tables.table import Table

Names: TypeAlias = str | Sequence[str]
"""A variable or several ones."""

if TYPE_CHECKING:
    from oocbe.algebra.complete_tables.conversion import AnyTable
    from oocbe.algebra.inputs import KernelSettings, RowTable, TableLike
    from oocbe.algebra.inputs import OperatorSettings as Settings
    from oocbe.tables.complete import CompleteTable
    from oocbe.tables.stored import StoredTable
    from oocbe.tables.stored_complete import StoredCompleteTable


@overload
def join_sum(
    table1: PackedTable, table2: PackedTable, *, output: None = None, **settings: Unpack[Settings]
) -> PackedTable: ...


@overload
def join_sum(table1: RowTable, table2: RowTable, *, output: None = None, **settings: Unpack[Settings]) -> Table: ...


@overload
def join_sum(
    table1: TableLike, table2: TableLike, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable: ...


@overload
def join_sum(
    table1: AnyTable, table2: AnyTable, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable | StoredCompleteTable: ...


@overload
def join_sum(
    table1: AnyTable, table2: AnyTable, **settings: Unpack[KernelSettings]
) -> Table | CompleteTable | PackedTable: ...


def join_sum(table1: AnyTable, table2: AnyTable, **settings: Unpack[ExecutionSettings]) -> Any:
    """Join two tables on their shared variables.

    Both are preprocessed by :func:`oocbe.algebra.arrange.arrange`; then each output row is gathered from
    its two input rows (Bistaffa, Bombieri and Farinelli 2016, algorithm 4).

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
    PackedTable where all tables are packed; CompleteTable or StoredCompleteTable: see :mod:`oocbe.algebra.complete`.

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


@overload
def maximise(
    table: PackedTable, variables: Names, *, output: None = None, **settings: Unpack[Settings]
) -> PackedTable: ...


@overload
def maximise(table: RowTable, variables: Names, *, output: None = None, **settings: Unpack[Settings]) -> Table: ...


@overload
def maximise(
    table: TableLike, variables: Names, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable: ...


@overload
def maximise(
    table: AnyTable, variables: Names, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable | StoredCompleteTable: ...


@overload
def maximise(
    table: AnyTable, variables: Names, **settings: Unpack[KernelSettings]
) -> Table | CompleteTable | PackedTable: ...


def maximise(table: AnyTable, variables: Names, **settings: Unpack[ExecutionSettings]) -> Any:
    """Marginalise variables out of a table: by maximum, minimum or sum, depending on its semiring.

    All other variables go to the low places and rows are sorted by them, so that rows to reduce are neighbours
    (Bistaffa, Bombieri and Farinelli 2016, section IV-C and algorithm 5). A sorted table whose lowest variables are the
    eliminated ones (elimination-order layout) is not sorted again.

    Parameters
    ----------
    table : in memory or stored, incomplete or complete.
    variables : name of one variable of its scope, or several names.
    settings : as for :func:`oocbe.join_sum`.

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


@overload
def join_maximise(
    table1: PackedTable, table2: PackedTable, variables: Names, *, output: None = None, **settings: Unpack[Settings]
) -> PackedTable: ...


@overload
def join_maximise(
    table1: RowTable, table2: RowTable, variables: Names, *, output: None = None, **settings: Unpack[Settings]
) -> Table: ...


@overload
def join_maximise(
    table1: TableLike, table2: TableLike, variables: Names, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable: ...


@overload
def join_maximise(
    table1: AnyTable, table2: AnyTable, variables: Names, *, output: str | Path, **settings: Unpack[Settings]
) -> StoredTable | StoredCompleteTable: ...


@overload
def join_maximise(
    table1: AnyTable, table2: AnyTable, variables: Names, **settings: Unpack[KernelSettings]
) -> Table | CompleteTable | PackedTable: ...


def join_maximise(table1: AnyTable, table2: AnyTable, variables: Names, **settings: Unpack[ExecutionSettings]) -> Any:
    """The rows of ``maximise(join_sum(table1, table2), variables)``, in the time and memory of their number.

    Variables of one table only are marginalised out of it first (combination distributes over marginalisation); shared
    ones while joining (:mod:`oocbe.kernels.cpu.pairs.join_reduce`).

    Parameters
    ----------
    table1, table2 : tables in memory or stored, incomplete or complete, of one semiring; scopes may be disjoint, equal
        or empty.
    variables : name of one variable in a scope, or several names.
    settings : as for :func:`oocbe.join_sum`.

    Returns
    -------
    Table, or StoredTable with ``output`` : the variables that stay. Where a shared variable is eliminated: those of
        the table with fewer rows alone, those of the other one alone, the shared ones, the least significant first,
        and sorted; otherwise the layout of :func:`oocbe.join_sum`.
    PackedTable where all tables are packed; CompleteTable or StoredCompleteTable: see :mod:`oocbe.algebra.complete`.

    Raises
    ------
    ModelError : different semirings, a variable with different domain sizes, or one in neither scope; numbers that
        tables cannot hold (:mod:`oocbe.tables.numbers`).
    ValueRangeError : a value could leave int64, or has left the range of floats.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> f = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3])
    >>> g = Table.from_rows({"x": 2, "z": 2}, [[0, 1], [1, 1]], [10, 20])
    >>> join_maximise(f, g, "x")
    <Table (z, y): 2 rows, density 0.5, 32 B, 2 key bits, int64, max-sum>
    """
    return run(variables, (table1, table2), settings)


join_marginalise = join_maximise
"""The general name of :func:`join_maximise`, which also minimises and sums, depending on the semiring."""
