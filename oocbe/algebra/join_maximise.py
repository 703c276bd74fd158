"""Join sum and maximisation in one step, without writing a joined row."""

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
def join_maximise(
    table1: PackedTable,
    table2: PackedTable,
    variables: str | Sequence[str],
    *,
    output: None = None,
    **settings: Unpack[OperatorSettings],
) -> PackedTable: ...


@overload
def join_maximise(
    table1: RowTable,
    table2: RowTable,
    variables: str | Sequence[str],
    *,
    output: None = None,
    **settings: Unpack[OperatorSettings],
) -> Table: ...


@overload
def join_maximise(
    table1: TableLike,
    table2: TableLike,
    variables: str | Sequence[str],
    *,
    output: str | Path,
    **settings: Unpack[OperatorSettings],
) -> StoredTable: ...


@overload
def join_maximise(
    table1: AnyTable,
    table2: AnyTable,
    variables: str | Sequence[str],
    *,
    output: str | Path,
    **settings: Unpack[OperatorSettings],
) -> StoredTable | StoredCompleteTable: ...


@overload
def join_maximise(
    table1: AnyTable, table2: AnyTable, variables: str | Sequence[str], **settings: Unpack[KernelSettings]
) -> Table | CompleteTable | PackedTable: ...


def join_maximise(
    table1: AnyTable, table2: AnyTable, variables: str | Sequence[str], **settings: Unpack[ExecutionSettings]
) -> Any:
    """The rows of ``maximise(join_sum(table1, table2), variables)``, in the time and memory of their number.

    Variables of one table only are marginalised out of it first (combination distributes over marginalisation); shared
    ones while joining (:mod:`oocbe.kernels.cpu.pairs.join_reduce`).

    Parameters
    ----------
    table1, table2 : tables in memory or stored, incomplete or complete, of one semiring; scopes may be disjoint, equal
        or empty.
    variables : name of one variable in a scope, or several names.
    settings : ``piece_rows`` and ``backend`` of the kernels. With ``output``, tables of any size are treated piece by
        piece, by ``workers`` or those of a ``client`` where these are asked for, and the same rows are written to a
        table on disk; ``memory``, ``scratch``, ``streams`` and ``overwrite`` are for that. See
        :class:`oocbe.algebra.inputs.Execution`.

    Returns
    -------
    Table, or StoredTable with ``output`` : the variables that stay. Where a shared variable is eliminated: those of
        the table with fewer rows alone, those of the other one alone, the shared ones, the least significant first,
        and sorted; otherwise the layout of :func:`oocbe.join_sum`.
    PackedTable where all tables are packed: see :mod:`oocbe.algebra.dispatch`.
    Where a table is complete the result may be a CompleteTable, or a StoredCompleteTable with ``output``: see
        :mod:`oocbe.algebra.complete`.

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
