"""What an operator does with tables in each place: with rows where the kernels work, through a device, to disk.

One table is reduced; two are joined, and reduced on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oocbe.algebra.eliminate_rows import join_eliminating
from oocbe.algebra.inputs import Execution, check_pair
from oocbe.algebra.reduce_rows import reduce_table
from oocbe.errors import ModelError
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.algebra.complete_tables.conversion import AnyTable
    from oocbe.algebra.streamed import DevicePlan, Streamable
    from oocbe.kernels.interface import Backend
    from oocbe.tables.stored import StoredTable


@dataclass(frozen=True)
class Operation:
    """One table or the join of two, with variables marginalised out.

    Attributes
    ----------
    gone : those variables, none twice.
    """

    gone: tuple[str, ...] = ()

    def check(self, *tables: AnyTable) -> None:
        """Refuse tables that cannot be joined, or lack a variable (:class:`oocbe.errors.ModelError`)."""
        if len(tables) == 1:
            tables[0].layout.select(self.gone)
            return
        check_pair(*tables)
        for name in self.gone:
            if not any(name in table.layout for table in tables):
                scopes = ", ".join(str(table.scope) for table in tables)
                raise ModelError(f"variable {name} is in neither scope: {scopes}")

    def compute(self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None) -> Table:
        """The result where the kernels work, of tables whose rows are there."""
        if len(tables) == 1:
            return reduce_table(tables[0], self.gone, kernels, piece_rows)
        return join_eliminating(tables[0], tables[1], self.gone, kernels, piece_rows)

    def device_plan(self, tables: Sequence[Streamable], kernels: Backend) -> DevicePlan | None:
        """How tables in main memory go through the device in pieces; None: they cannot."""
        from oocbe.algebra.streamed import plan_elimination, plan_join, plan_marginalise

        if len(tables) == 1:
            return plan_marginalise(tables[0], self.gone, kernels)
        if self.gone:
            return plan_elimination(tables[0], tables[1], self.gone, kernels)
        return plan_join(tables[0], tables[1], kernels)

    def store(self, tables: Sequence[Any], settings: Execution) -> StoredTable:
        """The result on disk, of tables of rows of any size."""
        from oocbe.algebra.out_of_core.join_marginalise import join_marginalise_stored
        from oocbe.algebra.out_of_core.marginalise import marginalise_stored

        if len(tables) == 1:
            return marginalise_stored(tables[0], self.gone, settings)
        return join_marginalise_stored(tables[0], tables[1], self.gone, settings)
