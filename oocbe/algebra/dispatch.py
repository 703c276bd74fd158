"""Choice of an operator's implementation by its tables' form and place; all public operators share it.

1. With an output table: to disk, piece by piece; complete tables stay complete where that is cheaper.
2. All tables packed: through a device as they are, or unpacked, computed and packed again on the CPU.
3. Some table complete: one kernel call where the others are written out as well, by rows otherwise.
4. Else by rows: through a device in pieces where they do not fit it, or where the kernels work.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from oocbe.algebra.complete_tables.conversion import in_memory
from oocbe.algebra.inputs import OutOfCore, check_result, check_values, choose_kernels
from oocbe.algebra.operations import Operation
from oocbe.errors import UsageError
from oocbe.kernels import backend_for
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.option_values import parse_bytes
from oocbe.runtime.memory import MemoryLimit
from oocbe.tables.object_path import is_url, place_named
from oocbe.tables.packed import PackedTable
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.stored_complete import AnyComplete

if TYPE_CHECKING:
    from oocbe.algebra.complete_tables.conversion import AnyTable
    from oocbe.algebra.inputs import TableLike
    from oocbe.kernels.interface import Backend
    from oocbe.tables.table import Table


def apply(
    operation: Operation,
    tables: Sequence[AnyTable],
    settings: OutOfCore,
    piece_rows: int | None,
    backend: Backend | str | None,
) -> Any:
    """Result of an operator on tables in memory or stored, packed or not, incomplete or complete.

    Parameters
    ----------
    settings : with an output, the result is written there. piece_rows, backend : as for the public operators.

    Returns
    -------
    StoredTable or StoredCompleteTable with an output; PackedTable where all tables are packed; else Table, or
    CompleteTable where a table is complete.

    Raises
    ------
    ResourceError : memory could not be had.
    """
    limit = parse_bytes("memory", settings.memory)
    with MemoryLimit(default_memory_limit() if limit is None else limit):
        check_values(*tables)
        operation.check(*tables)
        if settings.wanted:
            with settings.working():
                if is_url(settings.output):
                    return _to_store(operation, tables, settings, piece_rows, backend)
                return _to_disk(operation, tables, settings, piece_rows, backend)
        if all(isinstance(table, PackedTable) for table in tables):
            return _packed(operation, tables, piece_rows, backend)
        if not any(isinstance(table, AnyComplete) for table in tables):
            return _by_rows(operation, tables, piece_rows, backend)
        from oocbe.algebra.complete import combine_tables

        def by_rows(rows: Sequence[Table], rest: Sequence[str]) -> Table:
            """The whole operation on all tables, or its remaining step on the one joined table."""
            step = operation if len(rows) == len(tables) else Operation(tuple(rest))
            return _by_rows(step, rows, piece_rows, backend)

        return check_result(
            combine_tables([in_memory(table) for table in tables], operation.gone, by_rows, backend, piece_rows),
            *tables,
        )


def _to_store(
    operation: Operation,
    tables: Sequence[AnyTable],
    settings: OutOfCore,
    piece_rows: int | None,
    backend: Backend | str | None,
) -> Any:
    """The result written to scratch, and from there to the object store that the output's URL names."""
    url = str(place_named(settings.output or ""))
    if settings.overwrite:
        raise UsageError(f"{url}: tables in object stores are not overwritten; choose another name")
    parent = default_parent() if settings.scratch is None else Path(settings.scratch)
    with closing(ScratchFolder(parent)) as scratch:
        beside = replace(settings, output=scratch.path / "result")
        return _to_disk(operation, tables, beside, piece_rows, backend).upload(url)


def _to_disk(
    operation: Operation,
    tables: Sequence[AnyTable],
    settings: OutOfCore,
    piece_rows: int | None,
    backend: Backend | str | None,
) -> Any:
    if not any(isinstance(table, AnyComplete) for table in tables):
        return operation.store(cast("Sequence[TableLike]", tables), settings, piece_rows, backend)
    from oocbe.algebra.out_of_core.complete import combine_stored

    def store(rows: Sequence[TableLike]) -> Any:
        return operation.store(rows, settings, piece_rows, backend)

    return combine_stored(tuple(tables), operation.gone, settings, piece_rows, backend, store)


def _packed(
    operation: Operation, tables: Sequence[Any], piece_rows: int | None, backend: Backend | str | None
) -> PackedTable:
    """Packed tables streamed to the device as they are, or unpacked and packed again on the CPU.

    Raises
    ------
    ResourceError : the tables cannot go through a device, and do not fit in memory unpacked.
    """
    kernels = backend_for(sum(table.rows for table in tables), backend, False)
    plan = operation.device_plan(tables, kernels) if kernels.name == "cuda" else None
    if plan is not None:
        streamed = plan.to_memory(piece_rows)
        assert isinstance(streamed, PackedTable)
        return streamed
    return PackedTable.pack(_by_rows(operation, tables, piece_rows, backend))


def _by_rows(
    operation: Operation, tables: Sequence[AnyTable], piece_rows: int | None, backend: Backend | str | None
) -> Table:
    """The result in memory, of tables whose rows are worked on."""
    place = choose_kernels(backend, *tables)
    plan = operation.device_plan(place.tables, place.kernels) if place.has_to_stream(piece_rows) else None
    if plan is not None:
        streamed: Any = check_result(plan.to_memory(piece_rows), *place.tables)
        return cast("Table", streamed)
    place = place.moved()
    return place.to_caller(operation.compute(place.tables, place.kernels, piece_rows))
