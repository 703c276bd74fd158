"""What the operators do with their arguments before any row moves: read stored tables, check that two tables agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from oocbe.errors import ModelError
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.tables.stored import StoredTable

    TableLike: TypeAlias = Table | StoredTable


def in_memory(table: TableLike) -> Table:
    """The table itself, or a stored table's rows read into memory."""
    return table if isinstance(table, Table) else table.to_table()


def check_pair(table1: Table, table2: Table) -> tuple[str, ...]:
    """Variables that two tables share, in the order of the first one's scope.

    Raises
    ------
    ModelError : the tables have different semirings, or a variable has different domain sizes.
    """
    if table1.semiring != table2.semiring:
        raise ModelError(
            f"tables of the {table1.semiring} and the {table2.semiring} semiring cannot be joined; "
            "make both of the same semiring"
        )
    shared = tuple(name for name in table1.scope if name in table2.layout)
    for name in shared:
        size1 = table1.layout.sizes[table1.layout.place(name)]
        size2 = table2.layout.sizes[table2.layout.place(name)]
        if size1 != size2:
            raise ModelError(f"variable {name} has {size1} values in one table and {size2} in the other")
    return shared
