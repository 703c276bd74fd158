"""What each operator does with tables in each place: with rows where the kernels work, through a device, to disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from oocbe.algebra.eliminate_rows import join_eliminating
from oocbe.algebra.inputs import OutOfCore, check_pair
from oocbe.algebra.join_rows import join_tables
from oocbe.algebra.reduce_rows import reduce_table
from oocbe.errors import ModelError
from oocbe.tables.packed import PackedTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.algebra.complete_tables.conversion import AnyTable
    from oocbe.algebra.inputs import TableLike
    from oocbe.kernels.interface import Backend
    from oocbe.tables.stored import StoredTable


class Operation(Protocol):
    """One operator with its arguments but the tables."""

    @property
    def gone(self) -> tuple[str, ...]:
        """Variables that are marginalised out."""

    def check(self, *tables: AnyTable) -> None:
        """Refuse tables that do not fit one another, or lack a variable (:class:`oocbe.errors.ModelError`)."""

    def compute(self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None) -> Table:
        """The result where the kernels work, of tables whose rows are there."""

    def stream(
        self, tables: Sequence[Table | PackedTable], kernels: Backend, piece_rows: int | None
    ) -> Table | PackedTable:
        """The result in main memory, of tables there that go through the device in pieces.

        Raises
        ------
        CannotStreamError : they cannot.
        """

    def store(
        self, tables: Sequence[TableLike], settings: OutOfCore, piece_rows: int | None, backend: Backend | str | None
    ) -> StoredTable:
        """The result on disk, of tables of any size."""


@dataclass(frozen=True)
class JoinSum:
    """Two tables joined on their shared variables."""

    gone: tuple[str, ...] = ()

    def check(self, *tables: AnyTable) -> None:
        """Refuse tables of different semirings, or with variables of different domain sizes."""
        check_pair(*tables)

    def compute(self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None) -> Table:
        """The joined rows where the kernels work."""
        return join_tables(tables[0], tables[1], kernels, piece_rows)

    def stream(
        self, tables: Sequence[Table | PackedTable], kernels: Backend, piece_rows: int | None
    ) -> Table | PackedTable:
        """The joined rows, through a device."""
        from oocbe.algebra.streamed import stream_join

        return stream_join(tables[0], tables[1], kernels, piece_rows)

    def store(
        self, tables: Sequence[TableLike], settings: OutOfCore, piece_rows: int | None, backend: Backend | str | None
    ) -> StoredTable:
        """The joined rows on disk."""
        from oocbe.algebra.out_of_core.join_sum import join_sum_stored

        return join_sum_stored(tables[0], tables[1], settings, piece_rows, backend)


@dataclass(frozen=True)
class Marginalise:
    """Variables marginalised out of one table."""

    gone: tuple[str, ...]

    def check(self, *tables: AnyTable) -> None:
        """Refuse a variable that is not in the table's scope."""
        for table in tables:
            table.layout.select(self.gone)

    def compute(self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None) -> Table:
        """The reduced rows where the kernels work."""
        return reduce_table(tables[0], self.gone, kernels, piece_rows)

    def stream(
        self, tables: Sequence[Table | PackedTable], kernels: Backend, piece_rows: int | None
    ) -> Table | PackedTable:
        """The reduced rows, through a device."""
        from oocbe.algebra.streamed import stream_marginalise

        streamed: Table | PackedTable = stream_marginalise(tables[0], self.gone, kernels, piece_rows)
        return streamed

    def store(
        self, tables: Sequence[TableLike], settings: OutOfCore, piece_rows: int | None, backend: Backend | str | None
    ) -> StoredTable:
        """The reduced rows on disk."""
        from oocbe.algebra.out_of_core.marginalise import marginalise_stored

        return marginalise_stored(tables[0], self.gone, settings, piece_rows, backend)


@dataclass(frozen=True)
class JoinMarginalise:
    """Two tables joined, and variables marginalised out in the same step."""

    gone: tuple[str, ...]

    def check(self, *tables: AnyTable) -> None:
        """Refuse tables that cannot be joined, and a variable that is in neither scope."""
        check_pair(*tables)
        for name in self.gone:
            if not any(name in table.layout for table in tables):
                scopes = ", ".join(str(table.scope) for table in tables)
                raise ModelError(f"variable {name} is in neither scope: {scopes}")

    def compute(self, tables: Sequence[Table], kernels: Backend, piece_rows: int | None) -> Table:
        """The rows of the result where the kernels work."""
        return join_eliminating(tables[0], tables[1], self.gone, kernels, piece_rows)

    def stream(
        self, tables: Sequence[Table | PackedTable], kernels: Backend, piece_rows: int | None
    ) -> Table | PackedTable:
        """The rows of the result, through a device."""
        from oocbe.algebra.streamed import stream_elimination

        streamed: Table | PackedTable = stream_elimination(tables[0], tables[1], self.gone, kernels, piece_rows)
        return streamed

    def store(
        self, tables: Sequence[TableLike], settings: OutOfCore, piece_rows: int | None, backend: Backend | str | None
    ) -> StoredTable:
        """The rows of the result on disk."""
        from oocbe.algebra.out_of_core.join_marginalise import join_marginalise_stored

        return join_marginalise_stored(tables[0], tables[1], self.gone, settings, piece_rows, backend)
