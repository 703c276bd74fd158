"""Choice of an operator's implementation by its tables' form and place; all public operators share it.

1. With an output table: to disk, piece by piece; complete tables stay complete where that is cheaper.
2. All tables packed: through a device as they are, or unpacked, computed and packed again on the CPU.
3. Some table complete: one kernel call where the others are written out as well, by rows otherwise.
4. Else by rows: through a device in pieces where they do not fit it, or where the kernels work.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from oocbe.algebra.complete_tables.conversion import in_memory
from oocbe.algebra.inputs import Execution, check_result, check_values, choose_kernels
from oocbe.algebra.operations import check_operation, planned
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
    from oocbe.algebra.inputs import ExecutionSettings
    from oocbe.tables.table import Table


def run(variables: str | Sequence[str], tables: Sequence[AnyTable], settings: ExecutionSettings) -> Any:
    """Result of an operator on tables in memory or stored, packed or not, incomplete or complete.

    Parameters
    ----------
    variables : marginalised out of the table, or of the join of the two tables; a name or several.
    settings : as for the public operators. With an output, the result is written there.

    Returns
    -------
    StoredTable or StoredCompleteTable with an output; PackedTable where all tables are packed; else Table, or
    CompleteTable where a table is complete.

    Raises
    ------
    ResourceError : memory could not be had. TypeError : an unknown setting.
    """
    known = [field.name for field in fields(Execution)]
    if unknown := sorted(settings.keys() - known):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}; settings of operators: {', '.join(known)}")
    gone = (variables,) if isinstance(variables, str) else tuple(dict.fromkeys(variables))
    execution = Execution(**settings)
    limit = parse_bytes("memory", execution.memory)
    with MemoryLimit(default_memory_limit() if limit is None else limit):
        check_values(*tables)
        check_operation(tables, gone)
        if execution.wanted:
            with execution.working():
                return (_to_store if is_url(execution.output) else _to_disk)(gone, tables, execution)
        if all(isinstance(table, PackedTable) for table in tables):
            return _packed(gone, tables, execution)
        if not any(isinstance(table, AnyComplete) for table in tables):
            return _by_rows(gone, tables, execution)
        from oocbe.algebra.complete import combine_tables

        def by_rows(rows: Sequence[Table], rest: Sequence[str]) -> Table:
            """The whole operation on all tables, or its remaining step on the one joined table."""
            return _by_rows(gone if len(rows) == len(tables) else tuple(rest), rows, execution)

        found = [in_memory(table) for table in tables]
        result = combine_tables(found, gone, by_rows, execution.backend, execution.piece_rows)
        return check_result(result, *tables)


def _to_store(gone: tuple[str, ...], tables: Sequence[AnyTable], execution: Execution) -> Any:
    """The result written to scratch, and from there to the object store that the output's URL names."""
    url = str(place_named(execution.output or ""))
    if execution.overwrite:
        raise UsageError(f"{url}: tables in object stores are not overwritten; choose another name")
    parent = default_parent() if execution.scratch is None else Path(execution.scratch)
    with closing(ScratchFolder(parent)) as scratch:
        return _to_disk(gone, tables, replace(execution, output=scratch.path / "result")).upload(url)


def _to_disk(gone: tuple[str, ...], tables: Sequence[AnyTable], execution: Execution) -> Any:
    if not any(isinstance(table, AnyComplete) for table in tables):
        return planned(tables, gone).to_disk(tables, execution)
    from oocbe.algebra.out_of_core.complete import combine_stored

    return combine_stored(tables, gone, execution, lambda rows: planned(rows, gone).to_disk(rows, execution))


def _packed(gone: tuple[str, ...], tables: Sequence[Any], execution: Execution) -> PackedTable:
    """Packed tables streamed to the device as they are, or unpacked and packed again on the CPU.

    Raises
    ------
    ResourceError : the tables cannot go through a device, and do not fit in memory unpacked.
    """
    kernels = backend_for(sum(table.rows for table in tables), execution.backend, False)
    plan = planned(tables, gone).device_plan(tables, kernels) if kernels.name == "cuda" else None
    if plan is not None:
        streamed = plan.to_memory(execution.piece_rows)
        assert isinstance(streamed, PackedTable)
        return streamed
    return PackedTable.pack(_by_rows(gone, tables, execution))


def _by_rows(gone: tuple[str, ...], tables: Sequence[AnyTable], execution: Execution) -> Table:
    """The result in memory, of tables whose rows are worked on."""
    place, piece_rows = choose_kernels(execution.backend, *tables), execution.piece_rows
    steps = planned(place.tables, gone)
    plan = steps.device_plan(place.tables, place.kernels) if place.has_to_stream(piece_rows) else None
    if plan is not None:
        streamed: Any = check_result(plan.to_memory(piece_rows), *place.tables)
        return cast("Table", streamed)
    place = place.moved()
    return place.to_caller(steps.in_memory(place.tables, place.kernels, piece_rows))
